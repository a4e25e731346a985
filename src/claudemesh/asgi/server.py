"""The HTTP and WebSocket server: uvicorn's protocols under a lifecycle of ours. Nothing else imports uvicorn.

uvicorn brings the parser and the ASGI side of a connection. Its own server is left out: it takes over the signals,
looks around ten times a second and cannot be stopped twice. Here a server is started on sockets that are bound
already and stopped with a grace, several can run in one event loop, and what uvicorn would log is published.

This file also decides how long a client may take and how much it may send before a request is complete, since no
application code runs until then: a slow or endless client costs one connection, and not for long. And it closes a
connection on a Unix socket whose peer is another user.
"""

import asyncio
import gc
import logging
import os
import resource
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, cast

import uvloop
from uvicorn._types import ASGIReceiveEvent
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from claudemesh.asgi.events import ConnectionRefused, ServerWarned
from claudemesh.asgi.messages import ANSWER, NO_CONTENT, PULSE, STOPPING, TARGET, App, Headers, problem_response
from claudemesh.asgi.sockets import unlink_unix
from claudemesh.kernel.errors import MeshError, PayloadTooLarge, RateLimited, RequestTimeout
from claudemesh.runtime.observe import Observer

BACKLOG: Final = 2_048
DESCRIPTORS_MAX: Final = 65_536
PONG_BYTES_MAX: Final = 64 << 10  # answers to pings that wait to be read
HEAD_BYTES_MAX: Final = 64 << 10
SWEEPS_A_TIMEOUT: Final = 4
GARBAGE_MAX: Final = 20_000  # objects made and not yet freed, before the collector looks for cycles among them

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_PEER: Final = struct.Struct("3i")  # SO_PEERCRED: pid, uid, gid


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one server lets its clients do. A route's own limit on bodies comes on top, and is answered with 413."""

    connections_max: int = 4_096
    request_bytes_max: int = 16 << 20  # head, body and chunk headers of one request: then the connection is cut
    handshake_timeout_s: float = 5.0  # of TLS; until then a connection is not counted
    receive_timeout_s: float = 30.0  # to send a complete request; also for an idle connection's first byte
    keep_alive_s: int = 75
    send_stall_s: float = 60.0  # in which a client that is sent an answer must read something of it
    ws_max_size: int = 1 << 20


