"""One request and its answer on one connection, and what it means if there is none.

    Unreached    not a byte of the request left this process: it was certainly not done
    Unanswered   a byte of it may have left: nobody knows
    BadGateway   there was an answer, and it cannot be passed on: a redirect, too large, or no HTTP

Everything that follows, from queueing a write to telling its caller, hangs on that difference. Head and body leave
in one write. The way of a request is a protocol class and the parser's callbacks, without streams or tasks: it is
on the way of every write.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol, cast

import httptools

from claudemesh.edge.model import Answer
from claudemesh.kernel.write_errors import AnswerTooLarge, BadGateway, RedirectRefused

INTERIM_MAX: Final = 8  # answers of 1xx before the one that counts

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
_BODILESS: Final = frozenset({204, 304})


class Unreached(Exception):
    """Nothing was sent."""


class Unanswered(Exception):
    """Something may have been sent, and no answer came."""


class Stale(Exception):
    """A connection that had been idle was closed without a byte of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamLimits:
    connections_max: int = 64
    waiting_max: int = 1_024  # requests that wait for a connection
    connect_timeout_s: float = 3.0
    timeout_s: float = 10.0  # of a request, from its first step to the last byte of the answer
    keep_alive_s: float = 30.0  # that a connection may be idle; less than servers keep one
    head_bytes_max: int = 64 << 10
    answer_bytes_max: int = 16 << 20


class Pool(Protocol):
    """Whoever has the connections."""

    def give_back(self, connection: "Connection") -> None:
        """Keep it for the next request."""

    def forget(self, connection: "Connection") -> None:
        """Let go of it: it is closed, or will be."""


class Connection(asyncio.Protocol):
    """One connection; one request at a time. The methods that begin with `on_` are the parser's."""

    def __init__(self, pool: Pool, limits: UpstreamLimits) -> None:
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
            self._fail(self._future, Stale())
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
