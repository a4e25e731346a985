"""The life of one message, step by step, each with what it rests on.

Nothing is inferred: a step is there because a row says so, the daemon's own or the broker's. A live socket, a push
or a poll is never evidence.
"""

from operator import itemgetter
from typing import Any

import msgspec

from claudemesh.daemon.model import OutboxRow
from claudemesh.daemon.ports import InboxMessage, InboxStore, OutboxStore
from claudemesh.daemon.receive import Receiving
from claudemesh.kernel.errors import MeshError, NotFound
from claudemesh.kernel.outbox import OutboxState
from claudemesh.wire.instants import render_instant


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    state: str
    at: str | None
    evidence: str
    recipient: str | None = None


class Trace(msgspec.Struct, frozen=True):
    client_message_id: str
    broker_message_id: str | None
    direction: str  # sent or received
    state: str
    steps: list[Step]
    counts: dict[str, int]  # recipients by state, as the broker's receipts say
    is_current: bool  # whether the broker was asked just now; else this is what the daemon itself knows


class Tracing:
    def __init__(self, outbox: OutboxStore, inbox: InboxStore, receiving: Receiving) -> None:
        self._outbox = outbox
        self._inbox = inbox
        self._receiving = receiving

    async def trace(self, any_id: str) -> Trace:
        """Tell the life of an own send, by any of its ids, or of a received message, by the broker's."""
        row = await self._outbox.find(any_id)
        if row is not None:
            return await self._sent(row)
        message = await self._inbox.find(any_id)
        if message is None:
            raise NotFound("neither the outbox nor the inbox has a message with this id")
        return _received(message)

    async def _sent(self, row: OutboxRow) -> Trace:
        told = await self._ask(row)
        steps = _own_steps(row, told) + _recipients_steps(told)
        return Trace(
            client_message_id=row.client_message_id,
            broker_message_id=row.broker_message_id,
            direction="sent",
            state=steps[-1].state if told is None else str(told["state"]),
            steps=steps,
            counts={} if told is None else dict(told["counts"]),
            is_current=told is not None,
        )

    async def _ask(self, row: OutboxRow) -> dict[str, Any] | None:
        """Ask the broker how far the message came; None if it cannot say, or has not got it yet."""
        if row.status is not OutboxState.DONE:
            return None
        try:
            answer = await self._receiving.link.call("receipts", {"ids": [row.client_message_id]})
        except MeshError:
            return None
        items: list[dict[str, Any]] = answer["items"]
        return items[0] if items else None


def _recipients_steps(told: dict[str, Any] | None) -> list[Step]:
    """Return what each recipient's own row says, in the order it happened."""
    if told is None:
        return []
    dated: list[tuple[int, Step]] = []
    for recipient in told["recipients"]:
        for state, words in _evidence(recipient, is_work=told.get("kind") == "queue").items():
            at = recipient.get(f"{state}_at")
            if at is not None:
                dated.append((at, Step(state, render_instant(at), words, recipient.get("name"))))
    return [step for _, step in sorted(dated, key=itemgetter(0))]


def _evidence(recipient: dict[str, Any], *, is_work: bool) -> dict[str, str]:
    """Say what each state of a recipient rests on. A queue's message is in no inbox: it was leased."""
    who = recipient.get("name") or "a worker"
    delivered, acted = f"{who}'s inbox acknowledged it", f"{who} answered it"
    if is_work:
        further = ", and handed it over to a ledger" if recipient.get("handed_over") else ""
        delivered = f"{who} leased it{further}"
        acted = f"{who} acked it as done, or answered it"
    return {
        "delivered": delivered,
        "read": f"{who} marked it as read",
        "acted": acted,
        "dead": f"given up: {recipient.get('dead_reason') or 'no reason was kept'}",
    }


def _own_steps(row: OutboxRow, told: dict[str, Any] | None) -> list[Step]:
    steps = [Step("queued", render_instant(row.enqueued_at), f"outbox row {row.id}")]
    if row.status is OutboxState.DONE:
        at = row.delivered_at if told is None else told["accepted_at"]  # the broker's commit, else when we heard
        evidence = f"broker message {row.broker_message_id}, history {row.history_id}"
        steps.append(Step("accepted", None if at is None else render_instant(at), evidence))
    elif row.status is OutboxState.DEAD:
        steps.append(Step("dead", None, row.last_error or "no reason was kept"))
    elif row.status is OutboxState.ABORTED:
        at = None if row.aborted_at is None else render_instant(row.aborted_at)
        successor = f", superseded by row {row.superseded_by}" if row.superseded_by else ""
        steps.append(Step("aborted", at, f"given up by {row.aborted_by}{successor}"))
    return steps


def _received(message: InboxMessage) -> Trace:
    steps = [
        Step("accepted", render_instant(message.accepted_at), f"history {message.history_id}"),
        Step("delivered", render_instant(message.received_at), f"inbox row {message.seq}"),
    ]
    if message.read_at is not None:
        steps.append(Step("read", render_instant(message.read_at), "marked by its reader"))
    return Trace(
        client_message_id=message.client_message_id,
        broker_message_id=message.broker_message_id,
        direction="received",
        state=steps[-1].state,
        steps=steps,
        counts={},
        is_current=True,
    )
