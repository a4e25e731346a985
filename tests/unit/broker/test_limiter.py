"""The limiter of one process: what it remembers."""

import pytest

from claudemesh.broker.limiter import MemoryLimiter
from tests.doubles import ManualClock

WINDOW_MS = 60_000


@pytest.mark.req("B1")
async def test_nothing_is_remembered_of_an_older_window() -> None:
    clock = ManualClock()
    limiter = MemoryLimiter(clock, WINDOW_MS)
    for window in range(5):
        await limiter.consume(1, window, [f"{window}-{n}" for n in range(100)], 100)
        clock.advance(WINDOW_MS)
    await limiter.consume(1, 1, ["one more"], 100)
    assert sum(len(taken) for taken in limiter._taken.values()) == 1
