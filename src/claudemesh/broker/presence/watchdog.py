"""Both halves of keeping a connection honest: ask whether it is there, and end it when it does not answer.

One task looks at all connections. Each is pinged once an interval, and told with it that its lease goes on; one
that showed no life for too long is cut. The time during which this process itself did not run is nobody's silence.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from claudemesh.broker.events import StoodStill, TaskFailed
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.rhythm import Rhythm
from claudemesh.runtime.observe import Observer

STANDSTILL_MS: Final = 2_000  # by which a look may be late before this process is taken to have stood still


class Watched(Protocol):
    """A connection, as the watchdog sees it."""

    def silent_ms(self) -> int:
        """How long ago it last showed life."""

    def renew(self) -> None:
        """Ask whether it is there, and say that its lease goes on; returns at once."""

    def cut(self) -> None:
        """End it: it does not answer any more."""


class Standstill:
    """Takes turns, and notices when one took much longer than it should: stopped, suspended, or starved."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turned_ms = clock.monotonic_ms()

    async def turn(self, ms: int) -> int:
        """Wait for the next turn, and return how long this process stood still since the last; 0 if it ran."""
        await asyncio.sleep(ms / 1000)
        now = self._clock.monotonic_ms()
        late_ms, self._turned_ms = now - self._turned_ms - ms, now
        return late_ms if late_ms > STANDSTILL_MS else 0


class Watchdog:
    def __init__(self, rhythm: Rhythm, clock: Clock, roll: Callable[[], float], observer: Observer) -> None:
        self._rhythm = rhythm
        self._clock = clock
        self._roll = roll
        self._observer = observer
        self._renewed: dict[Watched, int] = {}  # when each was last asked
        self._awake_since_ms = clock.monotonic_ms()

    def watch(self, one: Watched) -> None:
        """Begin, at some point of the interval: those who came together are not asked together."""
        interval = self._rhythm.ping_interval_ms
        self._renewed[one] = self._clock.monotonic_ms() - int(interval * self._roll() / 2)

    def forget(self, one: Watched) -> None:
        self._renewed.pop(one, None)

    def bound(self, silent_ms: int) -> int:
        """Return how much of a silence is not our own."""
        return max(0, min(silent_ms, self._clock.monotonic_ms() - self._awake_since_ms))

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        standstill = Standstill(self._clock)
        while True:
            stood_still_ms = await standstill.turn(self._rhythm.tick_ms)
            if stood_still_ms:
                self._awake_since_ms = self._clock.monotonic_ms()
                self._observer.publish(StoodStill(stood_still_ms))
            self.look()

    def look(self) -> None:
        for one in list(self._renewed):
            try:
                self._look_at(one)
            except Exception as error:  # noqa: BLE001  one connection must not end the watch over all others
                self._observer.publish(TaskFailed.of("watch", error))

    def _look_at(self, one: Watched) -> None:
        now, rhythm = self._clock.monotonic_ms(), self._rhythm
        if self.bound(one.silent_ms()) >= rhythm.stale_pong_ms:
            self.forget(one)
            one.cut()
        elif now - self._renewed[one] >= rhythm.ping_interval_ms:
            self._renewed[one] = now
            one.renew()
