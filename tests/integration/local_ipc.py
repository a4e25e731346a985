"""A toy service on a real socket and a real port, as a daemon wires it, and a client that can misbehave.

Everything runs on uvloop, as in production.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, Self

import msgspec
import uvloop

from claudemesh.asgi.guard import LocalGuard
from claudemesh.asgi.limits import InFlight, Streams
from claudemesh.asgi.messages import App, Request, Response, StreamResponse, json_response
from claudemesh.asgi.openapi import openapi_document
from claudemesh.asgi.policy import RateLimit
from claudemesh.asgi.routes import Header, Route, Router
from claudemesh.asgi.server import Server, ServerLimits
from claudemesh.asgi.sockets import bind_tcp, bind_unix, port_of
from claudemesh.asgi.tokens import TokenFile, read_token
from claudemesh.kernel.errors import (
    BadHost,
    BadOrigin,
    BadToken,
    DaemonBusy,
    InvalidRequest,
    MissingToken,
    NotFound,
    RateLimited,
    TokenInUrl,
    TooManyStreams,
)
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.observe import Observer

BOUND_S = 30
PUBLIC = frozenset({"/v1/health"})
P = ParamSpec("P")


def on_uvloop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a coroutine test on the loop that production runs on, with a bound."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(BOUND_S):
                await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(bounded())

    return run


# --- the service -----------------------------------------------------------------------------------


class Asked(msgspec.Struct):
    text: str
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1


class Answered(msgspec.Struct):
    text: str
    bytes: int


class Page(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 10
    newest: bool = False


class Toy:
    """What the handlers share: a gate to hold requests at, and what is open."""

    def __init__(self) -> None:
        self.held = asyncio.Semaphore(0)  # released by every request that waits at the gate
        self.gate = asyncio.Event()
        self.streams = Streams(limit=2)
        self.stream_closed = asyncio.Event()
        self.socket_ended = asyncio.Event()

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/v1/echo",
                handler=self.echo,
                summary="Say it again.",
                request=Asked,
                response=Answered,
                status=202,
                headers=(Header("Idempotency-Key", "The id of the send."),),
                body_bytes_max=1 << 16,
            ),
            Route(
                method="GET",
                path="/v1/page",
                handler=self.page,
                summary="A page.",
                query=Page,
                response=Page,
            ),
            Route(
                method="GET",
                path="/v1/trace/{id}",
                handler=self.trace,
                summary="One.",
                response=Answered,
                errors=(NotFound,),
            ),
            Route(
                method="GET", path="/v1/health", handler=self.health, summary="Health.", response=dict[str, bool]
            ),
        ]

    def hidden_routes(self) -> list[Route]:
        return [
            Route(method="POST", path="/v1/fail", handler=self.fail, summary=""),
            Route(method="GET", path="/v1/held", handler=self.hold, summary=""),
            Route(method="GET", path="/v1/large", handler=self.large, summary=""),
            Route(method="GET", path="/v1/events", handler=self.events, summary=""),
            Route(method="GET", path="/openapi.json", handler=self.document, summary=""),
        ]

    async def echo(self, request: Request) -> Response:
        request.header("Idempotency-Key")
        return json_response(Answered(request.body.text * request.body.count, len(request.raw)), 202)

    async def page(self, request: Request) -> Response:
        return json_response(request.query)

    async def trace(self, request: Request) -> Response:
        if len(request.params["id"]) > 5:
            raise NotFound("nothing goes by this id")
        return json_response(Answered(request.params["id"], 0))

    async def health(self, _: Request) -> Response:
        return json_response({"connected": True})

    async def fail(self, _: Request) -> Response:
        raise RuntimeError("the secret of the handler")

    async def hold(self, _: Request) -> Response:
        self.held.release()
        await self.gate.wait()
        return json_response("held")

    async def large(self, _: Request) -> Response:
        return json_response("x" * (64 << 20))

    async def events(self, _: Request) -> StreamResponse:
        self.streams.admit()
        return StreamResponse(self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            with self.streams.opened():
                yield b"data: first\n\n"
                await asyncio.Event().wait()
        finally:
            self.stream_closed.set()

    async def document(self, _: Request) -> Response:
        everywhere = (MissingToken, BadToken, BadHost, BadOrigin, TokenInUrl, InvalidRequest)
        busy = (DaemonBusy, RateLimited, TooManyStreams)
        document = openapi_document("toy", "1", self.routes(), everywhere=(*everywhere, *busy), public_paths=PUBLIC)
        return json_response(document)

    async def websocket(self, _scope: object, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        self.socket_ended.set()


@dataclass
class Service:
    toy: Toy
    path: Path
    port: int
    token: str
    server: Server
    tokens: TokenFile
    observer: Observer
    events: list[Any] = field(default_factory=list)

    async def by_socket(self, start: bytes = b"") -> "Client":
        """Connect, with `start` on its way before the server, which is in this loop, can wait for it."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(os.fspath(self.path))
        connection.sendall(start)
        return Client(*await asyncio.open_unix_connection(sock=connection), host="localhost")

    async def by_tcp(self) -> "Client":
        return Client(*await asyncio.open_connection("127.0.0.1", self.port), host=f"127.0.0.1:{self.port}")

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@asynccontextmanager
async def serving(  # noqa: PLR0913 - each is one thing that a test turns
    directory: Path,
    *,
    limits: ServerLimits | None = None,
    peer_uid: int | None = None,
    rate: RateLimit | None = None,
    in_flight: int = 1_024,
    wrap: Callable[[App], App] = lambda app: app,
) -> AsyncIterator[Service]:
    """Start the service on a Unix socket and, behind the guard, on a port of its own; stop it at the end."""
    observer = Observer()
    events: list[Any] = []
    observer.subscribe(object, events.append)
    toy, clock = Toy(), SystemClock()
    routes = [*toy.routes(), *toy.hidden_routes()]
    app = wrap(InFlight(Router(routes, observer, {"/v1/ws": toy.websocket}), observer, in_flight))
    bound, listener = bind_unix(directory / "mesh" / "sock"), bind_tcp("127.0.0.1", 0)
    tokens = TokenFile(directory / "mesh" / "local_token", clock, observer)
    guard = LocalGuard(
        app,
        tokens,
        port=port_of(listener),
        clock=clock,
        observer=observer,
        limit=rate or RateLimit(per_s=10_000, burst=100_000),
        public_paths=PUBLIC,
    )
    by_socket = Server(app, [bound], observer, limits=limits, peer_uid=peer_uid)
    by_tcp = Server(guard, [listener], observer, limits=limits)
    token = read_token(directory / "mesh" / "local_token")
    service = Service(
        toy, directory / "mesh" / "sock", port_of(listener), token, by_socket, tokens, observer, events
    )
    try:
        await by_socket.start()
        await by_tcp.start()
        yield service
    finally:
        await by_tcp.stop(grace_s=0)
        await by_socket.stop(grace_s=0)


# --- the client ------------------------------------------------------------------------------------


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - a document of any form
        return json.loads(self.body)

    @property
    def refusal(self) -> tuple[int, str]:
        assert self.headers["content-type"] == "application/problem+json"
        problem = self.json
        assert problem["status"] == self.status
        assert problem["type"] == f"urn:claudemesh:problem:{problem['code']}"
        assert problem["retry"] in ("no", "same_id", "after")
        return self.status, problem["code"]


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    host: str

    async def ask(
        self,
        method: str,
        target: str,
        value: object = None,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Send a request as a good client does; what is in `headers` stands instead of what it would say."""
        pairs = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
        given = {name.lower() for name, _ in pairs}
        content = body if body is not None else b"" if value is None else json.dumps(value).encode()
        own = [("Host", self.host)]
        if content:
            own += [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        head = [f"{name}: {text}" for name, text in [*(p for p in own if p[0].lower() not in given), *pairs]]
        self.writer.write("\r\n".join([f"{method} {target} HTTP/1.1", *head, "", ""]).encode("latin-1") + content)
        return await self.answer()

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def answer(self) -> Answer:
        status, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(status.split()[1]), headers, body)

    async def ended(self) -> bytes:
        """Return what is left until the server ends the connection, however it does."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        self.writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
