"""The watchdog by itself: when it pings, and when it gives a connection up."""

import asyncio
from collections.abc import Callable

import pytest

from claudemesh.daemon.watchdog import Watchdog
from claudemesh.kernel.rhythm import Rhythm
from tests.doubles import ManualClock

WITHIN_S = 10
QUICK = Rhythm(lease_ttl_ms=2_000, ping_interval_ms=200, stale_pong_ms=1_000)  # it looks every 20 ms


class Line:
    """A connection whose other end answers pings, or not."""

    def __init__(self, clock: ManualClock, *, answers: bool = False, is_blocked: bool = False) -> None:
        self.signs = 0
        self.pinged_at: list[int] = []
        self._clock = clock
        self._answers = answers
        self._is_blocked = is_blocked

    async def ping(self) -> "asyncio.Future[float]":
        self.pinged_at.append(self._clock.monotonic)
        if self._is_blocked:
            await asyncio.Event().wait()
        self.signs += self._answers
        return asyncio.get_running_loop().create_future()


async def watched(
    line: Line, clock: ManualClock, upto_ms: int, is_busy: Callable[[], bool] = lambda: False
) -> int | None:
    """Turn the clock with every look, and return for how long nothing came when it gave up; None if it did not."""
    watching = asyncio.create_task(Watchdog(QUICK, clock).watch(line, is_busy))
    began = clock.monotonic
    async with asyncio.timeout(WITHIN_S):
        while not watching.done() and clock.monotonic - began < upto_ms:
            await asyncio.sleep(QUICK.tick_ms / 1000)
            clock.advance(QUICK.tick_ms)
    if watching.done():
        return watching.result()
    watching.cancel()
    return None


@pytest.mark.req("P7")
async def test_a_silent_connection_is_pinged_and_given_up_within_an_interval_of_its_threshold() -> None:
    clock = ManualClock()
    line = Line(clock)
    silent_ms = await watched(line, clock, 5_000)
    assert silent_ms is not None
    assert QUICK.stale_pong_ms <= silent_ms <= QUICK.stale_pong_ms + QUICK.ping_interval_ms
    assert len(line.pinged_at) >= 3


@pytest.mark.req("P7")
async def test_a_connection_that_answers_is_kept() -> None:
    clock = ManualClock()
    assert await watched(Line(clock, answers=True), clock, 3_000) is None


@pytest.mark.req("P7")
async def test_a_ping_that_cannot_get_out_does_not_keep_a_dead_connection_alive() -> None:
    clock = ManualClock()
    assert await watched(Line(clock, is_blocked=True), clock, 5_000) is not None


@pytest.mark.req("P7", "D11")
async def test_silence_while_we_do_not_read_is_not_the_brokers() -> None:
    clock = ManualClock()
    assert await watched(Line(clock), clock, 3_000, lambda: True) is None


@pytest.mark.req("P7")
async def test_a_machine_that_slept_notices_at_once_that_its_connection_is_dead() -> None:
    clock = ManualClock()
    watching = asyncio.create_task(Watchdog(QUICK, clock).watch(Line(clock)))
    await asyncio.sleep(0)
    clock.advance(3_600_000)
    assert await asyncio.wait_for(watching, WITHIN_S) >= 3_600_000
