"""How many deliveries wait. Counting costs more the more there are, so it is not done whenever somebody asks."""

import asyncio
from typing import Final

from claudemesh.broker.ports import DeliveryStore
from claudemesh.kernel.clock import Clock

SHARE: Final = 10  # of the time at most one part in so many is spent on counting


class Depth:
    def __init__(self, store: DeliveryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._turn = asyncio.Lock()
        self._counted = 0
        self._fresh_until_ms = -1

    async def count(self) -> int:
        """Return what waits now, or did a moment ago. Raises what the store does when it does not answer."""
        async with self._turn:
            began_ms = self._clock.monotonic_ms()
            if began_ms >= self._fresh_until_ms:
                self._counted = await self._store.depth()
                ended_ms = self._clock.monotonic_ms()
                self._fresh_until_ms = ended_ms + SHARE * (ended_ms - began_ms)
            return self._counted
