"""Runs plans in an event loop. A socket belongs to no loop, so one mesh may serve several loops in turn."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar, assert_never
from weakref import WeakKeyDictionary

from claudemesh.daemon.client.connection import READ_BYTES
from claudemesh.daemon.client.http1 import ResponseReader, judge_response
from claudemesh.kernel.errors import ConnectionLost, DeadlineExceeded, MeshError
from claudemesh.sdk.plans import OPEN, Course, Emit, Exchange, Hear, Heard, Listen, Pause, Plan
from claudemesh.sdk.sockets import IDLE_MAX, NOTHING, Ear, Line, Pool, is_open, render_listen

TOGETHER_MAX: Final = IDLE_MAX  # requests under way: more would only wait in the daemon, each with a socket

T = TypeVar("T")


class AsyncPool(Pool):
    """A pool for tasks, which are easily more than there can be sockets: those who come later wait for one."""

    def __init__(self, sock: Path) -> None:
        super().__init__(sock)
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @asynccontextmanager
    async def line_by(self, deadline_ms: int) -> AsyncIterator[Line]:
        gate = self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(TOGETHER_MAX))
        try:
            async with asyncio.timeout(self.left_s(deadline_ms)):
                await gate.acquire()
        except TimeoutError as error:
            raise DeadlineExceeded("too many requests are under way; nothing was sent") from error
        try:
            with self.line() as line:
                yield line
        finally:
            gate.release()


class AsyncStream(Generic[T]):
    """What a plan emits, one after another. Close it, or use it as a context, to let its connection go.

    A stream of events stands from the moment its context is entered, or else from the first step of the iteration.
    """

    def __init__(self, pool: AsyncPool, plan: Plan[Any], make: Callable[[Any], T], *, opens: bool = False) -> None:
        self._run = _Run(pool, plan)
        self._make = make
        self._is_to_be_opened = opens

    async def open(self) -> Self:
        """Go on until the stream stands, so that nothing that happens from now on is missed."""
        if self._is_to_be_opened:
            if await self._run.advance() is not OPEN:
                raise RuntimeError("a plan that is opened emits OPEN first")
            self._is_to_be_opened = False
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        await self.open()
        try:
            return self._make(await self._run.advance())
        except _Ended:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """May be called twice, and by another task than the one that waits: that one then ends."""
        self._run.close()


async def run(pool: AsyncPool, plan: Plan[T]) -> T:
    """Run a plan that emits nothing, and return its result."""
    going = _Run(pool, plan)
    try:
        await going.advance()
    except _Ended as end:
        result: T = end.value
        return result
    finally:
        going.close()
    raise RuntimeError("a plan that is run emits nothing")


class _Ended(Exception):
    """A plan is over. StopIteration cannot leave a coroutine."""

    def __init__(self, value: object = None) -> None:
        super().__init__()
        self.value: Any = value


class _Run:
    """One plan on its way."""

    def __init__(self, pool: AsyncPool, plan: Plan[Any]) -> None:
        self._pool = pool
        self._course = Course(plan)
        self._connection: socket.socket | None = None
        self._ear: Ear | None = None
        self._is_hearing = False
        self._is_closed = False

    async def advance(self) -> Any:  # noqa: ANN401 - each plan emits its own values
        """Go on until the plan emits something; _Ended, with its result, at its end. Cancelled, it may go on."""
        while not self._is_closed:
            try:
                step = self._course.due()
            except StopIteration as end:
                self._hang_up()
                raise _Ended(end.value) from None
            except MeshError:
                self._hang_up()
                raise
            if isinstance(step, Emit):
                self._course.done()
                return step.value
            try:
                answer = await self._do(step)
            except MeshError as error:
                self._course.failed(error)
            else:
                self._course.done(answer)
        raise _Ended

    def close(self) -> None:
        self._is_closed = True
        self._course.close()
        if self._is_hearing and self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # wakes the task that waits, which then hangs up
        else:
            self._hang_up()

    def __del__(self) -> None:
        self._hang_up()  # of a stream that nobody closed and nobody has any more

    async def _do(self, step: Exchange | Listen | Hear | Pause) -> Any:  # noqa: ANN401 - each step has its own answer
        match step:
            case Exchange(request, deadline_ms):
                async with self._pool.line_by(deadline_ms) as line:
                    return await _exchange(line, request, deadline_ms)
            case Listen(after, deadline_ms):
                self._hang_up()
                with self._pool.line() as line:
                    self._connection, reader = await _listen(line, after, deadline_ms)
                self._ear = Ear(reader)
                return None
            case Hear(within_ms):
                return await self._hear(within_ms)
            case Pause(ms):
                return await asyncio.sleep(ms / 1000)
            case _:
                assert_never(step)

    async def _hear(self, within_ms: int | None) -> Heard | None:
        connection, ear = self._connection, self._ear
        if connection is None or ear is None:
            return None
        heard = ear.take()
        if heard is not None or ear.is_over:
            return heard
        self._is_hearing = True
        try:
            async with asyncio.timeout(None if within_ms is None else within_ms / 1000):
                await _until_readable(connection)
            return ear.hear(connection.recv(READ_BYTES))
        except TimeoutError:
            return NOTHING
        except OSError:
            return None
        finally:
            self._is_hearing = False
            if self._is_closed:
                self._hang_up()

    def _hang_up(self) -> None:
        connection, self._connection, self._ear = self._connection, None, None
        if connection is not None:
            connection.close()


async def _until_readable(connection: socket.socket) -> None:
    """Wait without taking anything: whoever is cancelled with bytes in hand has lost them."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)


