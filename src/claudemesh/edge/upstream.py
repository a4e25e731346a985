"""One conversation after the other with the one upstream, over connections that are kept open.

This file decides what a failure means, since everything that follows from it hangs on that:

    Unreached    not a byte of the request left this process: it was certainly not done
    Unanswered   a byte of it may have left: nobody knows
    BadGateway   there was an answer, and it cannot be passed on: a redirect, too large, or no HTTP

A name is resolved once for a connection, every address of it is judged (`addresses.py`), and the connection is made
to such an address itself, so that there is no second question to answer differently. The upstream's credential is
added here and is nowhere else. Head and body leave in one write. A connection that was closed while it was idle
shows that only when the next request is on it: such a request is sent once more, on a new connection, if that does
no harm.

The way of a request is a protocol class and callbacks, without streams or tasks: it is on the way of every write.
"""

import asyncio
import re
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, cast

import httptools

from claudemesh.edge.addresses import Network, Origin, judge_address, parse_origin
from claudemesh.edge.model import Answer
from claudemesh.kernel.errors import ConfigError
from claudemesh.kernel.write_errors import AnswerTooLarge, BadGateway, BadHeader, RedirectRefused

Resolver: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

INTERIM_MAX: Final = 8  # answers of 1xx before the one that counts

_OURS: Final = frozenset({
    b"accept-encoding",
    b"authorization",
    b"connection",
    b"content-length",
    b"cookie",
    b"host",
    b"transfer-encoding",
})  # fmt: skip
_NOT_PASSED_ON: Final = frozenset({
    b"connection",
    b"content-length",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-connection",
    b"set-cookie",
    b"set-cookie2",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
})  # fmt: skip
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_BODILESS: Final = frozenset({204, 304})
_SAFE: Final = frozenset({"GET", "HEAD"})
_TARGET = re.compile(r"/[!-~]*")
_METHOD = re.compile(r"[A-Z]{3,16}")
_CREDENTIAL = re.compile(r"[!-~]{1,8192}")
_UNSENDABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Unreached(Exception):
    """Nothing was sent."""


class Unanswered(Exception):
    """Something may have been sent, and no answer came."""


class _Stale(Exception):
    """A connection that had been idle was closed without a byte of an answer."""


class Outgoing(NamedTuple):
    method: str
    path: str
    query: str = ""
    headers: Iterable[tuple[bytes, bytes]] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamLimits:
    connections_max: int = 64
    waiting_max: int = 1_024  # requests that wait for a connection
    connect_timeout_s: float = 3.0
    timeout_s: float = 10.0  # of a request, from its first step to the last byte of the answer
    keep_alive_s: float = 30.0  # that a connection may be idle; less than servers keep one
    head_bytes_max: int = 64 << 10
    answer_bytes_max: int = 16 << 20


