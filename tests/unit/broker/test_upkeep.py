"""Of several brokers on a store one sweeps, and all of them beat."""

import asyncio
from typing import Any

import pytest

from claudemesh.broker import upkeep
from claudemesh.broker.upkeep import Upkeep
from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.runtime.observe import Observer
from tests.doubles import ManualClock

BOUND_S = 30


class Seats:
    """Beats that are counted, and fail at first."""

    def __init__(self) -> None:
        self.is_keeper = False
        self.beats = 0
        self.has_beaten = asyncio.Event()

    async def beat(self) -> None:
        self.beats += 1
        if self.beats < 3:
            raise StoreUnavailable
        if self.beats == 20:
            self.has_beaten.set()

    async def look_over(self) -> None: ...

    async def catch_up(self) -> None: ...


class Leases:
    def __init__(self) -> None:
        self.count = 0
        self.has_expired = asyncio.Event()

    async def expire(self, _now_ms: int) -> int:
        self.count += 1
        self.has_expired.set()
        return 0


@pytest.mark.req("B7")
async def test_only_the_keeper_does_what_is_done_once_and_a_beat_that_fails_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "BEAT_EVERY_S", 0.001)
    monkeypatch.setattr(upkeep, "EXPIRE_EVERY_S", 0.001)
    seats: Any = Seats()
    leases: Any = Leases()
    nothing: Any = None
    running = asyncio.create_task(
        Upkeep(nothing, leases, nothing, ManualClock(), Observer(), 365).run(seats, seats.look_over, 3_600)
    )
    async with asyncio.timeout(BOUND_S):
        await seats.has_beaten.wait()
        assert leases.count == 0
        seats.is_keeper = True
        await leases.has_expired.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
