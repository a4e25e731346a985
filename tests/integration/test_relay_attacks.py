"""The relay under attack, over a raw socket. The numbers are those of the attacks in the threat model."""

import asyncio
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from claudemesh.edge import upstream as edge_upstream
from claudemesh.edge.events import Recovered
from claudemesh.kernel.errors import ConfigError
from tests import canaries
from tests.edge_doubles import Edge, running_hub
from tests.fake_upstream import LOSE, Act, FakeUpstream, Reply, Say, problem, request_bytes, say
from tests.ports import own_address

NOTE = {"agent": "builder", "summary": "parser done"}
BODY = json.dumps(NOTE).encode()
FOREIGN = (
    "127.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "0",
    "2130706433",
    "169.254.169.254",
    "[fd00::]",
    "localhost",
)


def headers(edge: Edge, **more: str) -> list[tuple[str, str]]:
    sent = {"host": edge.address, "connection": "close", "content-type": "application/json"}
    return [*sent.items(), *((name.replace("_", "-"), value) for name, value in more.items())]


async def post(edge: Edge, body: bytes, **more: str) -> Reply:
    return await edge.send(request_bytes("POST", "/progress/", headers(edge, **more), body))


# --- where it may be led -----------------------------------------------------------------------------------


@pytest.mark.req("R4")
@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("path", ["/latest/meta-data", "/tasks/1", "/health", "/status", "/replay"])
async def test_40_a_request_that_names_a_host_is_refused(
    edge: Edge, upstream: FakeUpstream, host: str, path: str
) -> None:
    before = len(upstream.seen)
    for method in ("GET", "POST"):
        raw = request_bytes(method, f"http://{host}{path}", headers(edge), BODY if method == "POST" else b"")
        reply = await edge.send(raw)
        assert (reply.status, reply.code) == (403, "target_not_allowed")
    assert (await edge.send(request_bytes("CONNECT", f"{host}:80", headers(edge)))).status in {400, 403}
    reply = await edge.send(request_bytes("GET", f"//{host}{path}", headers(edge)))
    assert (reply.status, reply.code) == (403, "target_not_allowed")
    assert [seen for seen in upstream.seen[before:] if "policy" not in seen.target] == []


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254", "http://10.0.0.1", "http://0.0.0.0:1", "http://[fd00::1]", "http://2130706433",
        "http://0x7f.1", "ftp://example.org", "file:///etc/passwd", "unix:/run/x", "http://user:pw@127.0.0.1",
    ],
)  # fmt: skip
async def test_40_it_does_not_start_with_an_upstream_that_it_may_not_have(relay_folder: Path, url: str) -> None:
    with pytest.raises(ConfigError):
        await Edge(relay_folder, url).start()


