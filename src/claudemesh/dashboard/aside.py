"""Whatever may take long, in threads of its own: neither a send nor another page waits for a relay that hangs.

Of each thing that is asked a few questions are under way at once, and each answer is waited for so long and no
longer. A thread cannot be stopped: one that hangs keeps its place until it is done, and nothing else.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from claudemesh.kernel.errors import DeadlineExceeded

T = TypeVar("T")

AT_ONCE: Final = 4
WITHIN_S: Final = 8.0


class Aside:
    """Questions to one thing, which is called `what` when it does not answer."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._places = asyncio.Semaphore(AT_ONCE)

    async def ask(self, question: Callable[[], T], within_s: float = WITHIN_S) -> T:
        """Return the answer, or raise what it raises; DeadlineExceeded if it does not come."""
        try:
            async with asyncio.timeout(within_s):
                await self._places.acquire()
                return await self._start(question)
        except TimeoutError:
            raise DeadlineExceeded(f"{self._what} did not answer in {within_s:g} s") from None

    def _start(self, question: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def finish(set_outcome: Callable[[Any], None], outcome: object) -> None:
            self._places.release()
            if not future.done():  # else nobody waits any more
                set_outcome(outcome)

        def run() -> None:
            try:
                outcome: tuple[Callable[[Any], None], object] = (future.set_result, question())
            except Exception as error:  # noqa: BLE001 - it is raised where the answer is waited for
                outcome = (future.set_exception, error)
            with suppress(RuntimeError):  # the daemon has stopped meanwhile
                loop.call_soon_threadsafe(finish, *outcome)

        # Not a pool: a process that stops waits for a pool's threads, however long they hang.
        try:
            threading.Thread(target=run, name=f"dashboard-{self._what}", daemon=True).start()
        except BaseException:  # no room for one more: it took no place either
            self._places.release()
            raise
        return future
