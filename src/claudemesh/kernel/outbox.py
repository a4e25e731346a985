"""IDEA 2. The outbox: a durable row, its states, and what the same id means in each of them.

Callers say what happened (an event); the table says what that makes of the row. An id that was written is never
released: `done` and `aborted` are final, and a `dead` row leaves only by being found accepted after all, or by
being retired for a successor under a fresh id.

Two outboxes go by this table: the daemon's, whose other side is the broker, and the relay's, whose other side is
the hub. Only a hub answers that a row there has moved on: `conflict` is the relay's alone.

Same id, other body? Look at ADMISSION: always a Conflict, whatever the state. Same id, same body? Also there.
"""

from enum import StrEnum
from typing import Final

from claudemesh.kernel.admission import AdmissionTable, Busy, Conflict, Match, Replay
from claudemesh.kernel.fsm import Machine


class OutboxState(StrEnum):
    PENDING = "pending"  # durable, waiting for its turn or its backoff
    INFLIGHT = "inflight"  # handed to the other side, no answer yet
    DONE = "done"  # the other side has it
    CONFLICT = "conflict"  # the other side holds something newer; an operator decides
    DEAD = "dead"  # will not be sent; an operator decides
    ABORTED = "aborted"  # an operator gave the id up


class OutboxEvent(StrEnum):
    CLAIMED = "claimed"  # the sender took it
    ACCEPTED = "accepted"  # the other side has it, as its answer or a later question showed
    REFUSED = "refused"  # the other side will never take it, or failed at this one row too often
    CONFLICTED = "conflicted"  # it was written for a state that is no more
    FAILED = "failed"  # no answer, a transient one, or a restart: the outcome is unknown
    EXPIRED = "expired"  # too old to be sent
    RETIRED = "retired"  # an operator requeued or dropped it, or a later row says all that it says
    REOPENED = "reopened"  # an operator lets it try again, on what stands there now
    CONDEMNED = "condemned"  # an operator marked it dead


_S, _E = OutboxState, OutboxEvent

MACHINE: Final = Machine(
    name="outbox",
    states=OutboxState,
    events=OutboxEvent,
    initial=_S.PENDING,
    final=frozenset({_S.DONE, _S.ABORTED}),
    table={
        (_S.PENDING, _E.CLAIMED): _S.INFLIGHT,
        (_S.PENDING, _E.ACCEPTED): _S.DONE,
        (_S.PENDING, _E.EXPIRED): _S.DEAD,
        (_S.PENDING, _E.RETIRED): _S.ABORTED,
        (_S.PENDING, _E.CONDEMNED): _S.DEAD,
        (_S.INFLIGHT, _E.ACCEPTED): _S.DONE,
        (_S.INFLIGHT, _E.FAILED): _S.PENDING,
        (_S.INFLIGHT, _E.REFUSED): _S.DEAD,
        (_S.INFLIGHT, _E.CONFLICTED): _S.CONFLICT,
        (_S.CONFLICT, _E.REOPENED): _S.PENDING,
        (_S.CONFLICT, _E.RETIRED): _S.ABORTED,
        (_S.CONFLICT, _E.CONDEMNED): _S.DEAD,
        (_S.DEAD, _E.ACCEPTED): _S.DONE,
        (_S.DEAD, _E.RETIRED): _S.ABORTED,
    },
)

_SAME, _OTHER = Match.SAME, Match.OTHER

ADMISSION: Final = AdmissionTable(
    OutboxState,
    {
        (_S.PENDING, _SAME): Busy("queued"),
        (_S.PENDING, _OTHER): Conflict("outbox_pending_fingerprint_mismatch"),
        (_S.INFLIGHT, _SAME): Busy("inflight"),
        (_S.INFLIGHT, _OTHER): Conflict("outbox_inflight_fingerprint_mismatch"),
        (_S.DONE, _SAME): Replay("accepted"),
        (_S.DONE, _OTHER): Conflict("outbox_done_fingerprint_mismatch"),
        (_S.CONFLICT, _SAME): Busy("conflict"),
        (_S.CONFLICT, _OTHER): Conflict("outbox_conflict_fingerprint_mismatch"),
        (_S.DEAD, _SAME): Conflict("outbox_dead_fingerprint_match"),
        (_S.DEAD, _OTHER): Conflict("outbox_dead_fingerprint_mismatch"),
        (_S.ABORTED, _SAME): Conflict("outbox_aborted_fingerprint_match"),
        (_S.ABORTED, _OTHER): Conflict("outbox_aborted_fingerprint_mismatch"),
    },
)

_TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})


def derive_event(status: int | None) -> OutboxEvent:
    """Read the broker's answer; None is no answer at all.

    Anything that does not say plainly "I have it" or "never" leaves the outcome unknown, and the row is tried
    again under the same id.
    """
    if status is None:
        return OutboxEvent.FAILED
    if status in (200, 201):
        return OutboxEvent.ACCEPTED
    if 400 <= status < 500 and status not in _TRANSIENT_STATUSES:  # noqa: PLR2004  HTTP's own range
        return OutboxEvent.REFUSED
    return OutboxEvent.FAILED
