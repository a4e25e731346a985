"""What becomes of the app's answer: which are kept, when their end is sent, and who wins when a mark is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import apsw
import pytest

from claudemesh.asgi.messages import Message, Receive, Scope, Send, problem_response, send_response
from claudemesh.idempotency import MARK, KeptResponse, Mark
from claudemesh.idempotency import recording as recording_module
from claudemesh.idempotency.events import AnswerNotRecorded, MarkTakenOver
from claudemesh.kernel.idempotency import NEVER_KEPT
from claudemesh.kernel.write_errors import MarkLost
from tests.unit.idempotency.stage import LEASE_MS, Client, Stage, answering, streaming

pytestmark = pytest.mark.req("R1")

Staged = Callable[..., Stage]

REPLAYED = "idempotent-replayed"
START: Message = {"type": "http.response.start", "status": 200, "headers": []}


def piece(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


# --- which answers are kept --------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 400, 404, 410, 413, 418, 422, 451])
async def test_successes_and_settled_refusals_are_kept(staged: Staged, status: int) -> None:
    stage = staged(answering(status, b"" if status == 204 else b"{}"))
    first, second = await stage.post(), await stage.post()
    assert (first.status, first.body, second.status, second.body) == (status, first.body, status, first.body)
    assert second.headers[REPLAYED] == "true"
    assert ("content-length" in second.headers) == (status != 204)
    assert stage.runs == 1


@pytest.mark.parametrize("status", [*NEVER_KEPT, 301, 302, 303, 307, 500, 501, 502, 503, 504, 507])
async def test_what_says_nothing_final_is_not_kept_and_the_next_request_runs(staged: Staged, status: int) -> None:
    stage = staged(answering(status, b"first"))
    assert (await stage.post()).status == status
    assert (await stage.post(b"[]")).status == status  # another request, even
    assert stage.runs == 2
    assert await stage.store.page() == []


async def test_a_cookie_is_the_first_callers_and_nobody_elses(staged: Staged) -> None:
    stage = staged(answering(201, b"{}", (b"Set-Cookie", b"session=s3cr3t-canary"), (b"X-Request-Id", b"1")))
    assert (await stage.post()).headers["Set-Cookie"] == "session=s3cr3t-canary"
    assert set((await stage.post()).headers) == {"content-type", REPLAYED, "content-length"}


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"user":{"password":"correct-horse-9"}}', ()),
        (b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----", ()),
        (b"{}", ((b"location", b"/reset?password=correct-horse-9"),)),
        (b"\x1f\x8b\x08\x00\x00", ((b"Content-Encoding", b"gzip"),)),
        (b"x" * 101, ()),
    ],
    ids=["field", "shape", "header", "unreadable", "large"],
)
async def test_of_an_answer_that_is_secret_unreadable_or_large_only_the_status_is_kept(
    staged: Staged, body: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> None:
    stage = staged(answering(201, body, *headers), answer_bytes_max=100)
    assert (await stage.post()).body == body
    again = await stage.post()
    assert again.refusal == (409, "answer_not_kept")
    assert again.json["status_code"] == 201
    assert (await stage.post(b"[]")).refusal == (409, "key_reused")
    assert stage.runs == 1


async def test_an_entity_tag_may_be_random_and_identity_is_no_coding(staged: Staged) -> None:
    tag = b'"PsRY_PIMQSwvZ5zL3ktZK_MyLmW7WEMMW445Ijm41p4"'
    stage = staged(answering(201, b"{}", (b"etag", tag), (b"content-encoding", b"identity")))
    await stage.post()
    assert (await stage.post()).headers["etag"] == tag.decode()


async def test_a_large_answer_that_is_streamed_comes_through_whole(staged: Staged) -> None:
    stage = staged(streaming(200, [b"x" * 60] * 5), answer_bytes_max=100)
    assert (await stage.post()).body == b"x" * 300
    assert (await stage.post()).refusal == (409, "answer_not_kept")


# --- when it is sent ---------------------------------------------------------------------------------


async def test_an_answer_in_one_piece_is_recorded_before_a_byte_of_it_is_sent(staged: Staged) -> None:
    stage = staged()
    stage.store.gates["settle"] = asyncio.Event()
    client = Client(stage.app)
    await stage.store.until("settle")
    assert client.sent == []
    stage.store.gates["settle"].set()
    await client.done()
    assert client.body == b'{"id":"t1"}'


@pytest.mark.parametrize(("length", "passed"), [(None, b"onetwothree"), (b"11", b"onetwo")])
async def test_a_stream_passes_piece_by_piece_and_its_end_waits_for_the_record(
    staged: Staged, length: bytes | None, passed: bytes
) -> None:
    may_go_on = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", length)] if length else []
        await send({**START, "headers": headers})
        await send(piece(b"one"))
        await may_go_on.wait()
        await send(piece(b"two"))
        await send(piece(b"three"))  # with a length, a client has all of it with this one
        await send(piece(b"", more=False))

    stage = staged(app)
    stage.store.gates["settle"] = asyncio.Event()
    client = Client(stage.app)
    await client.until_sent(b"one")
    may_go_on.set()
    await stage.store.until("settle")
    assert client.body == passed
    assert client.sent[-1]["more_body"]
    stage.store.gates["settle"].set()
    await client.done()
    assert client.body == b"onetwothree"
    assert not client.sent[-1]["more_body"]
    assert (await stage.post()).body == b"onetwothree"


async def test_an_answer_that_is_not_kept_frees_its_key_before_its_end_is_sent(staged: Staged) -> None:
    stage = staged(answering(503, b"busy"))
    stage.store.gates["release"] = asyncio.Event()
    client = Client(stage.app)
    await stage.store.until("release")
    assert client.sent == []
    stage.store.gates["release"].set()
    await client.done()
    assert client.body == b"busy"


async def test_an_early_hint_is_no_answer(staged: Staged) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.early_hint", "links": [b"</style.css>"]})
        await answering(201, b"{}")(scope, receive, send)

    stage = staged(app)
    client = Client(stage.app)
    await client.done()
    assert [message["type"].rpartition(".")[2] for message in client.sent] == ["early_hint", "start", "body"]


# --- an app that fails -------------------------------------------------------------------------------


@pytest.mark.parametrize("started", [False, True])
async def test_an_app_that_raises_frees_its_key_and_the_error_goes_on(staged: Staged, *, started: bool) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        if started:
            await send(START)
            await send(piece(b"half"))
        raise ZeroDivisionError

    stage = staged(app)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await stage.post()
    assert stage.runs == 2


async def test_an_app_that_raises_after_its_answer_has_answered(staged: Staged) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(201, b"{}")(scope, receive, send)
        raise ZeroDivisionError

    stage = staged(app)
    with pytest.raises(ZeroDivisionError):
        await stage.post()
    assert (await stage.post()).headers[REPLAYED] == "true"


async def test_an_app_that_never_ends_its_answer_has_given_none(staged: Staged) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await send(piece(b"half"))

    stage = staged(app)
    await stage.post()
    await stage.post()
    assert stage.runs == 2


@pytest.mark.parametrize(("status", "call"), [(201, "settle"), (500, "release")])
async def test_an_answer_that_the_store_does_not_take_is_given_all_the_same(
    staged: Staged, status: int, call: str
) -> None:
    stage = staged(answering(status, b"done"))
    stage.store.broken.add(call)
    assert (await stage.post()).body == b"done"
    assert [event for event in stage.events if isinstance(event, AnswerNotRecorded)] == [
        AnswerNotRecorded("store_unavailable")
    ]
    assert (await stage.post()).refusal == (409, "key_in_progress")
    stage.clock.advance(LEASE_MS)
    assert (await stage.post()).status == status


# --- a client that goes away -------------------------------------------------------------------------


async def pieces_until_told(receive: Receive, may_end: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield a piece, and the rest when it may; nothing more once the client is gone, as frameworks do it."""
    yield b"one "
    gone = asyncio.ensure_future(receive())
    ending = asyncio.ensure_future(may_end.wait())
    await asyncio.wait([gone, ending], return_when=asyncio.FIRST_COMPLETED)
    if not gone.done():
        yield b"two"
    gone.cancel()
    ending.cancel()


