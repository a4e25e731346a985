"""Whose turn it is: writes under one key, and writes to one entity, go one after the other, in the order they came.

So the outcome of the one before is known, or is queued, when the next one is judged. Nothing is kept of a name that
nobody waits for.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from types import TracebackType


class Turns:
    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # behind whoever has the turn of a name

    def of(self, names: Iterable[str]) -> "Turn":
        """Wait for all of these names, always in the same order, so that no two wait for each other."""
        return Turn(self, sorted(set(names)))

    def __len__(self) -> int:
        return len(self._waiting)

    async def take(self, name: str) -> None:
        waiting = self._waiting.get(name)
        if waiting is None:
            self._waiting[name] = deque()
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(mine)
        try:
            await mine
        except BaseException:
            if not mine.cancel() and not mine.cancelled():  # the turn came, and nobody is there to take it
                self.give_back(name)
            raise

    def give_back(self, name: str) -> None:
        """Hand the turn to whoever came next, so that nobody who comes later gets in between."""
        waiting = self._waiting[name]
        while waiting:
            following = waiting.popleft()
            if not following.done():  # one that gave up stays where it is until then
                following.set_result(None)
                return
        del self._waiting[name]


class Turn:
    """A class and no generator: every write takes one."""

    __slots__ = ("_held", "_names", "_turns")

    def __init__(self, turns: Turns, names: list[str]) -> None:
        self._turns = turns
        self._names = names
        self._held = 0

    async def __aenter__(self) -> None:
        try:
            for name in self._names:
                await self._turns.take(name)
                self._held += 1
        except BaseException:
            self._give_back()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _give_back(self) -> None:
        for name in self._names[: self._held]:
            self._turns.give_back(name)