@pytest.mark.req("R4")
async def test_41_a_name_that_leads_elsewhere_later_is_not_followed_there(
    relay_folder: Path, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = upstream.address.rpartition(":")[2]
    addresses = ["127.0.0.1"]

    async def resolve(_host: str, _port: int) -> list[str]:
        return addresses

    monkeypatch.setattr(edge_upstream, "_resolve", resolve)
    edge = Edge(relay_folder, f"http://hub.example:{port}", settings={"networks": ["127.0.0.0/8"]})
    await edge.start()
    assert (await edge.ask("POST", "/progress/", NOTE)).status == 201
    for elsewhere in (
        "10.1.2.3",
        "169.254.169.254",
        "::1",
        "::ffff:10.0.0.1",
        "93.184.216.34",
    ):  # the last has no TLS
        addresses[:] = ["127.0.0.1", elsewhere]  # one that may be does not make up for one that may not
        await upstream.close()
        await upstream.open()
        before = len(upstream.seen)
        receipt = await edge.queue("POST", "/progress/", NOTE)
        assert len(upstream.seen) == before
        addresses[:] = ["127.0.0.1"]
        await edge.go_online(upstream)
        await edge.until_state(receipt["outbox_id"], "acked")
    assert upstream.seen[-1].get("host") == f"hub.example:{port}"
    await edge.stop()


@pytest.mark.req("R4")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("to", ["http://169.254.169.254/", "file:///etc/passwd", "//10.0.0.1/", "/tasks/"])
async def test_42_a_redirect_is_not_followed(edge: Edge, upstream: FakeUpstream, status: int, to: str) -> None:
    upstream.rule = upstream.reads = lambda seen: say(status, location=to) if seen.target != "/health" else None
    before = len(upstream.seen)
    for method in ("GET", "POST"):
        reply = await edge.ask(method, "/tasks/" if method == "GET" else "/progress/", NOTE)
        assert (reply.status, reply.code) == (502, "redirect_refused")
        assert "location" not in reply.headers
    assert len([seen for seen in upstream.seen[before:] if "policy" not in seen.target]) == 2


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "gopher://x/", "unix:/run/sock", "tasks/1", "*", "ftp://x/"]
)
async def test_43_another_scheme_is_refused(edge: Edge, upstream: FakeUpstream, target: str) -> None:
    before = len(upstream.writes)
    for method in ("GET", "PATCH"):
        reply = await edge.send(request_bytes(method, target, headers(edge), BODY if method == "PATCH" else b""))
        assert reply.status == 400
    assert len(upstream.writes) == before


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "target",
    [
        "/tasks/a%0d%0ab", "/tasks/a%00b", "/tasks/%2e%2e/admin", "/tasks/../admin", "/tasks/%252e%252e/x",
        "/tasks/a\\b", "/tasks/%", "/tasks/a%0Ab?x=1",
    ],
)  # fmt: skip
async def test_44_a_path_that_hides_something_is_refused(edge: Edge, upstream: FakeUpstream, target: str) -> None:
    reply = await edge.send(request_bytes("PATCH", target, headers(edge), BODY))
    assert reply.status == 400
    assert upstream.writes == []


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "line", [b"x-source-agent: a\0b", b"idempotency-key: a\0b", b'if-match: "1"\rx: y', b"idempotency-key: a b\x7f"]
)
async def test_44_a_header_that_holds_a_lines_end_or_a_nul_is_refused(
    edge: Edge, upstream: FakeUpstream, line: bytes
) -> None:
    raw = request_bytes("POST", "/progress/", headers(edge), BODY)
    reply = await edge.send(raw.replace(b"\r\n", b"\r\n" + line + b"\r\n", 1))
    assert reply.status == 400
    assert upstream.writes == []


@pytest.mark.req("R4")
@pytest.mark.parametrize("name", ["a\r\nb", "a\0b", "..", "../admin", "a/b"])
async def test_44_an_id_in_a_body_cannot_leave_its_place(edge: Edge, upstream: FakeUpstream, name: str) -> None:
    await edge.go_offline(upstream)
    bulk = {"tasks": [{"id": name, "status": "x", "expected_status": "y"}]}
    reply = await edge.ask("POST", "/tasks/bulk-status-sync", bulk)
    await edge.go_online(upstream)
    if reply.status == 202:
        await edge.until_state(reply.json["outbox_id"], "dead")
    else:
        assert reply.status in {400, 422}
    assert all("/" not in seen.target.removeprefix("/tasks/") for seen in upstream.writes if seen.method == "PATCH")


@pytest.mark.req("R4", "R6")
@pytest.mark.parametrize("way", ["online", "replayed"])
async def test_45_what_is_not_the_callers_to_say_is_dropped(edge: Edge, upstream: FakeUpstream, way: str) -> None:
    sent = {
        "te": "trailers", "keep-alive": "5", "proxy-connection": "x", "upgrade": "h2c", "trailer": "x",
        "x-forwarded-for": "1.2.3.4", "x-forwarded-host": "evil", "x-forwarded-proto": "https",
        "forwarded": "for=1", "via": "x", "x-real-ip": "1.2.3.4", "x-original-url": "/admin",
        "x-http-method-override": "DELETE",
        "connection": "close, if-match, x-mine", "x-mine": "1", "if-match": '"1"', "set-cookie": "a=b",
        "x-source-agent": "builder", "x-source-evil": "1",
    }  # fmt: skip
    if way == "replayed":
        await edge.go_offline(upstream)
    reply = await edge.ask("POST", "/progress/", NOTE, key="k1", **sent)
    assert reply.status == (201 if way == "online" else 202)
    if way == "replayed":
        await edge.go_online(upstream)
        await edge.until_settled()
    (seen,) = upstream.writes_of("k1")
    assert dict(seen.headers).keys() == {
        "host", "accept-encoding", "connection", "content-type", "content-length", "idempotency-key",
        "authorization", "x-source-agent",
    }  # fmt: skip
    assert seen.get("host") == upstream.address
    assert seen.get("authorization") == f"Bearer {canaries.CREDENTIAL}"


