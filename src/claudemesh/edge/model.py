"""The relay's values: a write as it was asked for, the envelope it waits in, and what the upstream answered."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.outbox import OutboxState
from claudemesh.outbox import model

Headers = tuple[tuple[bytes, bytes], ...]  # names in small letters

# An envelope's state as callers and operators read it.
WORDS: Final[dict[OutboxState, str]] = {
    OutboxState.PENDING: "queued",
    OutboxState.INFLIGHT: "sending",
    OutboxState.DONE: "acked",
    OutboxState.CONFLICT: "conflict",
    OutboxState.DEAD: "dead",
    OutboxState.ABORTED: "cancelled",
}
STATES: Final = {word: state for state, word in WORDS.items()}

ALONE: Final = "alone/"  # before the id of an envelope that has no entity, and so a lane of its own
COALESCED: Final = "coalesced"  # who cancelled an envelope that a later one made needless


class Expectation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a replacing write takes the row to be: as much of it as its caller said."""

    if_match: str | None = None
    updated_at: str | None = None
    status: str | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in (self.if_match, self.updated_at, self.status))


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a write came from, as far as its caller said."""

    agent: str | None = None
    host: str | None = None
    repo: str | None = None
    session: str | None = None


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is sent upstream. `body` is JSON as it goes out; expectations in it are part of it."""

    method: str
    path: str
    query: str = ""
    key: str  # under which the upstream knows it; an operator's retry has a fresh one
    body: msgspec.Raw = msgspec.Raw(b"{}")
    is_bodiless: bool = False  # it came without one, and goes out without one
    if_match: str | None = None
    route_class: str
    read: str | None = None  # where the upstream shows the row that is written
    source: Source = Source()
    was: tuple[Expectation, ...] = ()  # what it expected before writes in front of it were acknowledged
    passed: tuple[str, ...] = ()  # what status writes would have set whose place it took


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is put before the outbox: an envelope to keep if its key is free."""

    row_id: str
    key: str
    fingerprint: Fingerprint
    destination: str  # the entity's lane, or one of its own
    envelope: Envelope
    enqueued_at: int
    attempts: int = 0  # 1 if the upstream may have it already
    is_status_write: bool = False  # a later one of the same entity makes it needless
    refusal: MeshError | None = None


class Exportable(NamedTuple):
    """A row as it may go to another relay."""

    seq: int
    row_id: str
    key: str
    fingerprint: Fingerprint
    destination: str
    payload: bytes  # empty in one that was emptied
    enqueued_at: int
    attempts: int
    state: OutboxState
    last_error: str | None
    is_status_write: bool


class Answer(NamedTuple):
    """What the upstream answered."""

    status: int
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRow:
    """What stands under a key. Of one that was coalesced the state and answer are its survivor's."""

    row_id: str
    outbox_id: str  # of the row that will be sent: its own, or its survivor's
    state: OutboxState
    fingerprint: Fingerprint
    last_error: str | None
    answer: Answer | None


class Settlement(model.Settlement, frozen=True, kw_only=True):
    """And what the upstream answered: to be kept, and to rebase by."""

    answer: Answer | None = None
    theirs: bytes | None = None  # the row as it is there, of a conflict
    rebase: "Rebase | None" = None


class Rebase(msgspec.Struct, frozen=True, kw_only=True):
    """How the expectations of the writes behind an acknowledged one change."""

    before: tuple[Expectation, ...]  # the states that the write was applied to, as it and the answer say
    after: Expectation  # what the row is now


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeSeen:
    """An envelope as an operator sees it."""

    seq: int
    id: str
    idempotency_key: str
    state: str
    route_class: str
    request: str  # PATCH /tasks/1
    entity: str | None
    attempts: int
    created_at: int
    updated_at: int
    next_attempt_at: int
    acked_at: int | None
    last_error: str | None
    superseded_by: str | None
    cancelled_by: str | None
    source: dict[str, Any] = field(default_factory=dict)
    expectation: dict[str, Any] = field(default_factory=dict)
    answer_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeShown:
    """The same with all that is kept of it: both values of a conflict, and what happened to it."""

    seen: EnvelopeSeen
    mine: Any
    theirs: Any
    answer: Any
    happened: list[dict[str, Any]]
