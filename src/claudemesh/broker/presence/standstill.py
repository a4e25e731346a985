"""Notices that nothing of this process ran for a while: it was stopped, suspended, or starved.

Whoever looks first after that notices for all: the watchdog with each of its looks, the herald before it ends
leases. A store that is slow is no standstill, since the watchdog does not wait for it.
"""

from collections.abc import Callable
from typing import Final

from claudemesh.broker.events import StoodStill
from claudemesh.kernel.clock import Clock
from claudemesh.runtime.observe import Observer

STANDSTILL_MS: Final = 2_000  # by which a look may be late before this process is taken to have stood still


class Standstill:
    def __init__(self, clock: Clock, every_ms: int, tell: Callable[[int], None], observer: Observer) -> None:
        """Expect to be asked that often; tell how long it was."""
        self._clock = clock
        self._every_ms = every_ms
        self._tell = tell
        self._observer = observer
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._noticed_ms = self.awake_since_ms = self._clock.monotonic_ms()

    def notice(self) -> None:
        now = self._clock.monotonic_ms()
        late_ms, self._noticed_ms = now - self._noticed_ms - self._every_ms, now
        if late_ms > STANDSTILL_MS:
            self.awake_since_ms = now
            self._tell(late_ms)
            self._observer.publish(StoodStill(late_ms))
