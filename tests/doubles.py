"""Time and a store's writer in the hands of a test."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import apsw

from claudemesh.storage.sqlite import Database

WITHIN_S = 30


class ManualClock:
    """A clock that a test turns by hand, its two sides each by itself or both together."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000_000
        self.monotonic = 5_000_000

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def advance(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms


@asynccontextmanager
async def held_writer(database: Database) -> AsyncIterator[None]:
    """Make all writes called inside wait, so that they can share a transaction."""
    entered, release = threading.Event(), threading.Event()

    def wait(_connection: apsw.Connection, items: Sequence[None]) -> list[None]:
        entered.set()
        release.wait(WITHIN_S)
        return list(items)

    holding = database.write(wait, None)
    assert await asyncio.to_thread(entered.wait, WITHIN_S)
    try:
        yield
    finally:
        release.set()
        await holding
