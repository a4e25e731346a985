"""What an operator may do with a row: send it anew under a fresh id, or give it up. The used id stays used.

A row that was tried may have arrived although nobody heard so. Before it is given up, the broker is asked to close
its id: either it has the message, and the row is done, or it will never take it any more. Without that answer the
operator has to say `force`, since a second message could come of it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from claudemesh.daemon.model import Destination, Retirement, SendAsked, Settlement, Submission
from claudemesh.daemon.ports import OutboxStore
from claudemesh.daemon.receive import Receiving
from claudemesh.daemon.service import Accepting
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.errors import (
    BrokerUnreachable,
    DependencyError,
    InvalidRequest,
    NotFound,
    StaleClaim,
    TransitionRefused,
)
from claudemesh.kernel.fingerprint import Priority
from claudemesh.kernel.ids import parse_client_message_id
from claudemesh.kernel.outbox import MACHINE, OutboxEvent
from claudemesh.outbox.model import OperatorsRow
from claudemesh.runtime.world import World
from claudemesh.wire.frames import parse_item, retire_args

PAGE: Final = 500


class Patch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be changed in a message that is sent anew."""

    to: str | None = None
    message: str | None = None
    meta: dict[str, Any] | None = None
    priority: Priority | None = None


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of the row: `aborted`, or `done` because the broker had it all along."""

    id: str
    status: str
    superseded_by: str | None = None
    client_message_id: str | None = None
    broker_message_id: str | None = None
    history_id: int | None = None


class Operating:
    def __init__(self, outbox: OutboxStore, accepting: Accepting, receiving: Receiving, world: World) -> None:
        self._outbox = outbox
        self._accepting = accepting
        self._receiving = receiving
        self._world = world

    async def requeue(
        self, row_id: str, *, new_client_id: str | None, patch: Patch, force: bool = False
    ) -> Decision:
        row = await self._find(row_id)
        successor = self._successor(row, new_client_id, patch)
        return await self._close(row, successor, force=force)

    async def drop(self, row_id: str, *, force: bool = False) -> Decision:
        return await self._close(await self._find(row_id), None, force=force)

    async def prune(self, after_days: int) -> int:
        """Empty all settled rows that are older, and say how many that were."""
        before, emptied, after = self._world.steady_ms() - after_days * DAY_MS, 0, 0
        while True:
            count, following = await self._outbox.prune(before, after, PAGE)
            emptied += count
            if following is None:
                return emptied
            after = following

    # --- steps ---------------------------------------------------------------------------------------

    async def _find(self, row_id: str) -> OperatorsRow:
        row = await self._outbox.for_operator(row_id)
        if row is None:
            raise NotFound("the outbox has no row with this id")
        if row.state not in MACHINE.sources(OutboxEvent.RETIRED):
            raise TransitionRefused(f"the row is {row.state}; only a dead or pending one can be given up")
        return row

    def _successor(self, row: OperatorsRow, new_client_id: str | None, patch: Patch) -> Submission:
        item = parse_item(row.payload)
        asked = SendAsked(
            client_message_id=parse_client_message_id(new_client_id or self._world.ids.ulid()),
            to=row.to_asked if patch.to is None else patch.to,
            body=item.body if patch.message is None else patch.message,
            reply_to=item.reply_to,
            priority=patch.priority or item.priority,
            meta=item.meta if patch.meta is None else patch.meta,
        )
        if asked.client_message_id == row.client_message_id:
            raise InvalidRequest("the old id can never be used again: give another one, or none")
        known = Destination(item.kind, item.ref) if patch.to is None else None
        submission = self._accepting.prepare(asked, known)
        if submission.refusal is not None:
            raise submission.refusal
        return submission

    async def _close(self, row: OperatorsRow, successor: Submission | None, *, force: bool) -> Decision:
        if row.attempts > 0:
            accepted = await self._ask_broker(row, force=force)
            if accepted is not None:
                return await self._conclude_done(row, accepted)
        now = self._world.steady_ms()
        await self._outbox.retire(Retirement(row=row, at=now, by="operator", successor=successor))
        if successor is None:
            return Decision(id=row.row_id, status="aborted")
        self._receiving.queued((successor.destination,))
        return Decision(
            id=row.row_id,
            status="aborted",
            superseded_by=successor.row_id,
            client_message_id=successor.asked.client_message_id,
        )

    async def _ask_broker(self, row: OperatorsRow, *, force: bool) -> Mapping[str, Any] | None:
        """Return the accept if the broker has the message; None if it will never take it."""
        try:
            answer: Mapping[str, Any] = await self._receiving.link.call(
                "retire", retire_args(row.client_message_id, row.payload)
            )
        except DependencyError:  # not there, or silent
            if force:
                return None
            raise BrokerUnreachable(
                "the row was tried, and only the broker knows whether it arrived: connect, or say --force and risk "
                "a second message"
            ) from None
        return answer if answer["accepted"] else None

    async def _conclude_done(self, row: OperatorsRow, accepted: Mapping[str, Any]) -> Decision:
        settlement = Settlement(
            seq=row.seq,
            event=OutboxEvent.ACCEPTED,
            at=self._world.steady_ms(),
            broker_message_id=accepted["broker_message_id"],
            history_id=accepted["history_id"],
        )
        if not (await self._outbox.settle([settlement]))[0]:
            raise StaleClaim("the row moved while the broker was asked: look again")
        return Decision(
            id=row.row_id,
            status="done",
            broker_message_id=settlement.broker_message_id,
            history_id=settlement.history_id,
        )