class Server:
    """Serves one app on sockets that are bound. `start` returns when it accepts; `stop` may come twice or first."""

    def __init__(  # noqa: PLR0913 - what it serves, and how, each named
        self,
        app: App,
        sockets: Sequence[socket.socket],
        observer: Observer,
        *,
        limits: ServerLimits | None = None,
        peer_uid: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Take over the sockets. By a Unix socket only `peer_uid` gets in: our own user, if none is named."""
        self._app = app
        self._sockets = list(sockets)
        self._limits = limits or ServerLimits()
        self._tls = tls
        self._house = _House(observer, self._limits, os.geteuid() if peer_uid is None else peer_uid)
        self._listeners: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        if self._listeners or self._stopping.is_set():
            raise RuntimeError("a server starts once")
        config = self._configure()
        app_state = {STOPPING: self._stopping}
        loop = asyncio.get_running_loop()
        for bound in self._sockets:
            listener = await loop.create_server(
                lambda: _HttpConnection(config, self._house, app_state),
                sock=bound,
                backlog=BACKLOG,
                ssl=self._tls,
                # Until hands are shaken there is no connection that the sweep could judge.
                ssl_handshake_timeout=self._limits.handshake_timeout_s if self._tls else None,
            )
            self._listeners.append(listener)
        self._sweep_later()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Accept nothing more, end streams and idle connections at once, let requests finish within the grace."""
        self._stopping.set()
        if self._sweep is not None:
            self._sweep.cancel()
        self._close_sockets()
        open_connections = self._house.open_connections
        for connection in list(open_connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await open_connections.empty.wait()
        await self._cut()

    def _close_sockets(self) -> None:
        for bound in self._sockets:
            if bound.fileno() >= 0:
                unlink_unix(bound)
        for listener in self._listeners:
            listener.close()
        for bound in self._sockets:
            bound.close()

    async def _cut(self) -> None:
        """End what did not end by itself: first the connections, so that nobody is sent a meaningless answer."""
        open_connections = self._house.open_connections
        for connection in list(open_connections):
            connection.transport.abort()
        await open_connections.empty.wait()
        tasks = set(self._house.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _configure(self) -> Config:
        config = Config(
            self._app,
            http=_HttpConnection,
            ws=_WebSocket,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws_max_size=self._limits.ws_max_size,
            ws_ping_interval=None,  # applications ask by themselves: `Pulse`
            ws_ping_timeout=None,
            ws_per_message_deflate=False,
            timeout_keep_alive=self._limits.keep_alive_s,
            workers=1,
        )
        config.load()
        return config

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(self._limits.receive_timeout_s / SWEEPS_A_TIMEOUT, self._sweep_now)

    def _sweep_now(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._house.open_connections):
            if isinstance(connection, _HttpConnection):
                connection.judge_pace(now_s)
        self._sweep_later()


class _Connections(set[Any]):
    """uvicorn's set of open connections, and an event for when there are none."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = asyncio.Event()
        self.empty.set()

    def add(self, connection: object) -> None:
        super().add(connection)
        self.empty.clear()

    def discard(self, connection: object) -> None:
        super().discard(connection)
        if not self:
            self.empty.set()

    def remove(self, connection: object) -> None:
        self.discard(connection)


class _House(ServerState):
    """What the connections of one server share: uvicorn's state, and ours."""

    def __init__(self, observer: Observer, limits: ServerLimits, peer_uid: int) -> None:
        super().__init__()
        self.connections = self.open_connections = _Connections()
        self.observer = observer
        self.limits = limits
        self.peer_uid = peer_uid
        # A logger that belongs to nobody's tree, so that nobody's configuration makes it speak elsewhere.
        self.logger = logging.Logger("claudemesh.asgi", logging.WARNING)  # noqa: LOG001
        self.logger.addHandler(_Publishing(observer))


class _HttpConnection(HttpToolsProtocol):
    """One connection. `_waiting_since_s` is from when it has owed us a request; None while it has not."""

    def __init__(self, config: Config, house: _House, app_state: dict[str, Any]) -> None:
        super().__init__(config, house, app_state)
        self.logger = house.logger
        self._house = house
        self._stalled_since_s: float | None = None
        self._waiting_since_s: float | None = self.loop.time()
        self._turn = 0  # of awaiting: one for each request, and one for each pause between two
        self._in_head = True
        self._bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        house = self._house
        if _peer_uid(transport) not in (None, house.peer_uid):
            house.observer.publish(ConnectionRefused("other_user"))
            transport.set_protocol(asyncio.Protocol())  # whatever it has sent, nobody reads it
            transport.abort()
            return
        super().connection_made(transport)
        if len(self.connections) > house.limits.connections_max:
            self._cut("too_many", RateLimited("as many connections as are served are open", retry_after_ms=1_000))

    def data_received(self, data: bytes) -> None:
        turn = self._turn
        super().data_received(data)
        # What a request begins with is not counted: the same piece may hold the end of the one before it.
        if self._waiting_since_s is not None and turn == self._turn:
            self._bytes += len(data)
            if self._bytes > (HEAD_BYTES_MAX if self._in_head else self._house.limits.request_bytes_max):
                self._cut("too_large", PayloadTooLarge("the request is larger than any that is served"))

    def on_message_begin(self) -> None:
        self._await_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        before = self.cycle
        super().on_headers_complete()
        # An answer to HEAD has no body to wait for; a request to open a WebSocket has no cycle.
        if self.cycle is not before:
            if self.url[:1] != b"/":  # of which the path alone is left in the scope
                self.scope[TARGET] = self.url  # type: ignore[typeddict-unknown-key]
            self.headers = self.headers.copy()  # what follows a chunked body is added there, and counts for nothing
            if self.scope["method"] != "HEAD":
                self.cycle.transport = _Joined(self.transport)  # type: ignore[assignment]
                self.scope[ANSWER] = partial(_answer, self.cycle, self.transport)  # type: ignore[typeddict-unknown-key]

    def on_message_complete(self) -> None:
        self._waiting_since_s = None
        super().on_message_complete()
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None in a request to open a WebSocket
        if cycle is not None and cycle.response_complete:  # refused by its head, before it was here in full
            self._await_request()

    def on_response_complete(self) -> None:
        if self._waiting_since_s is None and not self.pipeline:
            self._await_request()
        super().on_response_complete()

    def _await_request(self) -> None:
        self._waiting_since_s = self.loop.time()
        self._turn += 1
        self._in_head = True
        self._bytes = 0

    def pause_writing(self) -> None:
        self._stalled_since_s = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_since_s = None
        super().resume_writing()

    def judge_pace(self, now_s: float) -> None:
        limits = self._house.limits
        is_idle = self.timeout_keep_alive_task is not None  # between two requests, where that timer counts
        if self._stalled_since_s is not None and now_s - self._stalled_since_s > limits.send_stall_s:
            self._house.observer.publish(ConnectionRefused("slow_reader"))
            self.transport.abort()
        elif is_idle or self._waiting_since_s is None:
            return
        elif now_s - self._waiting_since_s > limits.receive_timeout_s:
            self._cut("slow_sender", RequestTimeout())

    def _cut(self, reason: str, error: MeshError) -> None:
        """Say why, where an answer is due, and close."""
        self._house.observer.publish(ConnectionRefused(reason))
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self._in_head:  # of a request that has no cycle yet: this one, if any, is of the request before it
            is_due = cycle is None or cycle.response_complete
        else:
            is_due = cycle is not None and not cycle.response_started
        if is_due and not self.transport.is_closing():
            self.transport.write(_render(error))
        self.transport.close()


class _Joined:
    """The transport as one answer sees it: the head waits for the body, and both go out in one write.

    Two writes are two system calls and two wake-ups of the client, and where Nagle's algorithm is at work 40 ms.
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None  # empty once it is written

    def write(self, data: bytes) -> None:
        if self._head:
            data = self._head + data
            self._head = b""
        elif self._head is None and data != _CONTINUE:
            self._head = data
            return
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()


def _answer(
    cycle: RequestResponseCycle, transport: asyncio.Transport, status: int, headers: Headers, body: bytes
) -> bool:
    """Do in one step what uvicorn does with the two messages of an answer that is all there."""
    if cycle.response_started or cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
        return False
    head = STATUS_LINE[status] + _lines(headers)
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    length = b"content-length: %d\r\n" % len(body) if status != NO_CONTENT else b""
    transport.write(b"%b%b\r\n%b" % (head, length, body))
    cycle.message_event.set()
    cycle.on_response()
    return True


@lru_cache(256)
def _lines(headers: Headers) -> bytes:
    """Return the lines of a head; most answers have the same."""
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    if len(lines.splitlines()) != len(headers):
        raise ValueError("a header holds a line break")
    return lines


class _WebSocket(WebSocketsSansIOProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        if isinstance(server_state, _House):
            self.logger = self.conn.logger = server_state.logger
        self._heard_s = self.loop.time()

    def data_received(self, data: bytes) -> None:
        self._heard_s = self.loop.time()
        super().data_received(data)

    def handle_connect(self, event: Any) -> None:  # noqa: ANN401  of the protocol's own library
        super().handle_connect(event)
        if self.handshake_initiated and not self.close_sent:
            self.scope[PULSE] = self  # type: ignore[typeddict-unknown-key]

    async def receive(self) -> ASGIReceiveEvent:
        was_paused = self.read_paused
        message = await super().receive()
        if was_paused and not self.read_paused:
            self._heard_s = self.loop.time()  # what came meanwhile was not read
        return message

    def is_open(self) -> bool:
        return self.conn.state.name == "OPEN" and not self.disconnected

    def silent_s(self) -> float:
        return 0.0 if self.read_paused else self.loop.time() - self._heard_s

    def beat(self, text: str) -> None:
        # Either side may have said goodbye a moment ago, and the connection not be gone yet.
        if not self.is_open() or not self.writable.is_set():
            return
        self.conn.send_ping(b"")
        self.conn.send_text(text.encode())
        self.transport.write(b"".join(self.conn.data_to_send()))

    def abort(self) -> None:
        self.transport.abort()

    def handle_ping(self) -> None:
        """Answer, unless nobody reads the answers: they would pile up here."""
        if self.transport.get_write_buffer_size() > PONG_BYTES_MAX:
            self.transport.abort()
            return
        super().handle_ping()


def _peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """Return the user at the other end of a Unix socket; None for any other socket."""
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family != socket.AF_UNIX:
        return None
    _, uid, _ = _PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)


def _render(error: MeshError) -> bytes:
    """Return a whole answer, for when there is no request to answer yet."""
    response = problem_response(error)
    headers = (*response.headers, (b"content-length", b"%d" % len(response.body)), (b"connection", b"close"))
    return STATUS_LINE[response.status] + _lines(headers) + b"\r\n" + response.body


# --- what uvicorn would log ------------------------------------------------------------------------


class _Publishing(logging.Handler):
    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[0] if record.exc_info else None
        # The words as uvicorn wrote them, without their arguments: those are what clients sent.
        self._observer.publish(ServerWarned(str(record.msg).strip(), error.__name__ if error else ""))


# --- a process that serves -------------------------------------------------------------------------


def run(main: Callable[[], Awaitable[int]]) -> int:
    """Run a process's main coroutine on the fast event loop, with room for as many connections as it is allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_MAX, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    # What is imported stays, and what a request makes is freed with it: there is next to nothing to collect. With
    # Python's own threshold the collector looks through the requests under way, again and again.
    gc.freeze()
    gc.set_threshold(GARBAGE_MAX)

    async def awaited() -> int:
        return await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(awaited())
