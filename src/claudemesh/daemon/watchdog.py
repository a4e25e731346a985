"""The daemon's own watchdog: it pings the broker, and says when a connection has shown no life for too long.

Any frame and any pong is a sign of life. It looks often, and by a clock that goes on while the machine sleeps, so
that a connection which died meanwhile is given up a moment after waking.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from claudemesh.kernel.clock import Clock
from claudemesh.kernel.rhythm import Rhythm


class Watched(Protocol):
    """A connection: `signs` grows with whatever comes over it."""

    signs: int

    async def ping(self) -> Awaitable[float]: ...


class Watchdog:
    def __init__(self, rhythm: Rhythm, clock: Clock) -> None:
        self._rhythm = rhythm
        self._clock = clock

    async def watch(self, connection: Watched, is_busy: Callable[[], bool] = lambda: False) -> int:
        """Return when nothing has come for too long: for how many ms. While we do not read, nothing can come."""
        pinging: asyncio.Task[None] | None = None
        signs, heard_ms = connection.signs, self._clock.monotonic_ms()
        pinged_ms = heard_ms
        try:
            while True:
                await asyncio.sleep(self._rhythm.tick_ms / 1000)
                now_ms = self._clock.monotonic_ms()
                if connection.signs != signs or is_busy():
                    signs, heard_ms = connection.signs, now_ms
                if now_ms - heard_ms >= self._rhythm.stale_pong_ms:
                    return now_ms - heard_ms
                # Not awaited: a ping that finds the way out blocked would never see that time is up.
                if now_ms - pinged_ms >= self._rhythm.ping_interval_ms and (pinging is None or pinging.done()):
                    pinged_ms = now_ms
                    pinging = asyncio.get_running_loop().create_task(_ping(connection))
        finally:
            if pinging is not None:
                pinging.cancel()


async def _ping(connection: Watched) -> None:
    with suppress(Exception):  # the connection is ending, which whoever reads it is told
        await connection.ping()