# --- secrets on the disk -------------------------------------------------------------------------------------


@pytest.mark.req("R6")
async def test_46_no_secret_is_found_on_the_disk_whatever_way_it_came(
    edge: Edge, upstream: FakeUpstream, relay_folder: Path, tmp_path: Path
) -> None:
    secret = canaries.TOKEN
    row = upstream.row("/tasks/1")
    expected = {"expected_updated_at": row["updated_at"]}
    leaking = {
        "code": secret, "token": secret, "echo": f"Bearer {canaries.AUTHORIZATION}",
        "current": {"password": secret},
    }  # fmt: skip
    encoded = "".join(f"%{byte:02x}" for byte in secret.encode())
    tries: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", "/progress/", {**NOTE, "details": {"password": canaries.PASSWORD}}, {}),
        ("POST", "/progress/", {**NOTE, "summary": f"it is {secret}"}, {}),
        ("POST", "/progress/", {**NOTE, secret: "x"}, {}),
        ("POST", f"/progress/?api_key={secret}", NOTE, {}),
        ("POST", f"/progress/?x={encoded}", NOTE, {}),
        ("PATCH", f"/tasks/{secret}", {"status": "x", **expected}, {}),
        ("PATCH", f"/tasks/{encoded}", {"status": "x", **expected}, {}),
        ("PATCH", "/tasks/1", {"title": "x"}, {"if_match": f'"{secret}"'}),
        ("POST", "/progress/", NOTE, {"key": secret}),
        ("POST", "/progress/", NOTE, {"x_source_agent": secret, "x_source_repo": canaries.API_KEY}),
        ("POST", "/tasks/bulk-status-sync", {"tasks": [{"id": secret, "status": "x", **expected}]}, {}),
        ("DELETE", f"/tasks/{secret}", None, {}),
        ("GET", f"/tasks/?owner={secret}", None, {}),
        ("GET", f"/tasks/?token={secret}", None, {}),
    ]
    for act in (None, say(200, leaking, location=f"/x?token={secret}", etag=f'"{secret}"'), problem(500, secret)):
        upstream.rule = lambda _, act=act: act
        for method, path, body, more in tries:
            await edge.ask(method, path, body, **more)
    await edge.go_offline(upstream)
    refused = [await edge.ask(method, path, body, **more) for method, path, body, more in tries]
    assert [reply.status for reply in refused] == [*[503] * 8, 400, 202, *[503] * 3, 400]
    assert {reply.json["reason"] for reply in refused[:11] if reply.status == 503} == {"contains_secret"}
    queued = [await edge.queue("PATCH", f"/tasks/{number}", {"title": "x", **expected}) for number in range(7)]
    answers = [
        say(200, leaking, location=f"/x?token={secret}", etag=f'"{secret}"', last_modified=encoded),
        problem(412, secret, current={"password": canaries.PASSWORD, "title": secret}),
        problem(409, "revision_conflict", current={"token": secret}),
        problem(400, secret, **{secret: secret}),
        problem(401, secret),
        problem(503, secret),
        Act(
            applies=False,
            says=Say(200, raw=gzip.compress(secret.encode()), headers=(("content-encoding", "gzip"),)),
        ),
    ]
    upstream.rule = lambda seen: next((answers[n] for n in range(7) if seen.target == f"/tasks/{n}"), None)
    await edge.go_online(upstream)
    for number in (0, 1, 2, 3, 6):
        await edge.until_state(queued[number]["outbox_id"], "acked", "conflict", "dead")
    export = (await edge.operate("GET", "/outbox/export")).body
    (relay_folder / "export.jsonl").write_bytes(export)
    found = canaries.found_in(tmp_path)
    assert found == []
    await edge.stop()
    assert canaries.found_in(tmp_path) == []


