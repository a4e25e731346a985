"""A handler is called with what its route's types say, and everything else is a problem."""

import asyncio
from typing import Annotated, Literal

import msgspec
import pytest

from claudemesh.asgi.events import RequestAnswered, RequestFailed
from claudemesh.asgi.messages import (
    Message,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    StreamResponse,
    json_response,
)
from claudemesh.asgi.routes import Route, Router
from claudemesh.kernel.errors import IdempotencyConflict, IntegrityError, MeshError, RateLimited
from claudemesh.runtime.observe import Observer
from tests.unit.asgi.calling import JSON, ask, recorded, scope_of


class Asked(msgspec.Struct):
    text: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    kind: Literal["a", "b"] = "a"
    rest: object = None


class Page(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=1)] = 10
    newest: bool = False
    cursor: str | None = None


async def echo(request: Request) -> Response:
    return json_response({"text": request.body.text, "raw": len(request.raw)}, 202)


async def page(request: Request) -> Response:
    return json_response(request.query)


async def trace(request: Request) -> Response:
    return json_response({**request.params, "key": request.header("Idempotency-Key")})


async def listing(_: Request) -> Response:
    return json_response(["first"])


def build(*routes: Route, observer: Observer | None = None) -> Router:
    return Router(
        [
            Route(method="POST", path="/v1/echo", handler=echo, summary="", request=Asked, body_bytes_max=200),
            Route(method="GET", path="/v1/page", handler=page, summary="", query=Page),
            Route(method="GET", path="/v1/trace/{id}", handler=trace, summary=""),
            Route(method="DELETE", path="/v1/trace/{id}", handler=trace, summary=""),
            Route(method="GET", path="/v1/trace/{id}/steps/{step}", handler=trace, summary=""),
            Route(method="GET", path="/v1/trace/all", handler=listing, summary=""),
            *routes,
        ],
        observer or Observer(),
    )


def failing(error: Exception, observer: Observer | None = None) -> Router:
    async def handler(_: Request) -> Response:
        raise error

    return build(Route(method="GET", path="/v1/fail", handler=handler, summary=""), observer=observer)


# --- dispatch --------------------------------------------------------------------------------------


async def test_a_request_reaches_its_handler_with_its_body_decoded() -> None:
    body = b'{"text": "hi", "count": 2}'
    answer = await ask(build(), "POST", "/v1/echo", body)
    assert (answer.status, answer.json) == (202, {"text": "hi", "raw": len(body)})
    assert answer.headers == {
        "content-type": "application/json",
        "x-content-type-options": "nosniff",
        "content-length": str(len(answer.body)),
    }


async def test_parameters_of_a_path_are_whole_segments_and_a_path_without_any_goes_first() -> None:
    router = build()
    assert (await ask(router, "GET", "/v1/trace/01J")).json == {"id": "01J", "key": None}
    steps = await ask(router, "GET", "/v1/trace/a.b/steps/2")
    assert steps.json == {"id": "a.b", "step": "2", "key": None}
    assert (await ask(router, "GET", "/v1/trace/all")).json == ["first"]


@pytest.mark.req("F7")
@pytest.mark.parametrize(
    "path",
    ["/", "", "/v1", "/v1/echo/", "/v1/trace/", "/v1/trace/a/b", "/v1/trace/a\n", "/v1/trace/a\x00", "/V1/echo"],
)
async def test_an_unknown_path_is_a_404(path: str) -> None:
    assert (await ask(build(), "GET", path)).refusal == (404, "not_found")


@pytest.mark.req("F7")
@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/echo", "POST"),
        ("OPTIONS", "/v1/echo", "POST"),
        ("HEAD", "/v1/page", "GET"),
        ("POST", "/v1/trace/x", "DELETE, GET"),
    ],
)
async def test_a_known_path_names_the_methods_that_it_takes(method: str, path: str, allow: str) -> None:
    answer = await ask(build(), method, path)
    assert answer.refusal == (405, "method_not_allowed")
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize(
    ("method", "path", "is_served"),
    [
        ("POST", "/v1/echo", True),
        ("GET", "/v1/trace/x", True),
        ("PUT", "/v1/echo", False),
        ("POST", "/v1/trace/x", False),
        ("GET", "/v1/trace/", False),
        ("GET", "/elsewhere", False),
    ],
)
def test_whatever_stands_before_the_routes_can_ask_what_is_served(
    method: str, path: str, *, is_served: bool
) -> None:
    assert build().serves(method, path) is is_served


