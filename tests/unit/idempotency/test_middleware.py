"""What becomes of a request with a key, and that nothing becomes of any other."""

import asyncio
from collections.abc import Callable

import pytest

from claudemesh.asgi.messages import ANSWER, Receive, Scope, Send
from claudemesh.idempotency import MARK
from claudemesh.idempotency.events import KeysSwept, WriteReplayed
from claudemesh.kernel.errors import ConfigError
from claudemesh.kernel.idempotency import MarkState
from tests.unit.asgi.calling import Answer, ask, scope_of
from tests.unit.idempotency.stage import LEASE_MS, Client, Stage, answering

pytestmark = pytest.mark.req("R1")

Staged = Callable[..., Stage]

REPLAYED = "idempotent-replayed"
AWS = "AKIA" + "Q3EGRIWC7XTL5MZN"


def tasks_of(name: str) -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == name]


async def test_the_same_request_again_gets_the_same_answer_and_the_app_does_not_run(staged: Staged) -> None:
    stage = staged(answering(201, b'{"id":"t1"}', (b"etag", b'"1"'), (b"location", b"/tasks/t1")))
    first, second, third = [await stage.post() for _ in range(3)]
    assert stage.runs == 1
    assert (first.status, first.body) == (second.status, second.body) == (third.status, third.body)
    assert REPLAYED not in first.headers
    assert second.headers == {
        "content-type": "application/json",
        "etag": '"1"',
        "location": "/tasks/t1",
        REPLAYED: "true",
        "content-length": "11",
    }
    assert [event for event in stage.events if isinstance(event, WriteReplayed)] == [WriteReplayed(201)] * 2


@pytest.mark.parametrize(
    "other",
    [{"body": b"[]"}, {"target": "/tasks/?x=1"}, {"target": "/plans/"}, {"method": "PUT"}, {"body": [b"{", b" }"]}],
)
async def test_another_request_under_the_same_key_is_refused(staged: Staged, other: dict[str, object]) -> None:
    stage = staged()
    await stage.post()
    refused = await stage.post(**other)
    assert refused.refusal == (409, "key_reused")
    assert refused.json["conflict"] == "settled_fingerprint_mismatch"
    assert stage.runs == 1


async def test_while_the_write_is_under_way_a_retry_is_told_when_to_ask_again(staged: Staged) -> None:
    may_answer, runs = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        runs.set()
        await may_answer.wait()
        await answering(201, b"1")(scope, receive, send)

    stage = staged(app)
    client = Client(stage.app)
    await runs.wait()
    busy = await stage.post()
    assert busy.refusal == (409, "key_in_progress")
    assert busy.headers["retry-after"] == "1"
    assert (await stage.post(b"[]")).refusal == (409, "key_reused")
    may_answer.set()
    await client.done()
    assert (await stage.post()).headers[REPLAYED] == "true"
    assert stage.runs == 1


async def test_quoted_or_bare_it_is_the_same_key(staged: Staged) -> None:
    stage = staged()
    await stage.post(key='"a-key"')
    assert (await stage.post(key="a-key")).headers[REPLAYED] == "true"


@pytest.mark.parametrize("key", ["", "two words", '"open', "x" * 256, "k\xe9y", AWS])
async def test_what_is_no_key_or_looks_like_a_credential_is_refused(staged: Staged, key: str) -> None:
    stage = staged()
    assert (await stage.post(key=key)).refusal == (400, "bad_idempotency_key")
    assert stage.runs == 0
    assert stage.store.calls == []


async def test_a_key_that_is_nothing_but_random_is_a_good_key(staged: Staged) -> None:
    assert (await staged().post(key="PsRY_PIMQSwvZ5zL3ktZK_MyLmW7WEMMW445Ijm41p4")).status == 201


async def test_two_keys_are_none(staged: Staged) -> None:
    assert (await staged().post(headers=[("Idempotency-Key", "other")])).refusal == (400, "bad_idempotency_key")


async def test_where_a_key_is_required_a_write_without_one_is_refused_and_a_read_is_not(staged: Staged) -> None:
    stage = staged(required=True)
    assert (await stage.post(key=None)).refusal == (400, "bad_idempotency_key")
    assert (await stage.post(key=None, method="GET")).status == 201
    assert stage.runs == 1


# --- what passes through -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "method", "keyed"),
    [("http", "POST", False), ("http", "GET", True), ("http", "OPTIONS", True), ("websocket", "GET", True)],
)
async def test_what_is_no_write_with_a_key_reaches_the_app_untouched(
    kind: str, method: str, *, keyed: bool
) -> None:
    seen: list[tuple[object, ...]] = []

    async def app(*exchange: object) -> None:
        seen.append(exchange)

    stage = Stage(app)
    scope = scope_of(method, "/x", {"Idempotency-Key": "k"} if keyed else {}, b"") | {"type": kind}
    before = dict(scope)

    async def receive() -> dict[str, object]:
        return {}

    async def send(_message: object) -> None: ...

    await stage.app(scope, receive, send)  # type: ignore[arg-type]
    assert [[id(part) for part in exchange] for exchange in seen] == [[id(scope), id(receive), id(send)]]
    assert scope == before
    assert stage.store.calls == []
    stage.close()


