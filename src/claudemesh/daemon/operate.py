"""What an operator may do with a row: send it anew under a fresh id, or give it up. The used id stays used.

A row that was tried may have arrived although nobody heard so. Before it is given up, the broker is asked to close
its id: either it has the message, and the row is done, or it will never take it any more. Without that answer the
operator has to say `force`, since a second message could come of it.

An answer may be lost, so a decision can be made again: it is found in the row. One that was given up says by whom
and for which message. One that is done says nothing of an operator, and most never met any; so a mark of the
decision that found it done is written with it, and nobody else is answered as if it were theirs.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from claudemesh.daemon.model import Destination, OutboxRow, Retirement, SendAsked, Settlement, Submission
from claudemesh.daemon.ports import OutboxStore
from claudemesh.daemon.receive import Receiving
from claudemesh.daemon.service import Accepting
from claudemesh.kernel.canonical import canonicalize
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.errors import (
    BrokerUnreachable,
    DependencyError,
    IdempotencyConflict,
    InvalidRequest,
    NotFound,
    StaleClaim,
    TransitionRefused,
)
from claudemesh.kernel.fingerprint import Priority, prefix
from claudemesh.kernel.ids import parse_client_message_id
from claudemesh.kernel.outbox import MACHINE, OutboxEvent, OutboxState
from claudemesh.outbox.model import OperatorsRow
from claudemesh.runtime.world import World
from claudemesh.wire.frames import parse_item, retire_args

PAGE: Final = 500
OPERATOR: Final = "operator"


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
    replayed: bool = False  # it was decided so before, by the same caller: nothing was done now


class Operating:
    def __init__(self, outbox: OutboxStore, accepting: Accepting, receiving: Receiving, world: World) -> None:
        self._outbox = outbox
        self._accepting = accepting
        self._receiving = receiving
        self._world = world

    async def requeue(
        self, row_id: str, *, new_client_id: str | None, patch: Patch, force: bool = False, by: str = OPERATOR
    ) -> Decision:
        """Send it anew. Asked again with the same new id, it answers as the first time, and does nothing.

        With the same new id and another message it is refused: the first one goes out, and this one would not.
        """
        mark = None if new_client_id is None else _mark(by, new_client_id, patch)
        made = None if mark is None else await self._made(row_id, new_client_id, by, mark, patch)
        if made is not None:
            return made
        row = await self._find(row_id)
        successor = self._successor(row, new_client_id, patch)
        return await self._close(row, successor, force=force, by=by, mark=mark)

    async def drop(self, row_id: str, *, force: bool = False, by: str = OPERATOR) -> Decision:
        """Give it up. Asked again by the same caller, it answers as the first time."""
        mark = _mark(by, None, None)
        made = await self._made(row_id, None, by, mark)
        return made or await self._close(await self._find(row_id), None, force=force, by=by, mark=mark)

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

    async def _made(
        self, row_id: str, new_client_id: str | None, by: str, mark: str, patch: Patch | None = None
    ) -> Decision | None:
        """Return the decision if it was made so before: by this caller, for a message of this id.

        Raise the conflict if that is another message than the one that is asked for now.
        """
        row = await self._outbox.find(row_id)
        if row is None or row.id != row_id:
            return None
        if row.status is OutboxState.DONE and row.decision == mark:
            return _had_arrived(row_id, row.broker_message_id, row.history_id, replayed=True)
        if row.status is not OutboxState.ABORTED or row.aborted_by != by:
            return None
        successor = None if row.superseded_by is None else await self._outbox.find(row.superseded_by)
        if (None if successor is None else successor.client_message_id) != new_client_id:
            return None
        if successor is not None and not await self._is_as_asked(row_id, successor, patch or Patch()):
            return None
        return Decision(
            id=row_id,
            status="aborted",
            superseded_by=row.superseded_by,
            client_message_id=new_client_id,
            replayed=True,
        )

    async def _is_as_asked(self, row_id: str, successor: OutboxRow, patch: Patch) -> bool:
        """Say that the row with this patch is what its successor is, or raise the conflict.

        Of a row that was emptied only what is patched is compared, with the successor; False if that is empty, too.
        """
        row = await self._outbox.for_operator(row_id)
        if row is None or not row.payload:
            row = await self._outbox.for_operator(successor.id)
        if row is None or not row.payload:
            return patch == Patch()
        asked, known = self._asked(row, successor.client_message_id, patch)
        if asked.to == successor.to:
            known = Destination.parse(successor.destination)  # whatever the name has come to mean since
        presented = self._accepting.prepare(asked, known).fingerprint
        if presented != successor.fingerprint:
            raise IdempotencyConflict(
                "this row was sent anew under this id, as another message",
                conflict=f"outbox_{successor.status}_fingerprint_mismatch",
                fingerprint_prefix=prefix(presented),
            )
        return True

    async def _find(self, row_id: str) -> OperatorsRow:
        row = await self._outbox.for_operator(row_id)
        if row is None:
            raise NotFound("the outbox has no row with this id")
        if row.state not in MACHINE.sources(OutboxEvent.RETIRED):
            raise TransitionRefused(f"the row is {row.state}; only a dead or pending one can be given up")
        return row

    def _asked(
        self, row: OperatorsRow, new_client_id: str | None, patch: Patch
    ) -> tuple[SendAsked, Destination | None]:
        """Return what is to be sent in the place of a row, and its destination if that is known."""
        item = parse_item(row.payload)
        asked = SendAsked(
            client_message_id=parse_client_message_id(new_client_id or self._world.ids.ulid()),
            to=row.to_asked if patch.to is None else patch.to,
            body=item.body if patch.message is None else patch.message,
            reply_to=item.reply_to,
            priority=patch.priority or item.priority,
            meta=item.meta if patch.meta is None else patch.meta,
        )
        return asked, Destination(item.kind, item.ref) if patch.to is None else None

    def _successor(self, row: OperatorsRow, new_client_id: str | None, patch: Patch) -> Submission:
        asked, known = self._asked(row, new_client_id, patch)
        if asked.client_message_id == row.client_message_id:
            raise InvalidRequest("the old id can never be used again: give another one, or none")
        submission = self._accepting.prepare(asked, known)
        if submission.refusal is not None:
            raise submission.refusal
        return submission

    async def _close(
        self, row: OperatorsRow, successor: Submission | None, *, force: bool, by: str, mark: str | None
    ) -> Decision:
        if row.attempts > 0:
            accepted = await self._ask_broker(row, force=force)
            if accepted is not None:
                return await self._conclude_done(row, accepted, mark)
        now = self._world.steady_ms()
        await self._outbox.retire(Retirement(row=row, at=now, by=by, successor=successor))
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

    async def _conclude_done(self, row: OperatorsRow, accepted: Mapping[str, Any], mark: str | None) -> Decision:
        settlement = Settlement(
            seq=row.seq,
            event=OutboxEvent.ACCEPTED,
            at=self._world.steady_ms(),
            broker_message_id=accepted["broker_message_id"],
            history_id=accepted["history_id"],
            decision=mark,
        )
        if not (await self._outbox.settle([settlement]))[0]:
            raise StaleClaim("the row moved while the broker was asked: look again")
        return _had_arrived(row.row_id, settlement.broker_message_id, settlement.history_id)


def _had_arrived(
    row_id: str, broker_message_id: str | None, history_id: int | None, *, replayed: bool = False
) -> Decision:
    return Decision(
        id=row_id,
        status="done",
        broker_message_id=broker_message_id,
        history_id=history_id,
        replayed=replayed,
    )


def _mark(by: str, new_client_id: str | None, patch: Patch | None) -> str:
    """Return what a decision is known by: whose it is, and all that was asked for. No id and no patch is a drop."""
    asked = canonicalize([by, new_client_id, msgspec.to_builtins(patch)])
    return sha256(asked).hexdigest()
