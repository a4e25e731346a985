"""The life of one message, step by step, each with what it rests on.

Nothing is inferred: a step is there because a row says so, the daemon's own or the broker's. A live socket, a push
or a poll is never evidence.
"""

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
        steps = _own_steps(row)
        told = await self._ask(row)
        counts: dict[str, int] = {}
        if told is not None:
            counts = dict(told.get("counts", {}))
            steps += [
                Step(
                    state=step["state"],
                    at=None if step.get("at") is None else render_instant(step["at"]),
                    evidence=step["evidence"],
                    recipient=step.get("recipient"),
                )
                for step in told.get("steps", [])
            ]
        state = steps[-1].state if told is None else str(told["state"])
        return Trace(
            client_message_id=row.client_message_id,
            broker_message_id=row.broker_message_id,
            direction="sent",
            state=state,
            steps=steps,
            counts=counts,
            is_current=told is not None,
        )

    async def _ask(self, row: OutboxRow) -> dict[str, Any] | None:
        if row.status is not OutboxState.DONE:
            return None
        try:
            answer = await self._receiving.link.call("receipts", {"ids": [row.client_message_id]})
        except MeshError:
            return None
        receipts: list[dict[str, Any]] = answer["receipts"]
        return receipts[0] if receipts else None


def _own_steps(row: OutboxRow) -> list[Step]:
    steps = [Step("queued", render_instant(row.enqueued_at), f"outbox row {row.id}")]
    if row.status is OutboxState.DONE:
        evidence = f"broker message {row.broker_message_id}, history {row.history_id}"
        steps.append(
            Step("accepted", None if row.delivered_at is None else render_instant(row.delivered_at), evidence)
        )
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
