"""The end of keeping: what is past its time goes, page by page, while the ids stay known.

Messages and events leave the inbox. Of a send that the broker has, the outbox drops the payload, which nobody needs
any more, and keeps all that answers a retry.
"""

import asyncio
from contextlib import suppress
from typing import Final

from claudemesh.daemon.ports import InboxStore, InboxSweep, OutboxStore
from claudemesh.daemon.settings import LiveConfig
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.errors import DependencyError
from claudemesh.outbox.emptying import empty_settled
from claudemesh.runtime.world import World

PAGE: Final = 500
EVERY_S: Final = 3_600.0
TOMBSTONE_DAYS: Final = 400  # longer than a broker keeps a message, and so could deliver it again


async def sweep_inbox(inbox: InboxStore, live: LiveConfig, world: World) -> int:
    """Sweep all that is too old now; return how many events went."""
    gone = 0
    while True:
        now = world.earliest_ms()
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


async def empty_outbox(outbox: OutboxStore, live: LiveConfig, world: World) -> int:
    """Drop the payloads of settled sends that are old; say how many."""
    return await empty_settled(outbox, world.earliest_ms() - live.config.outbox.prune_after_days * DAY_MS)


async def sweep_for_ever(outbox: OutboxStore, inbox: InboxStore, live: LiveConfig, world: World) -> None:
    while True:
        with suppress(DependencyError):  # no room even for that: the next time
            await sweep_inbox(inbox, live, world)
            await empty_outbox(outbox, live, world)
        await asyncio.sleep(EVERY_S)
