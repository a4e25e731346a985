"""A request as a handler sees it, and what it may answer. The words of ASGI end here.

This file decides how an answer, a stream or an error is put into ASGI messages. Which error it is, is for whoever
raises it; how an error reads is for `wire.problem`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from claudemesh.kernel.errors import InvalidRequest, MeshError, Unauthenticated
from claudemesh.wire import problem

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
Answer: TypeAlias = Callable[[int, Headers, bytes], bool]

# In `scope["state"]`: an asyncio.Event that the server sets when it stops, so that streams end by themselves.
STOPPING: Final = "stopping"

# In the scope, where the server offers it: an `Answer`, which sends a whole one in one step, since two messages
# take much longer. It returns False, and has sent nothing, where an answer needs more than that.
ANSWER: Final = "claudemesh.answer"

# In the scope, of a request that names more than a path: what it names, as it was sent (`http://host/path`, `*`).
TARGET: Final = "claudemesh.target"

# In the scope of a request that passed a guard: the name of the token that it came with.
CALLER: Final = "claudemesh.caller"

# In the scope of a WebSocket: its `Pulse`.
PULSE: Final = "claudemesh.pulse"


class Pulse(Protocol):
    """A WebSocket below its messages: whether the other side is there, and how to ask it."""

    def is_open(self) -> bool:
        """Say whether it is still there, as far as is known."""

    def silent_s(self) -> float:
        """Return how long ago something came. While we read nothing ourselves, nobody is silent."""

    def beat(self, text: str) -> None:
        """Ping, and send a text with it, unless what was sent before is still waiting to be read."""

    def abort(self) -> None:
        """Cut the connection, without a word."""


# It holds what others wrote: no browser may take it for anything but what it is said to be.
NO_SNIFF: Final = (b"x-content-type-options", b"nosniff")

_JSON: Final[Headers] = ((b"content-type", b"application/json"), NO_SNIFF)
_PROBLEM: Final[Headers] = ((b"content-type", problem.CONTENT_TYPE.encode()), NO_SNIFF)
_STREAM: Final[Headers] = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), NO_SNIFF)

NO_CONTENT: Final = 204  # which may not even say that its length is 0

_encoder: Final = msgspec.json.Encoder()


class Request(msgspec.Struct, frozen=True):
    """What a handler is given: `query` and `body` are of the route's types."""

    scope: Scope
    last_headers: dict[bytes, bytes]  # by name; of one that was sent more than once the last
    params: dict[str, str]
    query: Any
    raw: bytes
    body: Any

    def header(self, name: str) -> str | None:
        """Return the header's one value. One that was sent twice is refused: either could be the wrong one."""
        wanted = name.lower().encode()
        value = self.last_headers.get(wanted)
        if value is None:
            return None
        sent = self.scope["headers"]
        if len(sent) != len(self.last_headers) and sum(key == wanted for key, _ in sent) > 1:
            raise InvalidRequest(f"the header {name} was sent twice")
        return value.decode("latin-1")


class Response(msgspec.Struct, frozen=True):
    status: int = 200
    body: bytes = b""
    headers: Headers = ()


class StreamResponse(msgspec.Struct, frozen=True):
    """Chunks as they come, until there are no more, the client is gone or the server stops.

    The iterator is closed in every case, so that a generator's `finally` is the place to clean up.
    """

    chunks: AsyncIterator[bytes]
    status: int = 200
    headers: Headers = _STREAM


def json_response(value: object, status: int = 200) -> Response:
    return Response(status, _encoder.encode(value), _JSON)


def problem_response(error: MeshError) -> Response:
    return Response(error.status, _encoder.encode(problem.render(error)), _PROBLEM + _headers_of(error))


def _headers_of(error: MeshError) -> Headers:
    headers: list[tuple[bytes, bytes]] = []
    wait_ms, allow = error.extras.get("retry_after_ms"), error.extras.get("allow")
    if isinstance(wait_ms, int):
        headers.append((b"retry-after", b"%d" % max(1, -(-wait_ms // 1000))))  # in whole seconds, never too early
    if isinstance(allow, list):
        headers.append((b"allow", ", ".join(allow).encode()))
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    return tuple(headers)


# --- sending ---------------------------------------------------------------------------------------


async def send_response(response: Response, scope: Scope, send: Send) -> None:
    body = response.body
    answer: Answer | None = scope.pop(ANSWER, None)  # it holds the scope, so it must not stay there
    if answer is not None and answer(response.status, response.headers, body):
        return
    headers = response.headers
    if response.status != NO_CONTENT:
        headers = (*headers, (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_stream(response: StreamResponse, scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": b"", "more_body": True})  # the head waits for this
    async with asyncio.TaskGroup() as tasks:
        pump = tasks.create_task(_pump(response.chunks, send))
        ends = [tasks.create_task(_until_gone(receive))]
        if stopping := scope.get("state", {}).get(STOPPING):
            ends.append(tasks.create_task(stopping.wait()))
        await asyncio.wait({pump, *ends}, return_when=asyncio.FIRST_COMPLETED)
        for task in (pump, *ends):
            task.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _pump(chunks: AsyncIterator[bytes], send: Send) -> None:
    try:
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def refuse(error: MeshError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or one to open a WebSocket, with the problem."""
    response = problem_response(error)
    if scope["type"] == "http":
        await send_response(response, scope, send)
        return
    await receive()  # websocket.connect
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return
    headers = list(response.headers)
    await send({"type": "websocket.http.response.start", "status": response.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.body})