async def test_which_requests_are_writes_is_for_the_app_to_say(staged: Staged) -> None:
    stage = staged(applies=lambda method, path: method == "POST" and path.startswith("/tasks"))
    assert [(await stage.post(target="/x")).status for _ in range(2)] == [201, 201]
    assert stage.runs == 2
    assert MARK not in stage.scopes[0]
    await stage.post()
    await stage.post()
    assert stage.runs == 3


async def test_the_app_is_handed_its_mark_and_no_way_around_it(staged: Staged) -> None:
    stage = staged()
    scope = scope_of("POST", "/", {"Idempotency-Key": '"k"', "Accept-Encoding": "gzip", "Accept": "*/*"}, b"")
    scope |= {ANSWER: lambda *_: True, "extensions": {"http.response.pathsend": {}, "tls": {}}}
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await stage.app(scope, receive, send)  # type: ignore[arg-type]
    (seen,) = stage.scopes
    assert seen[MARK].key == "k"
    assert ANSWER not in seen
    assert seen["extensions"] == {"tls": {}}
    assert (b"accept", b"*/*") in seen["headers"]
    assert not any(name == b"accept-encoding" for name, _ in seen["headers"])
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


# --- bodies ------------------------------------------------------------------------------------------


async def test_a_body_that_comes_in_pieces_is_one_body(staged: Staged) -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(await receive())
        await answering(200)(scope, receive, send)

    stage = staged(app)
    await stage.post([b"one ", b"two ", b"three"])
    assert seen == [{"type": "http.request", "body": b"one two three", "more_body": False}]
    assert (await stage.post(b"one two three")).headers[REPLAYED] == "true"


@pytest.mark.parametrize("body", [b"x" * 101, [b"x" * 60, b"x" * 60, b"never read"]])
async def test_a_body_above_the_limit_is_refused_before_anything_begins(
    staged: Staged, body: bytes | list[bytes]
) -> None:
    stage = staged(body_bytes_max=100)
    assert (await stage.post(body)).refusal == (413, "payload_too_large")
    assert (stage.runs, stage.store.calls) == (0, [])
    assert (await stage.post(b"x" * 100)).status == 201


async def test_a_body_that_is_too_large_by_its_header_is_not_even_read(staged: Staged) -> None:
    stage = staged(body_bytes_max=100)

    async def receive() -> dict[str, object]:
        raise AssertionError

    answer = Answer()

    async def send(message: dict[str, object]) -> None:
        answer.sent.append(message)

    scope = scope_of("POST", "/", {"Idempotency-Key": "k"}, b"x" * 101)
    await stage.app(scope, receive, send)  # type: ignore[arg-type]
    assert answer.status == 413


