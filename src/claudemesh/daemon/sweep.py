"""The inbox's end of keeping: messages and events go after their time, page by page, while the ids stay known."""

import asyncio
from contextlib import suppress
from typing import Final

from claudemesh.daemon.ports import InboxStore, InboxSweep
from claudemesh.daemon.settings import LiveConfig
from claudemesh.kernel.errors import DependencyError
from claudemesh.runtime.world import World

DAY_MS: Final = 24 * 3_600_000
PAGE: Final = 500
EVERY_S: Final = 3_600.0
TOMBSTONE_DAYS: Final = 400  # longer than a broker keeps a message, and so could deliver it again


async def sweep_inbox(inbox: InboxStore, live: LiveConfig, world: World) -> int:
    """Sweep all that is too old now; return how many events went."""
    gone = 0
    while True:
        now = world.clock.wall_ms()
        went = await inbox.sweep(
            InboxSweep(
                before=now - live.config.inbox.keep_days * DAY_MS,
                forget_before=now - TOMBSTONE_DAYS * DAY_MS,
                now=now,
                limit=PAGE,
            )
        )
        gone += went
        if went == 0:
            return gone


async def sweep_for_ever(inbox: InboxStore, live: LiveConfig, world: World) -> None:
    while True:
        with suppress(DependencyError):  # no room even for that: the next time
            await sweep_inbox(inbox, live, world)
        await asyncio.sleep(EVERY_S)
