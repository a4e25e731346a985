"""Sends that the broker has and whose recipients have not got: whose receipts somebody may be waiting for.

The broker's hints are not to be relied on: one that was missed is asked for after the next connection. What is held
here is bounded. A start takes up the newest of the outbox again; what of them was told before is not known then, so
a hint may come twice. The truth is the broker's, and `trace` asks for it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from claudemesh.daemon.events import ReceiptMoved, RowsSettled
from claudemesh.daemon.ports import BrokerLink
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.runtime.observe import Observer

HELD_MAX: Final = 10_000
PAGE: Final = 500
FINISHED: Final = frozenset({"acted", "dead"})  # nothing follows


class Unfinished:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._states: OrderedDict[str, str] = OrderedDict()  # by client message id, oldest first
        observer.subscribe(RowsSettled, self._settled)

    def _settled(self, event: RowsSettled) -> None:
        if event.event is OutboxEvent.ACCEPTED:
            self.hold(event.client_message_ids)

    def hold(self, client_message_ids: Iterable[str]) -> None:
        """Take on sends that the broker has, the oldest first."""
        for client_message_id in client_message_ids:
            self._states[client_message_id] = "accepted"
        while len(self._states) > HELD_MAX:
            self._states.popitem(last=False)

    def move(self, client_message_id: str, state: str) -> None:
        """Tell that a message has come further, if that is news."""
        if self._states.get(client_message_id) == state:
            return
        if state in FINISHED:
            self._states.pop(client_message_id, None)
        elif client_message_id in self._states:
            self._states[client_message_id] = state
        self._observer.publish(ReceiptMoved(client_message_id, state))

    async def ask(self, link: BrokerLink) -> None:
        """Ask for all that are held, after a connection was lost and made again."""
        held = list(self._states)
        for start in range(0, len(held), PAGE):
            await self._ask_page(link, held[start : start + PAGE])

    async def _ask_page(self, link: BrokerLink, ids: Sequence[str]) -> None:
        answer = await link.call("receipts", {"ids": list(ids)})
        for item in answer["items"]:
            self.move(str(item["client_message_id"]), str(item["state"]))