@pytest.mark.parametrize("by", ["receive", "send"])
async def test_a_client_that_goes_away_finds_its_answer_when_it_is_back(staged: Staged, by: str) -> None:
    may_end = asyncio.Event()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        async for body in pieces_until_told(receive, may_end):
            await send(piece(body))
        await send(piece(b"", more=False))

    stage = staged(app)
    client = Client(stage.app)
    await client.until_sent(b"one ")
    if by == "receive":
        client.is_gone.set()
    else:
        client.fails = lambda: True
    may_end.set()
    await client.done()
    again = await stage.post()
    assert (again.body, again.headers[REPLAYED]) == (b"one two", "true")


@pytest.mark.parametrize("by", ["receive", "send"])
async def test_a_stream_too_large_to_be_kept_ends_with_its_client_and_counts_as_done(
    staged: Staged, by: str
) -> None:
    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            await send(piece(b"x" * 60))
            await asyncio.sleep(0)
        gone.cancel()

    stage = staged(app, answer_bytes_max=100)
    client = Client(stage.app)
    await client.until_sent(b"x" * 180)
    if by == "receive":
        client.is_gone.set()
        await client.done()
    else:
        client.fails = lambda: True
        with pytest.raises(OSError):  # noqa: PT011  as any server raises it
            await client.done()
    assert (await stage.post()).refusal == (409, "answer_not_kept")


