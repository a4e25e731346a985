"""Read marks on their way to the broker: stored first, then told, until the broker has answered.

A reader's mark counts for the reader at once. For the sender it counts when the broker has it.
"""

import asyncio
from typing import Final

from claudemesh.daemon.ports import InboxStore
from claudemesh.daemon.receive import Receiving
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.runtime.world import World

PAGE: Final = 256


class Marks:
    def __init__(self, inbox: InboxStore, receiving: Receiving, world: World) -> None:
        self._inbox = inbox
        self._receiving = receiving
        self._roll = world.roll
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Tell what is not told, whenever there is a connection, until cancelled."""
        attempts = 0
        while True:
            await self._receiving.until_online()
            try:
                is_idle = not await self._tell_a_page()
                attempts = 0
            except MeshError:  # the connection went, or the broker could not; the marks are still there
                attempts += 1
                await asyncio.sleep(derive_backoff_ms(attempts, self._roll()) / 1000)
                continue
            if is_idle:
                await self._wake.wait()
                self._wake.clear()

    async def _tell_a_page(self) -> bool:
        untold = await self._inbox.untold(PAGE)
        if untold:
            await self._receiving.link.call("read", {"broker_message_ids": [broker_id for _, broker_id in untold]})
            await self._inbox.told([seq for seq, _ in untold])
        return bool(untold)