def test_46_the_search_for_canaries_finds_them_in_every_form(tmp_path: Path) -> None:
    for number, form in enumerate(canaries.forms(canaries.TOKEN)):
        folder = tmp_path / str(number) / "below"
        folder.mkdir(parents=True)
        (folder / "file.db-wal").write_bytes(b"\0before " + form + b" behind")
        assert canaries.found_in(tmp_path / str(number)) == [f"file.db-wal holds {canaries.TOKEN}"]
    assert canaries.found_in(tmp_path / "0", ("something else",)) == []


# --- keys ----------------------------------------------------------------------------------------------------


@pytest.mark.req("R4")
async def test_47_a_key_that_stands_for_another_request_is_refused(edge: Edge, upstream: FakeUpstream) -> None:
    await edge.go_offline(upstream)
    await edge.queue("POST", "/progress/", NOTE, key="k1")
    reply = await edge.ask("POST", "/progress/", {**NOTE, "summary": "x"}, key="k1")
    assert (reply.status, reply.code, reply.json["retry"]) == (409, "key_reused", "no")
    assert (await edge.ask("POST", "/progress/", NOTE, key="k" * 256)).status == 400
    assert (await edge.ask("POST", "/progress/", NOTE, key="")).status == 400


@pytest.mark.req("R4")
async def test_48_the_same_key_of_another_caller_is_another_key(tmp_path: Path, relay_folder: Path) -> None:
    address = own_address()
    async with running_hub(tmp_path, address):
        edge = Edge(relay_folder, f"http://{address}")
        await edge.start()
        assert (await edge.ask("POST", "/progress/", NOTE, key="k1")).status == 201
        host, _, port = address.rpartition(":")
        for caller in ("one", "two"):
            sent = [("host", address), ("connection", "close"), ("content-type", "application/json")]
            sent += [("authorization", f"Bearer {caller}"), ("idempotency-key", "k1")]
            body = json.dumps({**NOTE, "summary": caller}).encode()
            stream = await asyncio.open_connection(host, int(port))
            stream[1].write(request_bytes("POST", "/progress/", sent, body))
            assert (await stream[0].readline()).split()[1] == b"201"
            stream[1].close()
        replayed = await edge.ask("POST", "/progress/", NOTE, key="k1")
        assert (replayed.status, replayed.headers["idempotent-replayed"]) == (201, "true")
        assert len((await edge.ask("GET", "/progress/")).json["items"]) == 3
        await edge.stop()


# --- bodies --------------------------------------------------------------------------------------------------