async def test_an_app_that_does_nothing_but_wait_for_its_client_to_go_is_told_in_the_end(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_module, "GONE_PATIENCE_S", 0.01)

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    stage = staged(app)
    client = Client(stage.app)
    client.is_gone.set()
    await client.done()
    assert await stage.store.page() == []


# --- in the transaction of the write -----------------------------------------------------------------


def completing(stage: Stage, mark: Mark, *, fails: bool = False) -> "asyncio.Future[None]":
    def operation(connection: apsw.Connection, items: Sequence[Mark]) -> list[None]:
        for item in items:
            item.complete(connection, KeptResponse(201, (), b"kept"))
        if fails:
            raise ZeroDivisionError
        return [None for _ in items]

    return stage.store.database.write(operation, mark)


async def test_what_the_app_completed_is_not_recorded_again_and_its_own_answer_passes(staged: Staged) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await completing(stage, scope[MARK])
        await answering(201, b"kept, and more")(scope, receive, send)

    stage = staged(app)
    assert (await stage.post()).body == b"kept, and more"
    assert stage.store.calls == ["begin"]
    assert (await stage.post()).body == b"kept"
    assert stage.runs == 1


async def test_an_app_that_dies_after_its_commit_has_written_and_answered(staged: Staged) -> None:
    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        await completing(stage, scope[MARK])
        raise ZeroDivisionError

    stage = staged(app)
    with pytest.raises(ZeroDivisionError):
        await stage.post()
    assert (await stage.post()).body == b"kept"
    assert stage.runs == 1


async def test_a_completed_write_that_rolls_back_frees_its_key_at_once(staged: Staged) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ZeroDivisionError):
            await completing(stage, scope[MARK], fails=True)
        await answering(500)(scope, receive, send)

    stage = staged(app)
    assert [(await stage.post()).status for _ in range(2)] == [500, 500]
    assert stage.runs == 2


async def test_an_answer_that_is_never_kept_cannot_be_completed(staged: Staged) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ValueError, match="503"):
            scope[MARK].complete(None, KeptResponse(503))
        await answering(201)(scope, receive, send)

    assert (await staged(app).post()).status == 201


# --- a mark that another worker took over ------------------------------------------------------------


class Paused:
    """An app whose first run waits past its lease, until another has run."""

    def __init__(self, then: Callable[[Scope, Receive, Send], object]) -> None:
        self.is_waiting = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self._then = then

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.is_waiting.is_set():
            await answering(201, b"second")(scope, receive, send)
            return
        self.is_waiting.set()
        await self.may_go_on.wait()
        await self._then(scope, receive, send)  # type: ignore[misc]

    async def overtake(self, stage: Stage) -> Client:
        """Have a second worker take the key over, and return the first one's client."""
        client = Client(stage.app)
        await self.is_waiting.wait()
        stage.clock.advance(LEASE_MS)
        assert (await stage.post()).body == b"second"
        self.may_go_on.set()
        return client


async def raise_lost(*_: object) -> None:
    raise MarkLost


async def render_lost(scope: Scope, _receive: Receive, send: Send) -> None:
    with pytest.raises(MarkLost):
        await completing(render_lost.stage, scope[MARK])  # type: ignore[attr-defined]
    await send_response(problem_response(MarkLost()), scope, send)


@pytest.mark.parametrize("then", [answering(201, b"first"), raise_lost, render_lost])
async def test_a_worker_that_was_overtaken_does_not_give_its_own_answer(
    staged: Staged, then: Callable[[Scope, Receive, Send], object]
) -> None:
    app = Paused(then)
    stage = staged(app)
    render_lost.stage = stage  # type: ignore[attr-defined]
    client = await app.overtake(stage)
    await client.done()
    assert client.sent[0]["status"] == 409
    assert (b"retry-after", b"1") in client.sent[0]["headers"]
    assert b"key_in_progress" in client.body
    assert (await stage.post()).body == b"second"
    assert MarkTakenOver() in stage.events


async def test_what_has_begun_to_be_sent_cannot_be_taken_back(staged: Staged) -> None:
    app = Paused(streaming(200, [b"one", b"two"]))
    stage = staged(app)
    client = await app.overtake(stage)
    await client.done()
    assert client.body == b"onetwo"
    assert (await stage.post()).body == b"second"


async def test_a_mark_that_is_lost_in_the_middle_of_a_stream_is_the_apps_error(staged: Staged) -> None:
    async def then(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await send(piece(b"half"))
        raise MarkLost

    app = Paused(then)
    stage = staged(app)
    client = await app.overtake(stage)
    with pytest.raises(MarkLost):
        await client.done()