class Upstream:
    """For one event loop. `close` ends what is open; a request after it is unreached."""

    def __init__(  # noqa: PLR0913 - what it goes by, each named
        self,
        base_url: str,
        *,
        credential: Callable[[], str | None] = lambda: None,
        networks: Iterable[Network] = (),
        limits: UpstreamLimits | None = None,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.origin: Origin = parse_origin(base_url)
        self._credential = credential
        self._networks = tuple(networks)
        self._limits = limits or UpstreamLimits()
        self._resolver = resolver or _resolve
        if self.origin.address and (wrong := judge_address(self.origin, str(self.origin.address), self._networks)):
            raise ConfigError(f"the upstream has the address {self.origin.address}: {wrong}")
        self._tls = (tls or _tls_context()) if self.origin.is_tls else None
        self._head = (
            f"host: {self.origin.authority}\r\naccept-encoding: identity\r\nconnection: keep-alive\r\n"
        ).encode()
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._count = 0  # connections that are open or being opened
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    async def request(self, outgoing: Outgoing, *, timeout_s: float | None = None) -> Answer:
        """Return the answer, whatever its status; raise Unreached, Unanswered or a BadGateway."""
        raw, is_repeatable = self._render(outgoing)
        is_head = outgoing.method == "HEAD"
        deadline_s = asyncio.get_running_loop().time() + (timeout_s or self._limits.timeout_s)
        connection = await self._take(deadline_s)
        try:
            return await connection.exchange(raw, deadline_s, is_head=is_head)
        except _Stale as error:
            if not is_repeatable:
                raise Unanswered("an idle connection was closed, and the write has no key") from error
        try:
            connection = await self._take(deadline_s, is_new=True)
            return await connection.exchange(raw, deadline_s, is_head=is_head)
        except Unreached as error:  # now; but the first time something may have got there
            raise Unanswered(f"an idle connection was closed, and then: {error}") from error

    async def close(self) -> None:
        self._is_closed = True
        for connection in list(self._open):
            connection.abort()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)

    def _render(self, outgoing: Outgoing) -> tuple[bytes, bool]:
        """Return the request as bytes, and whether it may be sent twice."""
        method, path, query, headers, body = outgoing
        target = f"{self.origin.prefix}{path}?{query}" if query else self.origin.prefix + path
        if not _TARGET.fullmatch(target) or path.startswith("//") or not _METHOD.fullmatch(method):
            raise BadHeader("the request line holds what may not be passed on")
        parts = [f"{method} {target} HTTP/1.1\r\n".encode(), self._head]
        lines = 5  # the request line, three of ours and the empty one
        is_repeatable = method in _SAFE
        for name, value in headers:
            if name in _OURS:
                continue
            parts += (name, b": ", value, b"\r\n")
            lines += 1
            if name == b"idempotency-key":
                is_repeatable = True
        if credential := self._credential():
            if not _CREDENTIAL.fullmatch(credential):
                raise ConfigError("the upstream's credential is not of visible ASCII characters")
            parts.append(f"authorization: Bearer {credential}\r\n".encode())
            lines += 1
        if body or method in _WITH_BODY:
            parts.append(b"content-length: %d\r\n" % len(body))
            lines += 1
        parts.append(b"\r\n")
        head = b"".join(parts)
        if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
            raise BadHeader("a header holds a line's end or a NUL")
        return head + body, is_repeatable

    # --- connections -----------------------------------------------------------------------------------

    async def _take(self, deadline_s: float, *, is_new: bool = False) -> "_Connection":
        if is_new and self._idle and self._count >= self._limits.connections_max:
            self._idle[0].abort()
        while True:
            if self._is_closed:
                raise Unreached("the relay stops")
            if not is_new and (idle := self._take_idle()):
                return idle
            if self._count < self._limits.connections_max:
                return await self._connect(deadline_s)
            await self._wait(deadline_s)

    def _take_idle(self) -> "_Connection | None":
        oldest_s = asyncio.get_running_loop().time() - self._limits.keep_alive_s
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(oldest_s):
                return connection
            connection.abort()
        return None

    async def _wait(self, deadline_s: float) -> None:
        if len(self._waiting) >= self._limits.waiting_max:
            raise Unreached("as many requests as may wait for a connection are waiting")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(deadline_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._wake()  # it was our turn already: then it is the next one's
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise Unreached("no connection became free in time") from error
            raise

    def _wake(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def give_back(self, connection: "_Connection") -> None:
        """Keep a connection for the next request. Called by the connection itself."""
        if self._is_closed:
            connection.abort()
            return
        self._idle.append(connection)
        self._wake()

    def forget(self, connection: "_Connection") -> None:
        """Let go of a connection that is closed. Called by the connection itself."""
        if connection in self._open:
            self._open.remove(connection)
            if connection in self._idle:
                self._idle.remove(connection)
            self._count -= 1
            self._wake()

    async def _connect(self, deadline_s: float) -> "_Connection":
        self._count += 1
        try:
            within_s = asyncio.get_running_loop().time() + self._limits.connect_timeout_s
            async with asyncio.timeout_at(min(deadline_s, within_s)):
                connection = await self._connect_to_any(await self._addresses())
        except BaseException as error:
            self._count -= 1
            self._wake()
            if isinstance(error, TimeoutError):
                raise Unreached("the upstream takes no connection in time") from error
            raise
        self._open.add(connection)
        if connection.is_lost:  # before it was in the set
            self.forget(connection)
            raise Unreached("the upstream closed the connection at once")
        return connection

    async def _addresses(self) -> list[str]:
        """Return the addresses to connect to, each of which may be connected to."""
        origin = self.origin
        if origin.address is not None:
            found = [str(origin.address)]
        else:
            try:
                found = await self._resolver(origin.host, origin.port)
            except (OSError, UnicodeError) as error:
                raise Unreached("the upstream's name cannot be resolved") from error
        for address in found:
            if wrong := judge_address(origin, address, self._networks):
                raise Unreached(f"the upstream has the address {address}: {wrong}")
        return found

    async def _connect_to_any(self, addresses: list[str]) -> "_Connection":
        failure = OSError("its name has no address")
        for address in addresses:
            try:
                return await self._connect_to(address)
            except OSError as error:  # of TLS too
                failure = error
        raise Unreached(f"the upstream cannot be connected to: {_reason(failure)}") from failure

    async def _connect_to(self, address: str) -> "_Connection":
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        plug = socket.socket(family, socket.SOCK_STREAM)
        try:
            plug.setblocking(False)  # noqa: FBT003 - the socket's own word
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(plug, (address, self.origin.port))
            server_name = self.origin.host if self._tls else None
            _, connection = await loop.create_connection(
                lambda: _Connection(self, self._limits), sock=plug, ssl=self._tls, server_hostname=server_name
            )
        except BaseException:
            plug.close()
            raise
        return connection


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    return error.strerror or str(error)


class _Connection(asyncio.Protocol):
    """One connection; one request at a time. The methods that begin with `on_` are the parser's."""

    def __init__(self, pool: Upstream, limits: UpstreamLimits) -> None:
        self._pool = pool
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._future: asyncio.Future[Answer] | None = None  # while a request is on its way
        self._idle_since_s = self._loop.time()
        self._is_reused = False
        self._is_spoiled = False  # something came that was no answer to anything
        self.is_lost = False
        self._is_head = False
        self._begin()

    def _begin(self) -> None:
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._bytes = 0
        self._head_bytes = 0
        self._in_head = True
        self._ends_with_connection = False
        self._interim = 0
        self._is_answered = False
        self._keeps_alive = False

    def is_usable(self, idle_since_s: float) -> bool:
        transport = self._transport
        return (
            transport is not None
            and not transport.is_closing()
            and not self._is_spoiled
            and self._idle_since_s >= idle_since_s
        )

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._pool.forget(self)

    async def exchange(self, raw: bytes, deadline_s: float, *, is_head: bool) -> Answer:
        """Send a request and return its answer."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._is_spoiled:
            self.abort()
            raise Unreached("the upstream spoke or went before it was asked")
        self._begin()
        self._is_head = is_head
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._future = future
        timer = self._loop.call_at(deadline_s, self._fail, future, Unanswered("no answer came in time"))
        transport.write(raw)
        try:
            return await future
        except BaseException:
            if self._future is future:  # else the answer is there, and the connection may be another's already
                self._future = None
                self.abort()
            raise
        finally:
            timer.cancel()

    def _fail(self, future: "asyncio.Future[Answer] | None", error: Exception) -> None:
        if future is not None and not future.done():
            future.set_exception(error)

    def _finish(self) -> None:
        future = self._future
        if future is None or future.done():
            return
        try:
            answer = self._render()
        except BadGateway as error:
            future.set_exception(error)
            return
        self._future = None
        self._is_answered = True
        future.set_result(answer)

    def _render(self) -> Answer:
        status, headers = self._status, self._headers
        dropped = _NOT_PASSED_ON
        for name, value in headers:
            if name == b"location" and 300 <= status < 400:  # noqa: PLR2004 - that is what 3xx is
                raise RedirectRefused
            if name == b"connection":
                dropped = dropped | {token.strip() for token in value.lower().split(b",")}
            if _UNSENDABLE.search(value):
                raise BadGateway("a header of the answer holds a control character")
        kept = tuple([header for header in headers if header[0] not in dropped])
        return Answer(status, kept, b"".join(self._parts))

    # --- the transport's -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # of a stream, as was asked for

    def data_received(self, data: bytes) -> None:
        if self._future is None:  # nobody asked
            self._is_spoiled = True
            self.abort()
            return
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(self._future, BadGateway("the upstream changes the protocol"))
        except httptools.HttpParserError:
            self._is_spoiled = True
            self._fail(self._future, BadGateway("the upstream's answer is no HTTP"))
        if self._in_head and self._head_bytes > self._limits.head_bytes_max:
            self._fail(self._future, AnswerTooLarge("the head of the answer is too large"))
        if self._is_answered:
            self._rest()

    def _rest(self) -> None:
        """Wait for the next request, unless something came behind the answer or the upstream said goodbye."""
        if self._is_spoiled or not self._keeps_alive:
            self.abort()
            return
        self._is_reused = True
        self._idle_since_s = self._loop.time()
        self._pool.give_back(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._pool.forget(self)
        if self._ends_with_connection and exc is None:
            self._finish()
        elif self._head_bytes:
            self._fail(self._future, Unanswered("the answer broke off"))
        elif self._is_reused:
            self._fail(self._future, _Stale())
        else:
            self._fail(self._future, Unanswered("the connection was closed without an answer"))

    # --- the parser's ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._future is None:  # behind the answer, in the same piece
            self._is_spoiled = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # not what follows a chunked body
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._status = status = self._parser.get_status_code()
        if status < 200 or self._future is None:  # noqa: PLR2004 - that is what 1xx is
            return
        self._in_head = False
        if status in _BODILESS:
            return
        if self._is_head:  # the parser waits for a body that will not come
            self._finish()
            return
        fields = dict(self._headers)
        length = fields.get(b"content-length")
        if length is None:
            self._ends_with_connection = b"transfer-encoding" not in fields
        elif int(length) > self._limits.answer_bytes_max:
            self._fail(self._future, AnswerTooLarge(bytes_max=self._limits.answer_bytes_max))

    def on_body(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > self._limits.answer_bytes_max:
            self._fail(self._future, AnswerTooLarge(bytes_max=self._limits.answer_bytes_max))
        elif self._future is not None:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        if not self._in_head:
            self._keeps_alive = self._parser.should_keep_alive()
            self._finish()
            return
        self._headers.clear()  # of an answer of 1xx: the one that counts is to come
        self._interim += 1
        if self._interim > INTERIM_MAX:
            self._fail(self._future, BadGateway("the upstream never comes to its answer"))
