"""Receipt frames: hints to a sender that something moved. Bounded, and dropped rather than waited for.

What is said is read from the store at the moment of saying it. A sender that needs to be sure asks (`receipts`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

from claudemesh.broker.calls import render_counts, render_state
from claudemesh.broker.model import Progress, Sender
from claudemesh.broker.ports import ReceiptStore
from claudemesh.kernel.errors import MeshError
from claudemesh.wire.frames import Receipt, ReceiptItem, render

PENDING_MAX: Final = 4_096
TOGETHER_MAX: Final = 256
PAUSE_S: Final = 0.05  # between two frames: what moves meanwhile is told in one


class Hints:
    def __init__(self, store: ReceiptStore, sender: Sender, push: Callable[[str], Awaitable[None]]) -> None:
        self._store = store
        self._sender = sender
        self._push = push
        self._pending: dict[str, None] = {}
        self._bell = asyncio.Event()

    def note(self, client_message_ids: Sequence[str]) -> None:
        if len(self._pending) < PENDING_MAX:
            self._pending |= dict.fromkeys(client_message_ids)
            self._bell.set()

    async def run(self) -> None:
        while True:
            await self._bell.wait()
            await self._tell()
            await asyncio.sleep(PAUSE_S)

    async def _tell(self) -> None:
        ids = [*islice(self._pending, TOGETHER_MAX)]
        for id_ in ids:
            del self._pending[id_]
        if not self._pending:
            self._bell.clear()
        try:
            found = await self._store.progress(self._sender, ids)
        except MeshError:
            return
        if found:
            await self._push(render(Receipt([_item(progress) for progress in found])))


def _item(progress: Progress) -> ReceiptItem:
    return ReceiptItem(
        client_message_id=progress.client_message_id,
        broker_message_id=progress.broker_message_id,
        state=render_state(progress.state),
        at=progress.at,
        counts=render_counts(progress.counts),
    )
