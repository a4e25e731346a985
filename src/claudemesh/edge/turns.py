"""Whose turn it is: writes under one key, and writes to one entity, go one after the other, in the order they came.

So the outcome of the one before is known, or is queued, when the next one is judged. Nothing is kept of a name that
nobody waits for.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class Turns:
    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Wait for all of these names, always in the same order, so that no two wait for each other."""
        wanted = sorted(set(names))
        held: list[str] = []
        try:
            for name in wanted:
                await self._take(name)
                held.append(name)
            yield
        finally:
            for name in held:
                self._give_back(name)

    def __len__(self) -> int:
        return len(self._locks)

    async def _take(self, name: str) -> None:
        lock, users = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = lock, users + 1
        try:
            await lock.acquire()
        except BaseException:
            self._forget(name)
            raise

    def _give_back(self, name: str) -> None:
        self._locks[name][0].release()
        self._forget(name)

    def _forget(self, name: str) -> None:
        lock, users = self._locks[name]
        if users == 1:
            del self._locks[name]
        else:
            self._locks[name] = lock, users - 1
