"""The one upstream: to which address it is spoken, with which credential, over connections that are kept open.

A name is resolved once for a connection, every address of it is judged (`addresses.py`), and the connection is made
to such an address itself, so that there is no second question to answer differently. The upstream's credential is
added here and is nowhere else. What a failure means is said in `exchange.py`.

A connection that was closed while it was idle shows that only when the next request is on it. Such a request is
sent once more, on a new connection, if that does no harm; should that fail too, something may have got there.
"""

import asyncio
import re
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from claudemesh.edge.addresses import Network, Origin, judge_address, parse_origin
from claudemesh.edge.exchange import Connection, Stale, Unanswered, Unreached, UpstreamLimits
from claudemesh.edge.model import Answer
from claudemesh.kernel.errors import ConfigError
from claudemesh.kernel.write_errors import BadHeader

__all__ = ["Outgoing", "Resolver", "Unanswered", "Unreached", "Upstream", "UpstreamLimits"]

Resolver: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

_OURS: Final = frozenset({
    b"accept-encoding",
    b"authorization",
    b"connection",
    b"content-length",
    b"cookie",
    b"host",
    b"transfer-encoding",
})  # fmt: skip
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_SAFE: Final = frozenset({"GET", "HEAD"})
_TARGET = re.compile(r"/[!-~]*")
_METHOD = re.compile(r"[A-Z]{3,16}")
_CREDENTIAL = re.compile(r"[!-~]{1,8192}")


class Outgoing(NamedTuple):
    method: str
    path: str
    query: str = ""
    headers: Iterable[tuple[bytes, bytes]] = ()
    body: bytes = b""


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
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
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
        except Stale as error:
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
            self._wake()

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

    async def _take(self, deadline_s: float, *, is_new: bool = False) -> Connection:
        while True:
            if is_new and self._idle and self._count >= self._limits.connections_max:
                self._idle[0].abort()
            if self._is_closed:
                raise Unreached("the relay stops")
            if not is_new and (idle := self._take_idle()):
                return idle
            if self._count < self._limits.connections_max:
                return await self._connect(deadline_s)
            await self._wait(deadline_s)

    def _take_idle(self) -> Connection | None:
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

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request. Called by the connection itself."""
        self._idle.append(connection)
        self._wake()

    def forget(self, connection: Connection) -> None:
        """Let go of a connection that is closed. Called by the connection itself."""
        if connection in self._open:
            self._open.remove(connection)
            if connection in self._idle:
                self._idle.remove(connection)
            self._count -= 1
            self._wake()

    async def _connect(self, deadline_s: float) -> Connection:
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
        if connection.is_lost or self._is_closed:  # before it was in the set
            connection.abort()
            raise Unreached("the upstream closed the connection at once, or the relay stops")
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

    async def _connect_to_any(self, addresses: list[str]) -> Connection:
        failure = OSError("its name has no address")
        for address in addresses:
            try:
                return await self._connect_to(address)
            except OSError as error:  # of TLS too
                failure = error
        raise Unreached(f"the upstream cannot be connected to: {_reason(failure)}") from failure

    async def _connect_to(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        plug = socket.socket(family, socket.SOCK_STREAM)
        try:
            plug.setblocking(False)  # noqa: FBT003 - the socket's own word
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(plug, (address, self.origin.port))
            server_name = self.origin.host if self._tls else None
            _, connection = await loop.create_connection(
                lambda: Connection(self, self._limits), sock=plug, ssl=self._tls, server_hostname=server_name
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
