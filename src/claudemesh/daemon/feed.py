"""What readers are told, live: one append-only list of events, read from the store by everybody.

A stream is a cursor into that list and nothing else, so a slow reader costs no memory and a reader that comes back
goes on where it was. What is not a message is appended here, behind what it tells of: it may lag, never lead.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from claudemesh.daemon.events import (
    BrokerConnected,
    BrokerDisconnected,
    MessageReceived,
    NegotiationRefused,
    PeerSeen,
    ReceiptMoved,
    RowDied,
    RowSettled,
)
from claudemesh.daemon.ports import Happened, InboxBounds, InboxStore, TimelineEntry
from claudemesh.daemon.pressure import PressureHigh
from claudemesh.kernel.errors import CursorAhead, CursorExpired, DependencyError, InvalidRequest
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.runtime.world import World

PAGE: Final = 256
WAITING_MAX: Final = 4_096  # events that wait to be written; beyond it they are dropped, being hints
SEQ_DIGITS_MAX: Final = 18


class Feed:
    def __init__(self, inbox: InboxStore, world: World) -> None:
        self._inbox = inbox
        self._clock = world.clock
        self._waiting: asyncio.Queue[Happened] = asyncio.Queue(WAITING_MAX)
        self._moved = asyncio.Event()
        self._has_been_up = False
        observer = world.observer
        observer.subscribe(MessageReceived, lambda _: self._wake())
        observer.subscribe(RowDied, self._row_died)
        observer.subscribe(BrokerConnected, self._connected)
        observer.subscribe(RowSettled, self._settled)
        observer.subscribe(
            BrokerDisconnected, lambda event: self._note("daemon_disconnect", {"reason": event.reason})
        )
        observer.subscribe(NegotiationRefused, self._negotiation_refused)
        observer.subscribe(PressureHigh, lambda event: self._note("outbox_pressure_high", {"pct": event.pct}))
        observer.subscribe(ReceiptMoved, self._receipt_moved)
        observer.subscribe(
            PeerSeen, lambda event: self._note(event.what, {"name": event.peer, "pubkey": event.pubkey})
        )

    # --- writing -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write down what happens, until cancelled."""
        while True:
            happened = [await self._waiting.get()]
            while not self._waiting.empty():
                happened.append(self._waiting.get_nowait())
            try:
                await self._inbox.append_events(happened)
            except DependencyError:  # no room: what they told of is in its own rows all the same
                continue
            self._wake()

    def _note(self, kind: str, data: dict[str, Any]) -> None:
        if not self._waiting.full():
            self._waiting.put_nowait(Happened(kind, self._clock.wall_ms(), data))

    def _connected(self, _: BrokerConnected) -> None:
        if self._has_been_up:
            self._note("daemon_reconnect", {})
        self._has_been_up = True

    def _settled(self, event: RowSettled) -> None:
        if event.event is OutboxEvent.ACCEPTED:
            self._note("receipt", {"client_message_id": event.client_message_id, "state": "accepted"})

    def _row_died(self, event: RowDied) -> None:
        self._note("outbox_dead", {"client_message_id": event.client_message_id, "reason": event.reason})

    def _negotiation_refused(self, event: NegotiationRefused) -> None:
        data = {"close_code": event.close_code, "feature": event.feature, "reason": event.reason}
        self._note("feature_negotiation_failed", data)

    def _receipt_moved(self, event: ReceiptMoved) -> None:
        self._note("receipt", {"client_message_id": event.client_message_id, "state": event.state})

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    # --- reading -----------------------------------------------------------------------------------

    async def begin(self, cursor: str | None) -> tuple[str, int]:
        """Return the epoch and where to begin: behind the cursor, or at what comes next."""
        bounds = await self._inbox.bounds()
        return bounds.epoch, bounds.last if cursor is None else parse_cursor(cursor, bounds)

    async def follow(self, after: int, idle_s: float) -> AsyncIterator[Sequence[TimelineEntry]]:
        """Yield what happens after an event, page by page; an empty page when nothing did for a while."""
        while True:
            moved = self._moved  # before the look: what comes during it wakes us again
            page = await self._inbox.events(after, PAGE)
            if page:
                after = page[-1].seq
                yield page
                continue
            try:
                async with asyncio.timeout(idle_s):
                    await moved.wait()
            except TimeoutError:
                yield ()


def parse_cursor(cursor: str, bounds: InboxBounds) -> int:
    """Read `epoch.seq`. One of another file, from beyond its end or from before what is kept is told so."""
    epoch, _, text = cursor.partition(".")
    if not epoch or not text.isascii() or not text.isdigit() or len(text) > SEQ_DIGITS_MAX:
        raise InvalidRequest("this is no cursor: pass one back as it was given")
    if epoch != bounds.epoch:
        raise CursorExpired("the inbox was built anew since this cursor was given")
    if int(text) > bounds.last:
        raise CursorAhead
    if int(text) < bounds.swept_upto:
        raise CursorExpired("what came after this cursor is no longer kept")
    return int(text)
