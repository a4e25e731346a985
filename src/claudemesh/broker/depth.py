"""How many deliveries wait. Counting costs more the more there are, so it is not done whenever somebody asks."""

import asyncio
from typing import Final

from claudemesh.broker.ports import DeliveryStore
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import StoreUnavailable

SHARE: Final = 10  # of the time at most one part in so many is spent on counting
PATIENCE_S: Final = 2.0  # of whoever asks


class Depth:
    """Whoever asks while one counts gets what that finds."""

    def __init__(self, store: DeliveryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counting: asyncio.Task[int] | None = None
        self._counted = 0
        self._fresh_until_ms = -1

    async def count(self) -> int:
        """Return what waits now, or did a moment ago. Raises what the store does when it does not answer."""
        if self._counting is None or self._counting.done():
            if self._clock.monotonic_ms() < self._fresh_until_ms:
                return self._counted
            self._counting = asyncio.get_running_loop().create_task(self._count())
        done, _ = await asyncio.wait({self._counting}, timeout=PATIENCE_S)
        if not done:
            raise StoreUnavailable("the store takes long to answer")
        return self._counting.result()

    async def _count(self) -> int:
        began_ms = self._clock.monotonic_ms()
        self._counted = await self._store.depth()
        ended_ms = self._clock.monotonic_ms()
        self._fresh_until_ms = ended_ms + SHARE * (ended_ms - began_ms)
        return self._counted
