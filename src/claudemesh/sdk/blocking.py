"""Runs plans on the caller's thread. Any number of threads may do so at once."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar, assert_never

from claudemesh.daemon.client.connection import READ_BYTES
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.processes import pause
from claudemesh.sdk.plans import OPEN, Course, Emit, Exchange, Hear, Heard, Listen, Pause, Plan
from claudemesh.sdk.sockets import NOTHING, Ear, Pool

T = TypeVar("T")


class Stream(Generic[T]):
    """What a plan emits, one after another. Close it, or use it as a context, to let its connection go.

    Closing it from another thread ends the iteration there.
    """

    def __init__(self, pool: Pool, plan: Plan[Any], make: Callable[[Any], T]) -> None:
        self._run = _Run(pool, plan)
        self._make = make

    def opened(self) -> Self:
        """Go on until the stream stands, so that nothing that happens from now on is missed."""
        first = self._run.advance()
        if first is not OPEN:
            raise RuntimeError("a plan that is opened emits OPEN first")
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return self._make(self._run.advance())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._run.close()


def run(pool: Pool, plan: Plan[T]) -> T:
    """Run a plan that emits nothing, and return its result."""
    going = _Run(pool, plan)
    try:
        going.advance()
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        going.close()
    raise RuntimeError("a plan that is run emits nothing")


class _Run:
    """One plan on its way."""

    def __init__(self, pool: Pool, plan: Plan[Any]) -> None:
        self._pool = pool
        self._course = Course(plan)
        self._connection: socket.socket | None = None
        self._ear: Ear | None = None
        self._is_closed = False

    def advance(self) -> Any:  # noqa: ANN401 - each plan emits its own values
        """Go on until the plan emits something; StopIteration, with its result, at its end."""
        while not self._is_closed:
            try:
                step = self._course.due()
            except (StopIteration, MeshError):
                self._hang_up()
                raise
            if isinstance(step, Emit):
                self._course.done()
                return step.value
            try:
                answer = self._do(step)
            except MeshError as error:
                self._course.failed(error)
            else:
                self._course.done(answer)
        raise StopIteration

    def close(self) -> None:
        """May be called twice, and by another thread than the one that waits: that one then ends."""
        self._is_closed = True
        self._hang_up()
        with suppress(ValueError):  # the other thread is in the middle of it, and will look at the flag
            self._course.close()

    def __del__(self) -> None:
        self._hang_up()  # of a stream that nobody closed and nobody has any more

    def _do(self, step: Exchange | Listen | Hear | Pause) -> Any:  # noqa: ANN401 - each step has its own answer
        match step:
            case Exchange(request, deadline_ms):
                with self._pool.line() as line:
                    return line.exchange(request, deadline_ms)[1]
            case Listen(after, deadline_ms):
                self._hang_up()
                with self._pool.line() as line:
                    self._connection, reader = line.listen(after, deadline_ms)
                self._ear = Ear(reader)
                return None
            case Hear(within_ms):
                return self._hear(within_ms)
            case Pause(ms):
                return pause(ms / 1000)
            case _:
                assert_never(step)

    def _hear(self, within_ms: int | None) -> Heard | None:
        connection, ear = self._connection, self._ear
        if connection is None or ear is None:
            return None
        heard = ear.take()
        if heard is not None or ear.is_over:
            return heard
        try:
            connection.settimeout(None if within_ms is None else max(within_ms, 1) / 1000)
            return ear.hear(connection.recv(READ_BYTES))
        except TimeoutError:
            return NOTHING
        except OSError:
            return None

    def _hang_up(self) -> None:
        connection, self._connection, self._ear = self._connection, None, None
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
            connection.close()
