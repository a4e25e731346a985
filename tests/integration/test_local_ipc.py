"""Attacks on the local interface, each against a real server on real sockets, and the answer that it gets."""

import asyncio
import os
import socket
import stat
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from claudemesh.asgi.events import ConnectionRefused, RequestFailed, ServerWarned, TokenExposed
from claudemesh.asgi.policy import RateLimit
from claudemesh.asgi.server import ServerLimits
from claudemesh.asgi.sockets import bind_tcp, bind_unix
from claudemesh.asgi.tokens import TokenFile
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.logs import JsonLog
from claudemesh.runtime.observe import Observer
from tests.integration.local_ipc import Answer, Service, on_uvloop, serving

QUICK = ServerLimits(receive_timeout_s=0.3)


async def ask_tcp(service: Service, *args: object, **kwargs: object) -> Answer:
    async with await service.by_tcp() as client:
        return await client.ask(*args, **kwargs)


# --- 1 to 8: by TCP --------------------------------------------------------------------------------


@pytest.mark.req("D15")
@on_uvloop
async def test_the_token_opens_every_address_and_the_socket_needs_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        answer = await ask_tcp(service, "POST", "/v1/echo", {"text": "hi"}, service.bearer)
        assert (answer.status, answer.json["text"]) == (202, "hi")
        async with await service.by_socket() as client:
            assert (await client.ask("POST", "/v1/echo", {"text": "hi"})).status == 202


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_1_and_2_no_bearer_or_a_wrong_one_is_a_401(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        assert (await ask_tcp(service, "GET", "/v1/page")).refusal == (401, "missing_token")
        wrong = "A" * len(service.token)
        answer = await ask_tcp(service, "GET", "/v1/page", None, {"Authorization": f"Bearer {wrong}"})
        assert answer.refusal == (401, "bad_token")
        assert wrong not in answer.body.decode()
        # An address that does not exist is not told apart by those who may not know.
        assert (await ask_tcp(service, "GET", "/v1/nowhere")).refusal == (401, "missing_token")
        assert (await ask_tcp(service, "GET", "/v1/health")).status == 200  # said to be public


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_3_a_token_in_the_query_is_a_400_and_a_security_event(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        for query, is_ours in (("token=x", False), (f"x={service.token}", True)):
            service.events.clear()
            answer = await ask_tcp(service, "GET", f"/v1/page?{query}", None, service.bearer)
            assert answer.refusal == (400, "token_in_url")
            (exposed,) = (event for event in service.events if isinstance(event, TokenExposed))
            assert exposed.is_ours == is_ours


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_4_and_5_a_host_that_is_not_ours_is_a_403(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        port = service.port
        hosts = ["evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"localhost.:{port}"]
        for host in [*hosts, "127.0.0.1", "localhost", f"127.0.0.1:{port + 1}", ""]:
            answer = await ask_tcp(service, "GET", "/v1/page", None, {**service.bearer, "Host": host})
            assert answer.refusal == (403, "bad_host"), host
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
            answer = await ask_tcp(service, "GET", "/v1/page", None, {**service.bearer, "Host": host})
            assert answer.status == 200, host


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_4_a_host_in_the_request_line_does_not_stand_in_for_the_header(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        target = f"http://127.0.0.1:{service.port}/v1/page"
        answer = await ask_tcp(service, "GET", target, None, {**service.bearer, "Host": "evil.example"})
        assert answer.refusal == (403, "bad_host")


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_6_another_origin_is_a_403_and_our_own_is_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        for origin in ("https://evil", "null", f"https://127.0.0.1:{service.port}", "http://localhost"):
            answer = await ask_tcp(service, "GET", "/v1/page", None, {**service.bearer, "Origin": origin})
            assert answer.refusal == (403, "bad_origin"), origin
        own = f"http://127.0.0.1:{service.port}"
        assert (await ask_tcp(service, "GET", "/v1/page", None, {**service.bearer, "Origin": own})).status == 200


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_7_a_simple_post_of_a_form_is_a_415(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            for path in ("/v1/echo", "/v1/fail"):
                headers = {**service.bearer, "Content-Type": kind}
                assert (await ask_tcp(service, "POST", path, {"text": "x"}, headers)).refusal == (415, "json_only")


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_8_a_preflight_is_a_403_without_cors_headers(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        for origin in ("https://evil.example", f"http://localhost:{service.port}"):
            headers = {**service.bearer, "Origin": origin, "Access-Control-Request-Method": "POST"}
            answer = await ask_tcp(service, "OPTIONS", "/v1/echo", None, headers)
            assert answer.status == 403
            assert not [name for name in answer.headers if name.startswith("access-control")]


# --- 9: what no good client sends ------------------------------------------------------------------

TWO_LENGTHS = b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 30\r\n\r\n{}"
LENGTH_AND_CHUNKS = (
    b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/fail HTTP/1.1\r\nHost: localhost\r\n\r\n"
)


@pytest.mark.req("D15")
@pytest.mark.parametrize(
    "raw",
    [
        TWO_LENGTHS,
        TWO_LENGTHS.replace(b"30", b"2"),
        LENGTH_AND_CHUNKS,
        b"GET /v1/page HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1_0\r\n\r\n",
        b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length : 2\r\n\r\n{}",
        b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"GET /v1/page HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
        b"GET /v1/page HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET /v1/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
@on_uvloop
async def test_attack_9_a_request_that_could_be_read_in_two_ways_is_a_400(tmp_path: Path, raw: bytes) -> None:
    async with serving(tmp_path) as service:
        async with await service.by_socket() as client:
            await client.send(raw)
            assert (await client.answer()).status == 400
            assert not [event for event in service.events if isinstance(event, RequestFailed)]
        async with await service.by_socket() as client:
            assert (await client.ask("GET", "/v1/page")).status == 200


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_9_two_hosts_are_a_400_by_tcp_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        own = f"127.0.0.1:{service.port}"
        pairs = [("Host", own), ("Host", own), *service.bearer.items()]
        assert (await ask_tcp(service, "GET", "/v1/page", None, pairs)).refusal == (400, "invalid_request")


# --- 10 to 13, 15: what is refused before there is a server ----------------------------------------


@pytest.mark.req("D15")
def test_attack_10_an_address_for_everybody_is_refused_without_a_flag() -> None:
    with pytest.raises(ConfigError):
        bind_tcp("0.0.0.0", 0)  # noqa: S104 - that is the attack


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_11_another_user_is_cut_off_before_a_word_is_read(tmp_path: Path) -> None:
    async with serving(tmp_path, peer_uid=os.geteuid() + 1) as service:
        async with await service.by_socket() as client:
            client.writer.write(b"GET /v1/page HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await client.ended() == b""
        assert service.events == [ConnectionRefused("other_user")]


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_11_by_tcp_there_is_a_token_instead_of_a_user(tmp_path: Path) -> None:
    async with serving(tmp_path, peer_uid=os.geteuid() + 1) as service:
        assert (await ask_tcp(service, "GET", "/v1/page", None, service.bearer)).status == 200


@pytest.mark.req("D15")
@on_uvloop
async def test_attack_12_a_served_socket_is_0600_in_a_directory_of_0700(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with serving(tmp_path) as service:
            modes = [stat.S_IMODE(path.stat().st_mode) for path in (service.path, service.path.parent)]
            token = stat.S_IMODE(service.path.with_name("local_token").stat().st_mode)
    finally:
        os.umask(before)
    assert (modes, token) == ([0o600, 0o700], 0o600)


@pytest.mark.req("D15")
def test_attack_13_a_link_at_the_place_of_the_socket_is_refused_and_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    precious, sock = tmp_path / "precious", tmp_path / "sock"
    precious.write_text("kept")
    sock.symlink_to(precious)
    with pytest.raises(ConfigError, match="sock is in the way"):
        bind_unix(sock)
    assert (sock.is_symlink(), precious.read_text()) == (True, "kept")


@pytest.mark.req("D15")
@pytest.mark.parametrize("attack", ["0644", "link", "foreign"])
def test_attack_15_a_token_file_that_is_not_private_refuses_to_start(
    tmp_path: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "local_token", tmp_path / "link"
    TokenFile(path, SystemClock(), Observer())
    if attack == "0644":
        path.chmod(0o644)
    elif attack == "foreign":
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    link.symlink_to(path)
    with pytest.raises(ConfigError):
        TokenFile(link if attack == "link" else path, SystemClock(), Observer())


# --- D13: limits -----------------------------------------------------------------------------------


@pytest.mark.req("D13")
@on_uvloop
async def test_a_body_over_the_limit_is_a_413_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, await service.by_socket() as client:
        assert (await client.ask("POST", "/v1/echo", {"text": "x" * 70_000})).refusal == (413, "payload_too_large")
        assert (await client.ask("POST", "/v1/echo", {"text": "x" * 60_000})).status == 202


@pytest.mark.req("D13")
@on_uvloop
async def test_a_body_over_the_limit_in_chunks_is_a_413_while_it_is_sent(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, await service.by_socket() as client:
        await client.send(b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        await client.send(b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            await client.send(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        assert (await client.answer()).refusal == (413, "payload_too_large")


@pytest.mark.req("D13")
@pytest.mark.parametrize("part", ["head", "body", "trailers"])
@on_uvloop
async def test_a_request_without_end_is_cut_off(tmp_path: Path, part: str) -> None:
    limits = ServerLimits(request_bytes_max=1 << 20)
    async with serving(tmp_path, limits=limits) as service:
        async with await service.by_socket() as client:
            await client.send(b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            if part != "head":
                await client.send(b"Transfer-Encoding: chunked\r\n\r\n")
            if part == "trailers":
                await client.send(b"2\r\n{}\r\n0\r\n")
            piece = b"8000\r\n" + b"x" * 0x8000 + b"\r\n" if part == "body" else b"X: " + b"x" * 0x8000 + b"\r\n"
            with suppress(ConnectionError):
                while not client.reader.at_eof():
                    await client.send(piece)
        assert ConnectionRefused("too_large") in service.events
        async with await service.by_socket() as client:
            assert (await client.ask("GET", "/v1/page")).status == 200


@pytest.mark.req("D13")
@on_uvloop
async def test_one_request_more_than_fit_is_a_429_on_both_listeners(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, in_flight=2) as service,
        await service.by_socket() as one,
        await service.by_socket() as client,
        asyncio.TaskGroup() as tasks,
    ):
        held = [
            tasks.create_task(one.ask("GET", "/v1/held")),
            tasks.create_task(ask_tcp(service, "GET", "/v1/held", None, service.bearer)),
        ]
        for _ in held:
            await service.toy.held.acquire()
        answer = await client.ask("GET", "/v1/page")
        assert (answer.refusal, answer.headers["retry-after"]) == ((429, "daemon_busy"), "1")
        busy = await ask_tcp(service, "GET", "/v1/page", None, service.bearer)
        assert busy.refusal == (429, "daemon_busy")
        service.toy.gate.set()
        assert [(await answer).status for answer in held] == [200, 200]
        assert (await client.ask("GET", "/v1/page")).status == 200


@pytest.mark.req("D13")
@on_uvloop
async def test_a_token_over_its_rate_is_a_429_and_the_socket_is_not_bound_by_it(tmp_path: Path) -> None:
    async with serving(tmp_path, rate=RateLimit(per_s=1, burst=2)) as service:
        answers = [await ask_tcp(service, "GET", "/v1/page", None, service.bearer) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert answers[2].refusal == (429, "rate_limited")
        async with await service.by_socket() as client:
            assert [(await client.ask("GET", "/v1/page")).status for _ in range(10)] == [200] * 10


@pytest.mark.req("D13")
@on_uvloop
async def test_one_stream_more_than_fit_is_a_429_and_its_place_is_free_when_one_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, in_flight=1) as service:
        clients = [await service.by_socket() for _ in range(3)]
        for client in clients[:2]:
            answer = await client.ask("GET", "/v1/events")
            assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
            assert b"data: first\n\n" in await client.reader.readuntil(b"first\n\n")
        assert (await clients[2].ask("GET", "/v1/events")).refusal == (429, "too_many_streams")
        await clients[0].close()
        await service.toy.stream_closed.wait()
        assert (await clients[2].ask("GET", "/v1/events")).status == 200
        for client in clients:
            await client.close()


# --- 83: those who take their time -----------------------------------------------------------------


@pytest.mark.req("D13")
@on_uvloop
async def test_attack_83_hundreds_of_slow_clients_get_a_408_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    starts = [
        b"",
        b"\r\n",
        b"GET /v1/pa",
        b"GET /v1/page HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
    ]
    async with serving(tmp_path, limits=QUICK, in_flight=100) as service, AsyncExitStack() as clients:
        slow = [
            await clients.enter_async_context(await service.by_socket(starts[place % len(starts)]))
            for place in range(300)
        ]
        async with await service.by_socket() as client:
            for _ in range(100):
                assert (await client.ask("POST", "/v1/echo", {"text": "x"})).status == 202
        answers = [await client.answer() for client in slow]
        assert {answer.refusal for answer in answers} == {(408, "request_timeout")}
        assert {await client.ended() for client in slow} == {b""}


@pytest.mark.req("D13")
@on_uvloop
async def test_attack_83_a_byte_now_and_then_does_not_keep_a_connection(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with serving(tmp_path, limits=QUICK) as service, asyncio.TaskGroup() as tasks:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(0)
            await loop.sock_connect(client, os.fspath(service.path))

            async def drip() -> None:
                with suppress(OSError):
                    for byte in b"GET /v1/page HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 10_000:
                        await loop.sock_sendall(client, bytes([byte]))
                        await asyncio.sleep(0.02)  # the attack's own pace

            dripping = tasks.create_task(drip())
            assert (await loop.sock_recv(client, 1 << 16)).startswith(b"HTTP/1.1 408 ")
            dripping.cancel()


@pytest.mark.req("D13")
@on_uvloop
async def test_attack_83_one_that_was_refused_by_its_head_does_not_stay_for_ever(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=QUICK) as service, await service.by_socket() as client:
        await client.send(b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        await client.send(b"Content-Length: 100000\r\n\r\n")
        assert (await client.answer()).refusal == (413, "payload_too_large")
        await client.send(b"x" * 100_000)
        assert (await client.answer()).refusal == (408, "request_timeout")
        assert await client.ended() == b""


@on_uvloop
async def test_a_request_that_takes_long_to_answer_is_not_a_slow_client(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, limits=QUICK) as service,
        await service.by_socket() as patient,
        asyncio.TaskGroup() as tasks,
    ):
        held = tasks.create_task(patient.ask("GET", "/v1/held"))
        await service.toy.held.acquire()
        async with await service.by_socket() as slow:
            assert (await slow.answer()).status == 408  # so the time is up for those who send nothing
        service.toy.gate.set()
        assert (await held).status == 200


@on_uvloop
async def test_a_client_that_does_not_read_its_answer_is_cut_off(tmp_path: Path) -> None:
    limits = ServerLimits(receive_timeout_s=0.3, send_stall_s=0.3)
    async with serving(tmp_path, limits=limits) as service:
        refused = asyncio.Event()
        service.observer.subscribe(ConnectionRefused, lambda _: refused.set())
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.fspath(service.path))
            client.sendall(b"GET /v1/large HTTP/1.1\r\nHost: x\r\n\r\n")
            await refused.wait()
        assert ConnectionRefused("slow_reader") in service.events


@pytest.mark.req("D13")
@on_uvloop
async def test_more_connections_than_fit_are_turned_away_until_one_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=ServerLimits(connections_max=3)) as service:
        clients = [await service.by_socket() for _ in range(3)]
        for client in clients:
            assert (await client.ask("GET", "/v1/page")).status == 200
        async with await service.by_socket() as refused:
            assert (await refused.answer()).refusal == (429, "rate_limited")
            assert await refused.ended() == b""
        assert (await clients[0].ask("GET", "/v1/page")).status == 200
        for client in clients:
            await client.close()


# --- what is told ----------------------------------------------------------------------------------


@pytest.mark.req("F7")
@on_uvloop
async def test_an_unexpected_error_tells_the_caller_nothing_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, await service.by_socket() as client:
        answer = await client.ask("POST", "/v1/fail")
        assert answer.refusal == (500, "internal_error")
        assert b"secret" not in answer.body
        assert (await client.ask("GET", "/v1/page")).status == 200
        (failed,) = (event for event in service.events if isinstance(event, RequestFailed))
        assert (failed.path, failed.error) == ("/v1/fail", "RuntimeError")


@pytest.mark.req("D15")
@on_uvloop
async def test_tokens_never_reach_a_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "daemon.log"
    async with serving(tmp_path) as service:
        log = JsonLog(SystemClock(), path, stderr=True, level="debug")
        log.attach(service.observer)
        token, bearer = service.token, service.bearer
        await ask_tcp(service, "GET", "/v1/page", None, bearer)
        await ask_tcp(service, "GET", f"/v1/page?token={token}", None, bearer)
        await ask_tcp(service, "GET", f"/v1/{token}", None, bearer)
        await ask_tcp(service, "POST", "/v1/fail", {"token": token}, bearer)
        await ask_tcp(service, "GET", "/v1/page", None, {"Authorization": f"Basic {token}"})
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        await ask_tcp(service, "GET", f"/v1/ws?token={token}", None, {**bearer, **upgrade})
        async with await service.by_tcp() as client:
            await client.send(f"GET /{token} nonsense\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            await client.ended()
        new = service.tokens.rotate()
        log.close()
    written = path.read_text() + "".join(capfd.readouterr())
    assert "http.token_exposed" in written
    assert "http.request_failed" in written
    assert token not in written
    assert new not in written
    assert any(isinstance(event, ServerWarned) for event in service.events)
