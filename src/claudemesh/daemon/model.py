"""The daemon's values: what is asked of it, what its rows hold, what became of them.

Those that are made for every message are structs: a frozen dataclass takes up to ten times as long to make.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.fingerprint import Fingerprint, Kind, Priority
from claudemesh.kernel.ids import ClientMessageId
from claudemesh.kernel.outbox import OutboxState
from claudemesh.outbox import model
from claudemesh.outbox.model import OperatorsRow


class Destination(msgspec.Struct, frozen=True):
    """Where a message goes: what order is kept by, and what a backoff holds back."""

    kind: Kind
    ref: str  # the recipient's public key in hex, or the topic's or queue's name

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.ref}"

    @classmethod
    def parse(cls, text: str) -> "Destination":
        kind, _, ref = text.partition(":")
        return cls(Kind(kind), ref)


class SendAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A send as its caller asked for it, parsed, with its id chosen but its destination not yet looked up."""

    client_message_id: ClientMessageId
    to: str
    body: str
    reply_to: str = ""
    priority: Priority = Priority.NEXT
    meta: dict[str, Any] | None = None  # mentions folded in


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What is put before the outbox: a row to insert if its id is free.

    With a `refusal` nothing is inserted, and the refusal is the answer, but only if the id is free: whatever stands
    answers first, so that a retry of an acknowledged send is never refused.
    """

    row_id: str
    asked: SendAsked
    destination: Destination
    fingerprint: Fingerprint
    payload: bytes
    enqueued_at: int
    refusal: MeshError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRow:
    """What stands under an id."""

    row_id: str
    state: OutboxState
    fingerprint: Fingerprint
    to_asked: str
    destination: Destination
    broker_message_id: str | None
    history_id: int | None
    last_error: str | None


ClaimedRow: TypeAlias = model.ClaimedRow[Destination]
Backlog: TypeAlias = model.Backlog[Destination]
ClaimAsked: TypeAlias = model.ClaimAsked[Destination]
Claimed: TypeAlias = model.Claimed[Destination]


class Settlement(model.Settlement, frozen=True, kw_only=True):
    """And the broker's ids, once it has the message."""

    broker_message_id: str | None = None
    history_id: int | None = None
    decision: str | None = None  # of an operator, by which it was found that the broker has it


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A row as an operator sees it; never its payload's bytes in full."""

    id: str
    client_message_id: str
    status: OutboxState
    to: str
    destination: str
    attempts: int
    enqueued_at: int
    next_attempt_at: int
    last_error: str | None
    delivered_at: int | None
    broker_message_id: str | None
    history_id: int | None
    fingerprint: Fingerprint
    aborted_at: int | None = None
    aborted_by: str | None = None
    superseded_by: str | None = None
    decision: str | None = None  # the mark of the one that found it done


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody in the stored directory."""

    member_id: str
    name: str
    pubkey: str
    role: str = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """An operator gives a row up; with a successor the same message goes out under a fresh id."""

    row: OperatorsRow
    at: int
    by: str
    successor: Submission | None = None
