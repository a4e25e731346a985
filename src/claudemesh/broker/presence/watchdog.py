"""Both halves of keeping a connection honest: ask whether it is there, and end it when it does not answer.

One task looks at all connections. Each is pinged once an interval, and told with it that its lease goes on; one
that showed no life for too long is cut. The time during which this process itself did not run is nobody's silence.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from claudemesh.broker.events import TaskFailed
from claudemesh.broker.presence.standstill import Standstill
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.rhythm import Rhythm
from claudemesh.runtime.observe import Observer


class Watched(Protocol):
    """A connection, as the watchdog sees it."""

    def silent_ms(self) -> int:
        """How long ago it last showed life."""

    def renew(self) -> None:
        """Ask whether it is there, and say that its lease goes on; returns at once."""

    def cut(self) -> None:
        """End it: it does not answer any more."""


class Watchdog:
    def __init__(
        self, rhythm: Rhythm, clock: Clock, standstill: Standstill, roll: Callable[[], float], observer: Observer
    ) -> None:
        self._rhythm = rhythm
        self._clock = clock
        self._standstill = standstill
        self._roll = roll
        self._observer = observer
        self._renewed: dict[Watched, int] = {}  # when each was last asked

    def watch(self, one: Watched) -> None:
        """Begin, at some point of the interval: those who came together are not asked together."""
        interval = self._rhythm.ping_interval_ms
        self._renewed[one] = self._clock.monotonic_ms() - int(interval * self._roll() / 2)

    def forget(self, one: Watched) -> None:
        self._renewed.pop(one, None)

    def bound(self, silent_ms: int) -> int:
        """Return how much of a silence is not our own."""
        return max(0, min(silent_ms, self._clock.monotonic_ms() - self._standstill.awake_since_ms))

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._rhythm.tick_ms / 1000)
            self._standstill.notice()
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
