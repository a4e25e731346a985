"""How full the room is that outbox and inbox may take, each as much as is reserved, and what that refuses.

At 80 % of the outbox's an alarm; from 95 % on new ids are refused, while what was accepted is still sent; at 100 %
there is inbound only: nothing is claimed any more, and what is out is settled. At 100 % of the inbox's the broker
is told to wait, and keeps what it has.

The stores judge by themselves, in the transaction that would take more; here is what they go by, and who is told. A
disk that is full although there should be room is the store's own 507.
"""

import asyncio
from dataclasses import dataclass
from typing import ClassVar, Final

from claudemesh.daemon.events import Warned
from claudemesh.daemon.ports import InboxStore, OutboxStore
from claudemesh.daemon.service import Conditions
from claudemesh.daemon.settings import LiveConfig
from claudemesh.kernel.errors import DependencyError, StoreFull
from claudemesh.runtime.observe import Level, Observer

HIGH_PCT: Final = 80
REFUSE_PCT: Final = 95
LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PressureHigh:
    """The outbox is 80 percent full; from 95 on sends are refused."""

    name: ClassVar[str] = "daemon.outbox_pressure_high"
    level: ClassVar[Level] = "warning"
    pct: int


class Pressure:
    def __init__(
        self, outbox: OutboxStore, inbox: InboxStore, live: LiveConfig, conditions: Conditions, observer: Observer
    ) -> None:
        self._outbox = outbox
        self._inbox = inbox
        self._live = live
        self._conditions = conditions
        self._observer = observer
        self._is_high = self._is_inbox_full = False
        self._set_limits()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await self.look()
            except DependencyError:  # nothing to go by: what was seen last stands
                continue
            finally:
                await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> dict[str, float]:
        """Measure, tell whom it concerns, and return how full each store's room is, in percent."""
        reserved = self._set_limits()
        outbox, inbox = await self._outbox.used_bytes(), await self._inbox.used_bytes()
        pct = {"outbox": 100 * outbox / reserved, "inbox": 100 * inbox / reserved}
        self._look_at_outbox(pct["outbox"])
        if inbox >= reserved and not self._is_inbox_full:
            self._observer.publish(Warned("inbox_full", f"{inbox} bytes are in use, and {reserved} may be"))
        self._is_inbox_full = inbox >= reserved
        return pct

    def _set_limits(self) -> int:
        reserved = self._live.config.disk.reserved_bytes
        self._outbox.limit(accepts_bytes=reserved * REFUSE_PCT // 100, claims_bytes=reserved)
        self._inbox.limit(reserved)
        return reserved

    def _look_at_outbox(self, pct: float) -> None:
        if pct >= HIGH_PCT and not self._is_high:
            self._observer.publish(PressureHigh(int(pct)))
        self._is_high = pct >= HIGH_PCT
        self._conditions.refusal = (
            StoreFull(f"the outbox has used {pct:.0f} % of its room; what was accepted is still being sent")
            if pct >= REFUSE_PCT
            else None
        )