@pytest.mark.req("R4")
async def test_49_a_body_that_is_too_large_is_refused_before_it_is_read(edge: Edge, upstream: FakeUpstream) -> None:
    size = 10 * 1024 * 1024 + 1
    raw = request_bytes("POST", "/progress/", headers(edge)).replace(
        b"content-length: 0", b"content-length: %d" % size
    )
    reply = await edge.send(raw)  # not a byte of the body was sent
    assert (reply.status, reply.code) == (413, "payload_too_large")
    chunked = request_bytes("POST", "/progress/", headers(edge, transfer_encoding="chunked")).replace(
        b"content-length: 0\r\n", b""
    )
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    reply = await edge.send(chunked + piece * 11 + b"0\r\n\r\n")
    assert reply.status == 413
    assert upstream.writes == []


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"[" * 100_000, 400, "too_deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, "too_deep"),
        (b'{"agent": %s}' % (b"9" * 5_000), 400, "invalid_request"),
        (b'{"agent": "a", "agent": "b"}', 400, "invalid_request"),
        (b'{"details": {"x": 1, "\\u0078": 2}}', 400, "invalid_request"),
        (b'{"agent": NaN}', 422, "unstorable"),
        (b'{"agent": -Infinity}', 422, "unstorable"),
        (b'{"agent": 1e400}', 422, "unstorable"),
        (b'{"agent": "a\\u0000b"}', 422, "unstorable"),
        (b'{"a\\u0000": 1}', 422, "unstorable"),
        (b'{"agent": "\\ud800"}', 422, "unstorable"),
        (b'{"agent": "\xff"}', 400, "invalid_request"),
        (b"{", 400, "invalid_request"),
        (b"{" + b",".join(b'"k%d":1' % n for n in range(600_000)) + b"}", 400, "invalid_request"),
    ],
    ids=["50 [", "50 {", "51", "52", "52 escaped", "53 NaN", "53 Infinity", "53 1e400", "53 NUL", "53 NUL name",
         "53 surrogate", "53 utf-8", "no JSON", "54 many keys"],
)  # fmt: skip
@pytest.mark.parametrize("way", ["online", "offline"])
async def test_50_to_54_json_that_cannot_be_kept_goes_nowhere(  # noqa: PLR0913, PLR0917  each a case
    edge: Edge, upstream: FakeUpstream, body: bytes, status: int, code: str, way: str
) -> None:
    if way == "offline":
        await edge.go_offline(upstream)
    reply = await post(edge, body)
    assert (reply.status, reply.code) == (status, code)
    assert len(reply.body) < 2_000
    assert upstream.writes == []
    assert (await edge.status())["pending"] == 0


@pytest.mark.req("R4")
async def test_55_a_gzip_bomb_is_not_unpacked(edge: Edge, upstream: FakeUpstream) -> None:
    packing = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packing.compress(b" " * (1 << 20)) for _ in range(64)) + packing.flush()
    assert len(bomb) < 100_000
    reply = await post(edge, bomb, content_encoding="gzip")
    assert (reply.status, reply.code) == (413, "payload_too_large")
    assert (await post(edge, gzip.compress(BODY), content_encoding="gzip")).status == 201
    assert upstream.writes[-1].body == BODY
    assert (await post(edge, BODY, content_encoding="br")).status == 415
    upstream.rule = lambda _: Act(applies=False, says=Say(200, raw=bomb, headers=(("content-encoding", "gzip"),)))
    assert len((await post(edge, BODY)).body) == len(bomb)


@pytest.mark.req("R4")
async def test_55_an_answer_that_is_too_large_is_not_passed_on(relay_folder: Path, upstream: FakeUpstream) -> None:
    edge = Edge(relay_folder, upstream.url)
    await edge.start()
    endless = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"
    chunked = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + (b"100000\r\n" + b"x" * 0x100000 + b"\r\n") * 17
    )
    for answer in (endless, chunked):
        upstream.rule = lambda _, answer=answer: Act(applies=False, says=answer)
        reply = await edge.ask("POST", "/progress/", NOTE)
        assert (reply.status, reply.code) == (502, "answer_too_large")
    await edge.stop()


# --- replay --------------------------------------------------------------------------------------------------


@pytest.mark.req("R8")
async def test_57_a_stale_write_that_is_replayed_is_kept_as_a_conflict(edge: Edge, upstream: FakeUpstream) -> None:
    upstream.row("/tasks/1", title="old")
    await edge.go_offline(upstream)
    receipt = await edge.queue("PATCH", "/tasks/1", {"title": "stale"}, if_match='"1"')
    upstream.row("/tasks/1", title="newer")
    await edge.go_online(upstream)
    await edge.until_state(receipt["outbox_id"], "conflict")
    assert upstream.rows["/tasks/1"]["title"] == "newer"
    listed = (await edge.operate("GET", "/outbox?state=conflict")).json["items"]
    assert [one["id"] for one in listed] == [receipt["outbox_id"]]
    await edge.restart()
    assert await edge.state(receipt["outbox_id"]) == "conflict"
    assert upstream.rows["/tasks/1"]["title"] == "newer"