def test_two_routes_for_the_same_are_refused() -> None:
    with pytest.raises(ValueError, match="two routes for GET"):
        build(Route(method="GET", path="/v1/page", handler=page, summary=""))


# --- what was sent ---------------------------------------------------------------------------------


@pytest.mark.req("F7")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"count": 1}',
        b'{"text": 1}',
        b'{"text": "x", "count": 0}',
        b'{"text": "x", "count": 1.5}',
        b'{"text": "x", "kind": "c"}',
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
        b'{"text": "x", "unknown": "\xff"}',
        b'{"text": "x", "count": NaN}',
        b'{"text": "x"} {}',
    ],
)
async def test_a_body_that_is_not_of_the_route_s_type_is_a_400(body: bytes) -> None:
    assert (await ask(build(), "POST", "/v1/echo", body, JSON)).refusal == (400, "invalid_request")


@pytest.mark.parametrize("rest", [b"1.0", b'[{"a": 1.0}]', b"0.5", b"null"])
async def test_a_whole_number_is_one_however_it_is_written(rest: bytes) -> None:
    body = b'{"text": "x", "count": 2.0, "rest": %s}' % rest
    assert (await ask(build(), "POST", "/v1/echo", body)).status == 202
    body = b'{"text": "x", "count": 1e17, "rest": %s}' % rest
    assert (await ask(build(), "POST", "/v1/echo", body)).refusal == (400, "invalid_request")


@pytest.mark.req("F7")
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
async def test_a_body_nested_without_end_is_a_400(opening: bytes) -> None:
    route = Route(method="POST", path="/deep", handler=echo, summary="", request=Asked)
    answer = await ask(build(route), "POST", "/deep", b'{"text": "x", "rest": ' + opening * 100_000)
    assert answer.refusal == (400, "invalid_request")


async def test_what_a_decoder_says_of_a_body_does_not_quote_it_at_length() -> None:
    route = Route(method="POST", path="/long", handler=echo, summary="", request=Asked)
    answer = await ask(build(route), "POST", "/long", b'{"text": "x", "kind": "%s"}' % (b"k" * 10_000))
    assert answer.refusal == (400, "invalid_request")
    assert len(answer.body) < 1_000


@pytest.mark.req("D13")
async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read() -> None:
    reads: list[int] = []

    async def receive() -> Message:
        reads.append(1)
        return {"type": "http.disconnect"}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await build()(scope_of("POST", "/v1/echo", JSON, b"x" * 201), receive, send)
    assert (sent[0]["status"], reads) == (413, [])


@pytest.mark.req("D13")
@pytest.mark.parametrize("chunks", [[b"x" * 201], [b"x" * 100, b"x" * 101], [b"x" * 201, b"", b"x"]])
async def test_a_body_that_turns_out_too_large_is_refused_while_it_is_read(chunks: list[bytes]) -> None:
    answer = await ask(build(), "POST", "/v1/echo", chunks, JSON)
    assert answer.refusal == (413, "payload_too_large")
    assert answer.json["bytes_max"] == 200


@pytest.mark.req("D13")
async def test_a_body_of_exactly_the_limit_passes_in_one_piece_and_in_many() -> None:
    body = b'{"text": "' + b"x" * 188 + b'"}'
    assert len(body) == 200
    assert (await ask(build(), "POST", "/v1/echo", body)).status == 202
    chunks = [body[place : place + 7] for place in range(0, 200, 7)]
    assert (await ask(build(), "POST", "/v1/echo", chunks, JSON)).json["raw"] == 200