async def test_a_client_that_goes_before_its_body_was_there_has_begun_nothing(staged: Staged) -> None:
    stage = staged()
    messages = [{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, object]:
        return messages.pop(0)

    async def send(_message: object) -> None:
        raise AssertionError

    await stage.app(scope_of("POST", "/", {"Idempotency-Key": "k"}, b""), receive, send)  # type: ignore[arg-type]
    assert (stage.runs, stage.store.calls) == (0, [])


async def test_a_path_that_no_store_can_keep_is_refused(staged: Staged) -> None:
    assert (await staged().post(target="/a\0b")).refusal == (400, "invalid_request")


# --- whose key, and who sent it ----------------------------------------------------------------------


async def test_two_callers_with_the_same_key_do_not_meet(staged: Staged) -> None:
    stage = staged()
    for caller in ("Bearer a", "Bearer b"):
        assert REPLAYED not in (await stage.post(headers=[("Authorization", caller)])).headers
        assert REPLAYED in (await stage.post(headers=[("Authorization", caller)])).headers
    assert REPLAYED not in (await stage.post()).headers
    assert stage.runs == 3


async def test_who_calls_is_for_the_app_to_say_if_it_knows_better(staged: Staged) -> None:
    stage = staged(caller=lambda scope: dict(scope["headers"])[b"x-user"].decode())
    for token in ("Bearer old", "Bearer new"):
        await stage.post(headers=[("Authorization", token), ("X-User", "alice")])
    await stage.post(headers=[("Authorization", "Bearer new"), ("X-User", "bob")])
    assert stage.runs == 2
    assert [row.caller for row in await stage.store.page()] == ["alice", "bob"]


async def test_what_is_stored_of_a_request_names_its_source_and_no_secret(staged: Staged) -> None:
    stage = staged()
    sources = [("X-Source-Host", "build-7"), ("X-Source-Agent", AWS)]
    await stage.post(target=f"/hooks/{AWS}/run?token={AWS}", headers=[("Authorization", f"Bearer {AWS}"), *sources])
    (row,) = await stage.store.page()
    assert (row.method, row.path, row.state, row.status) == (
        "POST",
        "/hooks/[redacted]/run",
        MarkState.SETTLED,
        201,
    )
    assert (row.source_host, row.source_agent) == ("build-7", "")
    assert AWS not in repr(row)
    assert row.expires_at - row.first_seen == 30 * 86_400_000


# --- time --------------------------------------------------------------------------------------------


async def test_keys_are_kept_for_as_long_as_the_policy_says(staged: Staged) -> None:
    stage = staged(expiry_days=40)
    policy = (await ask(stage.app, "GET", "/.well-known/idempotency-policy")).json
    assert policy == {
        "header": "Idempotency-Key",
        "key_format": "1 to 255 visible ASCII characters, quoted or bare",
        "expiry_s": 40 * 86_400,
        "methods": ["POST", "PUT", "PATCH", "DELETE"],
        "in_progress_s": 5,
        "kept": "2xx and settled 4xx",
        "never_kept": [401, 403, 408, 409, 412, 425, 429],
        "conflict_status": 409,
    }
    await stage.post()
    stage.clock.advance(policy["expiry_s"] * 1_000 - 1)
    assert REPLAYED in (await stage.post()).headers
    stage.clock.advance(1)
    assert REPLAYED not in (await stage.post()).headers


async def test_the_policy_is_found_below_the_place_where_an_app_is_mounted(staged: Staged) -> None:
    stage = staged()
    scope = scope_of("GET", "/api/.well-known/idempotency-policy", {}, b"") | {"root_path": "/api"}
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await stage.app(scope, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 200
    assert stage.runs == 0


@pytest.mark.parametrize("step_ms", [-86_400_000_000, 86_400_000_000])
async def test_setting_the_clock_makes_no_key_expire(staged: Staged, step_ms: int) -> None:
    stage = staged()
    await stage.post(key="before")
    stage.clock.wall += step_ms
    await stage.post(key="between")
    stage.clock.wall -= step_ms
    for key in ("before", "between"):
        assert REPLAYED in (await stage.post(key=key)).headers


@pytest.mark.parametrize("settings", [{"expiry_days": 29}, {"expiry_days": 0}])
def test_keys_are_not_kept_for_less_than_thirty_days(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Stage(**settings)


async def test_expired_keys_are_swept_once_an_hour(staged: Staged) -> None:
    stage = staged()
    for number in range(3):
        await stage.post(key=f"k{number}")
    stage.clock.advance(30 * 86_400_000)
    await stage.post(key="new")
    await asyncio.wait(tasks_of("_sweep"))
    assert [row.key for row in await stage.store.page()] == ["new"]
    assert [event for event in stage.events if isinstance(event, KeysSwept)] == [KeysSwept(3)]
    await stage.post(key="newer")
    assert not tasks_of("_sweep")


async def test_a_worker_renews_its_mark_while_the_app_runs_and_not_longer(staged: Staged) -> None:
    may_answer = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await may_answer.wait()
        await answering(201)(scope, receive, send)

    stage = staged(app, lease_ms=30)
    client = Client(stage.app)
    for _ in range(3):
        await stage.store.until("renew")
        stage.store.called.pop("renew")
        stage.clock.advance(20)
        assert (await stage.post()).refusal == (409, "key_in_progress")
    stage.store.broken.add("renew")  # and goes on, should the store not answer for a moment
    await stage.store.until("renew")
    stage.store.called.pop("renew")
    await stage.store.until("renew")
    may_answer.set()
    await client.done()
    assert all(task.cancelling() for task in tasks_of("_renew"))
    assert (await stage.post()).headers[REPLAYED] == "true"


async def test_a_store_that_does_not_answer_runs_no_write(staged: Staged) -> None:
    stage = staged()
    stage.store.broken.add("begin")
    assert (await stage.post()).refusal == (503, "store_unavailable")
    assert stage.runs == 0
    stage.store.broken.clear()
    assert (await stage.post()).status == 201


async def test_a_dead_workers_mark_frees_itself(staged: Staged) -> None:
    started = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not started.is_set():
            started.set()
            await asyncio.Event().wait()
        await answering(201)(scope, receive, send)

    stage = staged(app)
    client = Client(stage.app)
    await started.wait()
    client.task.cancel()  # nobody knows how far it came: only its lease says when another may try
    await asyncio.wait([client.task])
    assert "release" not in stage.store.calls
    assert (await stage.post()).refusal == (409, "key_in_progress")
    stage.clock.advance(LEASE_MS)
    assert (await stage.post()).status == 201
    assert stage.runs == 2