@pytest.mark.req("R4", "R7")
async def test_58_answers_may_be_lost_as_often_as_they_like_and_each_write_has_one_effect(
    edge: Edge, upstream: FakeUpstream, effort: int
) -> None:
    upstream.row("/tasks/1")
    loses = iter([True, False, True, True, False] * 1_000)
    upstream.rule = lambda _: Act(loses=True) if next(loses) else None
    keys = []
    for number in range(20 * effort):
        body = {"title": str(number), "expected_status": "todo"}
        for path, what in (("/progress/", {**NOTE, "summary": str(number)}), ("/tasks/1", body)):
            method = "POST" if path == "/progress/" else "PATCH"
            keys.append(f"{path}{number}")
            reply = await edge.ask(method, path, what, key=keys[-1])
            assert reply.status in {200, 201, 202}, reply.body
    upstream.rule = lambda _: None
    await edge.ask("POST", "/replay")
    status = await edge.until_settled()
    assert (status["conflicts"], status["dead"]) == (0, 0)
    assert {key: upstream.applied[key] for key in keys} == dict.fromkeys(keys, 1)
    titles = [int(body["title"]) for path, body in upstream.log if path == "PATCH /tasks/1"]
    assert titles == [*range(20 * effort)]


@pytest.mark.req("R4")
async def test_58_with_a_real_hub_a_lost_answer_leaves_one_row(tmp_path: Path, relay_folder: Path) -> None:
    upstream = FakeUpstream(behind=own_address())
    assert upstream.behind is not None
    await upstream.open()
    async with running_hub(tmp_path, upstream.behind):
        edge = Edge(relay_folder, upstream.url)
        await edge.start()
        for number in range(5):
            await edge.until_heard(Recovered, number)  # whose report would be lost instead
            upstream.acts.append(LOSE)
            body = json.dumps({**NOTE, "summary": str(number)}).encode() + b"\n"
            receipt = await edge.queue("POST", "/progress/", body)
            await edge.go_online(upstream)
            await edge.until_state(receipt["outbox_id"], "acked")
        rows = (await edge.ask("GET", "/progress/?limit=200")).json["items"]
        assert sorted(row["summary"] for row in rows if row["agent"] == "builder") == list("01234")
        await edge.stop()
    await upstream.close()


# --- a page in the user's browser ------------------------------------------------------------------------------


@pytest.mark.req("R4")
async def test_a_web_page_gets_nowhere(edge: Edge, upstream: FakeUpstream) -> None:
    for origin in ("https://evil.example", "null", f"http://{edge.address}.evil.example"):
        for method, path in (("POST", "/progress/"), ("GET", "/tasks/"), ("POST", "/replay"), ("GET", "/status")):
            reply = await edge.ask(method, path, NOTE if method == "POST" else None, origin=origin)
            assert (reply.status, reply.code) == (403, "bad_origin")
            assert not any(name.startswith("access-control-") for name in reply.headers)
    for host in ("evil.example", f"{edge.address}.evil.example", "127.0.0.1", "localhost."):
        reply = await edge.ask("POST", "/progress/", NOTE, host=host)
        assert (reply.status, reply.code) == (403, "bad_host")
    for form in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        reply = await edge.ask("POST", "/progress/", NOTE, content_type=form)
        assert (reply.status, reply.code) == (415, "json_only")
    reply = await edge.ask(
        "OPTIONS", "/progress/", access_control_request_method="POST", origin="https://evil.example"
    )
    assert reply.status == 403
    assert (await edge.ask("OPTIONS", "/progress/")).status in {403, 405}
    assert (await edge.ask("GET", "/tasks/?token=abc")).status == 400
    raw = request_bytes("POST", "/progress/", [*headers(edge), ("host", "evil.example")], BODY)
    assert (await edge.send(raw)).status in {400, 403}
    assert upstream.writes == []


@pytest.mark.req("R4")
async def test_what_is_its_operators_is_not_on_the_port(edge: Edge, upstream: FakeUpstream) -> None:
    for method, path in (("GET", "/outbox"), ("GET", "/outbox/export"), ("POST", "/outbox/import")):
        reply = await edge.ask(method, path, {"lines": []} if method == "POST" else None)
        assert reply.status == 404
    assert [seen.target for seen in upstream.seen if seen.method == "GET"] == ["/.well-known/idempotency-policy"]
