"""How full the room is that the outbox may take, and what that refuses.

At 80 % an alarm; from 95 % on new sends are refused, while what was accepted is still sent and what comes in is
taken. A disk that is full although there should be room left is the store's own 507.
"""

import asyncio
from dataclasses import dataclass
from typing import ClassVar, Final

from claudemesh.daemon.ports import OutboxStore
from claudemesh.daemon.service import Conditions
from claudemesh.daemon.settings import LiveConfig
from claudemesh.kernel.errors import DependencyError, StoreFull
from claudemesh.runtime.observe import Level, Observer

HIGH_PCT: Final = 80
REFUSE_PCT: Final = 95
LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PressureHigh:
    name: ClassVar[str] = "daemon.outbox_pressure_high"
    level: ClassVar[Level] = "warning"
    pct: int


class Pressure:
    def __init__(self, outbox: OutboxStore, live: LiveConfig, conditions: Conditions, observer: Observer) -> None:
        self._outbox = outbox
        self._live = live
        self._conditions = conditions
        self._observer = observer
        self._is_high = False
        self.pct = 0.0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await self.look()
            except DependencyError:  # nothing to go by: what was seen last stands
                continue
            finally:
                await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Measure, and let new sends in or not."""
        self.pct = 100 * await self._outbox.used_bytes() / self._live.config.disk.reserved_bytes
        if self.pct >= HIGH_PCT and not self._is_high:
            self._observer.publish(PressureHigh(int(self.pct)))
        self._is_high = self.pct >= HIGH_PCT
        self._conditions.refusal = (
            StoreFull(f"the outbox has used {self.pct:.0f} % of its room; what was accepted is still being sent")
            if self.pct >= REFUSE_PCT
            else None
        )