@pytest.mark.req("D15")
@pytest.mark.parametrize("path", ["/v1/echo", "/v1/bare"])
@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, {**JSON, "content-encoding": "gzip"}])
async def test_a_body_that_is_not_plain_json_is_a_415_even_where_none_is_read(
    path: str, headers: dict[str, str]
) -> None:
    router = build(Route(method="POST", path="/v1/bare", handler=listing, summary=""))
    assert (await ask(router, "POST", path, b'{"text": "x"}', headers)).refusal == (415, "json_only")


async def test_a_client_that_leaves_while_it_sends_is_not_answered() -> None:
    class Leaving(list[bytes]):
        def __len__(self) -> int:
            return 3  # the third never comes

    answer = await ask(build(), "POST", "/v1/echo", Leaving([b'{"te', b'xt"']), JSON)
    assert answer.sent == []


async def test_a_query_is_converted_to_the_route_s_types() -> None:
    answer = await ask(build(), "GET", "/v1/page?limit=25&newest=true&cursor=a%20b%C3%A4")
    assert answer.json == {"limit": 25, "newest": True, "cursor": "a bä"}
    assert (await ask(build(), "GET", "/v1/page")).json == {"limit": 10, "newest": False, "cursor": None}


@pytest.mark.req("F7")
@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=x", "limit=1&limit=2", "limits=1", "cursor=%ff", "cursor=\xff", "&".join(["a=1"] * 200)],
)
async def test_a_query_that_is_not_of_the_route_s_type_is_a_400(query: str) -> None:
    assert (await ask(build(), "GET", f"/v1/page?{query}")).refusal == (400, "invalid_request")


async def test_a_header_is_found_by_any_case_and_refused_if_it_was_sent_twice() -> None:
    async def first(request: Request) -> Response:
        return json_response([request.header("X-one"), request.header("x-none")])

    router = build(Route(method="GET", path="/x", handler=first, summary=""))
    assert (await ask(router, "GET", "/x", headers=[("X-ONE", "1"), ("via", "a"), ("via", "b")])).json == [
        "1",
        None,
    ]
    twice = await ask(router, "GET", "/x", headers=[("x-one", "1"), ("X-One", "1")])
    assert twice.refusal == (400, "invalid_request")


@pytest.mark.req("D15")
@pytest.mark.parametrize("name", ["Host", "Content-Length", "Content-Type", "Idempotency-Key", "Authorization"])
async def test_a_header_that_decides_something_may_be_sent_once(name: str) -> None:
    answer = await ask(build(), "GET", "/v1/page", headers=[(name, "1"), (name.lower(), "1")])
    assert answer.refusal == (400, "invalid_request")


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.req("F7")
async def test_an_error_of_ours_is_rendered_with_its_extras_and_headers() -> None:
    conflict = IdempotencyConflict("why", conflict="outbox_done_fingerprint_mismatch", fingerprint_prefix="ab")
    answer = await ask(failing(conflict), "GET", "/v1/fail")
    assert answer.refusal == (409, "idempotency_key_reused")
    assert answer.json["conflict"] == "outbox_done_fingerprint_mismatch"
    assert answer.json["detail"] == "why"


@pytest.mark.req("F7")
@pytest.mark.parametrize(("wait_ms", "seconds"), [(1, "1"), (1_000, "1"), (1_001, "2"), (0, "1")])
async def test_a_wait_is_told_in_whole_seconds_and_never_too_short(wait_ms: int, seconds: str) -> None:
    answer = await ask(failing(RateLimited(retry_after_ms=wait_ms)), "GET", "/v1/fail")
    assert answer.headers["retry-after"] == seconds
    assert answer.json["retry_after_ms"] == wait_ms


@pytest.mark.req("F7")
async def test_what_nobody_expected_is_a_500_that_tells_the_caller_nothing_and_the_observer_where() -> None:
    observer = Observer()
    events = recorded(observer)
    answer = await ask(failing(KeyError("the secret"), observer), "GET", "/v1/fail?x=secret")
    assert answer.refusal == (500, MeshError.code)
    assert b"secret" not in answer.body
    assert b"KeyError" not in answer.body
    failed = next(event for event in events if isinstance(event, RequestFailed))
    assert (failed.method, failed.path, failed.error) == ("GET", "/v1/fail", "KeyError")
    assert failed.where[-1].endswith(" handler")
    assert "secret" not in repr(failed)


