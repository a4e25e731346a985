"""What readers are told, live: one append-only list of events, read from the store by whoever is not up to date.

A stream is a cursor into that list and nothing else, so a slow reader costs no memory and a reader that comes back
goes on where it was. One that has seen everything gets what was just committed without asking the store for it: the
numbers have no gaps that matter, so what begins at the next number is what comes next. What is not a message is
appended here, behind what it tells of: it may lag, never lead.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from claudemesh.daemon.events import (
    BrokerConnected,
    BrokerDisconnected,
    NegotiationRefused,
    ReceiptMoved,
    RowDied,
    RowsSettled,
    SessionAlerted,
)
from claudemesh.daemon.ports import Happened, InboxMessage, InboxStore, TimelineEntry
from claudemesh.daemon.pressure import PressureHigh
from claudemesh.kernel.errors import CursorAhead, CursorExpired, DependencyError, InvalidRequest
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.runtime.world import World
from claudemesh.storage.bounds import Bounds

PAGE: Final = 256
WAITING_MAX: Final = 4_096  # events that wait to be written; beyond it they are dropped, being hints
SEQ_DIGITS_MAX: Final = 18


class Feed:
    def __init__(self, inbox: InboxStore, world: World) -> None:
        self._inbox = inbox
        self._steady_ms = world.steady_ms
        self._waiting: list[Happened] = []
        self._has_waiting = asyncio.Event()
        self._moved = asyncio.Event()
        self._newest: Sequence[TimelineEntry] = ()  # what was committed last, in one piece
        self._has_been_up = False
        observer = world.observer
        observer.subscribe(RowDied, self._row_died)
        observer.subscribe(BrokerConnected, self._connected)
        observer.subscribe(RowsSettled, self._settled)
        observer.subscribe(
            BrokerDisconnected, lambda event: self._note("daemon_disconnect", {"reason": event.reason})
        )
        observer.subscribe(NegotiationRefused, self._negotiation_refused)
        observer.subscribe(PressureHigh, lambda event: self._note("outbox_pressure_high", {"pct": event.pct}))
        observer.subscribe(ReceiptMoved, self._receipt_moved)
        observer.subscribe(SessionAlerted, self._session_alerted)

    # --- writing -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write down what happens, until cancelled."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            happened, self._waiting = self._waiting, []
            try:
                self._tell(await self._inbox.append_events(happened))
            except DependencyError:  # no room: what they told of is in its own rows all the same
                continue

    def received(self, messages: Sequence[InboxMessage]) -> None:
        """Tell of messages that are in the inbox now, and were not."""
        self._tell(
            [
                TimelineEntry(seq=message.seq, type="message", at=message.received_at, data=None, message=message)
                for message in messages
            ]
        )

    def told(self, entries: Sequence[TimelineEntry]) -> None:
        """Tell of what others wrote down."""
        self._tell(entries)

    def _note(self, kind: str, *data: dict[str, Any]) -> None:
        now, room = self._steady_ms(), WAITING_MAX - len(self._waiting)
        self._waiting += [Happened(kind, now, one) for one in data[:room]]
        self._has_waiting.set()

    def _connected(self, _: BrokerConnected) -> None:
        if self._has_been_up:
            self._note("daemon_reconnect", {})
        self._has_been_up = True

    def _settled(self, event: RowsSettled) -> None:
        if event.event is OutboxEvent.ACCEPTED:
            self._note(
                "receipt", *({"client_message_id": id_, "state": "accepted"} for id_ in event.client_message_ids)
            )

    def _row_died(self, event: RowDied) -> None:
        self._note("outbox_dead", {"client_message_id": event.client_message_id, "reason": event.reason})

    def _negotiation_refused(self, event: NegotiationRefused) -> None:
        data = {"close_code": event.close_code, "feature": event.feature, "reason": event.reason}
        self._note("feature_negotiation_failed", data)

    def _receipt_moved(self, event: ReceiptMoved) -> None:
        self._note("receipt", {"client_message_id": event.client_message_id, "state": event.state})

    def _session_alerted(self, event: SessionAlerted) -> None:
        self._note("session_alert", {"session_pubkey": event.session_pubkey, "unread": event.unread})

    def _tell(self, committed: Sequence[TimelineEntry]) -> None:
        if not committed:
            return
        if not self._newest or committed[0].seq > self._newest[-1].seq:
            self._newest = committed
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
            page = await self._page(after)
            if page:
                after = page[-1].seq
                yield page
                continue
            try:
                async with asyncio.timeout(idle_s):
                    await moved.wait()
            except TimeoutError:
                self._newest = ()  # the store is asked again: a write whose caller was cancelled was told by nobody
                yield ()

    async def _page(self, after: int) -> Sequence[TimelineEntry]:
        if self._newest and after == self._newest[-1].seq:
            return ()
        if self._newest and after + 1 == self._newest[0].seq:
            return self._newest
        return await self._inbox.events(after, PAGE)


def parse_cursor(cursor: str, bounds: Bounds) -> int:
    """Read `epoch.seq`. One of another file, from beyond its end or from before what is kept is told so."""
    epoch, _, text = cursor.partition(".")
    if not epoch or not text.isascii() or not text.isdigit() or len(text) > SEQ_DIGITS_MAX:
        raise InvalidRequest("this is no cursor: pass one back as it was given")
    if epoch != bounds.epoch:
        raise CursorExpired("the store was built anew since this cursor was given")
    if int(text) > bounds.last:
        raise CursorAhead
    if int(text) < bounds.swept_upto:
        raise CursorExpired("what came after this cursor is no longer kept")
    return int(text)
