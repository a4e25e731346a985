"""Members that speak to a broker by its WebSocket: the daemon's own end of the wire, with nothing behind it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from claudemesh.daemon import identity
from claudemesh.daemon.credentials import Credentials
from claudemesh.daemon.handshake import LinkSettings, connect, socket_url
from claudemesh.daemon.link import Link, LinkClosed
from claudemesh.runtime.world import real_world
from claudemesh.wire.frames import DeliverItem, Outcome, ReceiptItem
from claudemesh.wire.negotiation import Agreed

FRAME = 64
FRAMES_IN_FLIGHT = 4


class Sink:
    """Counts what arrives. What it has counted is acknowledged."""

    def __init__(self) -> None:
        self.count = 0
        self._bell = asyncio.Event()

    async def connected(self, link: Link, agreed: Agreed) -> None: ...

    async def disconnected(self) -> None: ...

    async def deliver(self, items: Sequence[DeliverItem]) -> None:
        self.count += len(items)
        self._bell.set()

    def refused(self, reasons: Sequence[str]) -> None: ...

    async def receipts(self, items: Sequence[ReceiptItem]) -> None: ...

    async def event(self, name: str, data: dict[str, Any]) -> None: ...

    async def until(self, count: int) -> None:
        while self.count < count:
            self._bell.clear()
            await self._bell.wait()


@asynccontextmanager
async def linked(state_dir: Path, sink: Sink) -> AsyncIterator[Link]:
    """Connect as the member of this state directory, until the block ends."""
    joined = identity.load_membership(state_dir)
    settings = LinkSettings(
        broker_url=joined.broker_url,
        socket_url=socket_url(joined.broker_url),
        broker_key=joined.broker_key,
        mesh_id=joined.mesh_id,
        instance_id=uuid4().hex,
    )
    link, _ = await connect(settings, Credentials(identity.load_keys(state_dir)), real_world())
    reading = asyncio.get_running_loop().create_task(link.run(sink))
    try:
        yield link
    finally:
        await link.close()
        with suppress(LinkClosed):
            await reading


def in_frames(payloads: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [payloads[at : at + FRAME] for at in range(0, len(payloads), FRAME)]


async def send_all(link: Link, frames: Sequence[Sequence[bytes]]) -> list[Outcome]:
    """Send frame after frame, with a few of them unanswered at a time."""
    outcomes: list[Outcome] = []
    unanswered: deque[asyncio.Future[list[Outcome]]] = deque()
    for frame in frames:
        if len(unanswered) == FRAMES_IN_FLIGHT:
            outcomes += await unanswered.popleft()
        unanswered.append(await link.send(frame))
    for future in unanswered:
        outcomes += await future
    return outcomes