# --- one request -----------------------------------------------------------------------------------


async def _exchange(line: Line, request: bytes, deadline_ms: int) -> Any:  # noqa: ANN401 - JSON is anything
    connection = line.take() or await _dial(line, deadline_ms)
    reader = ResponseReader()
    try:
        await _converse(connection, reader, request, line.left_s(deadline_ms), lambda: reader.is_done)
    except BaseException:
        connection.close()  # what is still to come on it is no later request's answer
        raise
    if reader.is_last:
        connection.close()
    else:
        line.keep(connection)
    return judge_response(reader.status, reader.headers, reader.take())


async def _listen(line: Line, after: str, deadline_ms: int) -> tuple[socket.socket, ResponseReader]:
    connection = await _dial(line, deadline_ms)
    reader = ResponseReader()
    try:
        await _converse(connection, reader, render_listen(after), line.left_s(deadline_ms), lambda: is_open(reader))
    except BaseException:
        connection.close()
        raise
    return connection, reader


async def _dial(line: Line, deadline_ms: int) -> socket.socket:
    dialling = asyncio.ensure_future(asyncio.to_thread(line.dial, deadline_ms))
    try:
        connection = await asyncio.shield(dialling)
    except asyncio.CancelledError:
        dialling.add_done_callback(_close_late)
        raise
    connection.settimeout(0)
    return connection


def _close_late(dialling: "asyncio.Future[socket.socket]") -> None:
    """Close a connection that was made for nobody any more."""
    if not dialling.cancelled() and dialling.exception() is None:
        dialling.result().close()


async def _converse(
    connection: socket.socket,
    reader: ResponseReader,
    request: bytes,
    within_s: float,
    is_enough: Callable[[], bool],
) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(within_s):
            with suppress(OSError):  # it may have answered before it had read all of it; if not, reading will tell
                await loop.sock_sendall(connection, request)
            while not is_enough():
                reader.feed(await loop.sock_recv(connection, READ_BYTES))
    except TimeoutError as error:
        raise DeadlineExceeded("the daemon did not answer in time: the outcome is unknown") from error
    except OSError as error:
        raise ConnectionLost(f"reading the daemon's answer failed: {error.strerror}") from error