async def test_a_broken_invariant_is_told_to_the_observer_too() -> None:
    observer = Observer()
    events = recorded(observer)
    answer = await ask(failing(IntegrityError("row 7"), observer), "GET", "/v1/fail")
    assert answer.refusal == (500, "integrity_violated")
    assert any(isinstance(event, RequestFailed) for event in events)


async def test_every_request_is_told_once_with_its_route_and_outcome() -> None:
    observer = Observer()
    events: list[RequestAnswered] = []
    observer.subscribe(RequestAnswered, events.append)
    router = build(observer=observer)
    await ask(router, "GET", "/v1/trace/secret")
    await ask(router, "GET", "/nowhere")
    await ask(router, "POST", "/v1/echo", b"{", JSON)
    told = [(event.method, event.path, event.status, event.code) for event in events]
    assert told == [
        ("GET", "/v1/trace/{id}", 200, ""),
        ("GET", "", 404, "not_found"),
        ("POST", "/v1/echo", 400, "invalid_request"),
    ]


# --- streams ---------------------------------------------------------------------------------------


class Streaming:
    """A stream of one chunk that then waits for ever, and a client that can leave."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.gone, self.closed, self.started = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.sent: list[Message] = []
        self.fail = fail

    async def chunks(self):  # noqa: ANN201 - an async generator
        try:
            yield b"data: 1\n\n"
            self.started.set()
            if self.fail:
                raise self.fail
            await asyncio.Event().wait()
        finally:
            self.closed.set()

    async def handler(self, _: Request) -> StreamResponse:
        return StreamResponse(self.chunks())

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def run(self, stopping: asyncio.Event | None = None, observer: Observer | None = None) -> None:
        route = Route(method="GET", path="/stream", handler=self.handler, summary="")
        scope = scope_of("GET", "/stream", {}, b"")
        if stopping:
            scope["state"] = {"stopping": stopping}
        await build(route, observer=observer)(scope, self.receive, self.send)


@pytest.mark.parametrize("ending", ["client", "server"])
async def test_a_stream_ends_and_is_closed_when_the_client_leaves_or_the_server_stops(ending: str) -> None:
    streaming, stopping = Streaming(), asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(streaming.run(stopping))
        await streaming.started.wait()
        assert streaming.sent[0]["status"] == 200
        assert (b"content-type", b"text/event-stream") in streaming.sent[0]["headers"]
        (streaming.gone if ending == "client" else stopping).set()
    assert streaming.closed.is_set()
    assert [message["body"] for message in streaming.sent[1:]] == [b"", b"data: 1\n\n", b""]
    assert not streaming.sent[-1].get("more_body")


async def test_a_stream_that_fails_is_closed_told_and_cut_short() -> None:
    observer = Observer()
    events = recorded(observer)
    streaming = Streaming(fail=ValueError("the secret"))
    with pytest.raises(ExceptionGroup):
        await streaming.run(observer=observer)
    assert streaming.closed.is_set()
    assert streaming.sent[-1]["more_body"]  # no proper end: the client can tell that something is missing
    failed = next(event for event in events if isinstance(event, RequestFailed))
    assert failed.where[0] == "ValueError"


async def test_a_websocket_goes_to_the_app_of_its_path_and_nowhere_else() -> None:
    opened: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        opened.append(scope["path"])

    router = Router([], Observer(), {"/v1/ws": app})
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await router({"type": "websocket", "path": "/v1/ws"}, receive, send)
    assert (opened, sent) == (["/v1/ws"], [])
    await router({"type": "websocket", "path": "/v1/other"}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]
    sent.clear()
    extensions = {"websocket.http.response": {}}
    await router({"type": "websocket", "path": "/v1/other", "extensions": extensions}, receive, send)
    assert sent[0]["status"] == 404
    assert opened == ["/v1/ws"]
