"""What the daemon needs of its stores and of its link, in its own words."""

from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from claudemesh.daemon.model import (
    Backlog,
    ClaimAsked,
    Claimed,
    ClaimedRow,
    Member,
    OutboxRow,
    Retirement,
    Settlement,
    StandingRow,
    Submission,
)
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.outbox import OutboxState
from claudemesh.outbox.model import OperatorsRow
from claudemesh.storage.bounds import Bounds
from claudemesh.wire.frames import DeliverItem, Outcome

Shown = Literal["all", "open", "dead"]


class SpansAsked(NamedTuple):
    """Spans of time of this length since an instant; of what happened in them, the newest so many are looked at."""

    since: int
    span_ms: int
    most: int


class Pace(NamedTuple):
    """What happened in one span of time, which is numbered from the epoch, and how long it took."""

    span: int
    times: int
    half_ms: int  # of half of them, at most
    nearly_all_ms: int  # of 99 in 100, at most


class OutboxTraffic(NamedTuple):
    sent: dict[int, int]  # by span
    accepted: list[Pace]


class InboxTraffic(NamedTuple):
    received: list[Pace]
    given_up: dict[int, int]  # own sends, by span


class OutboxStore(Protocol):
    """The sends. Every write returns after it is durable, in one commit with whatever else was waiting."""

    def limit(self, *, accepts_bytes: int, claims_bytes: int) -> None:
        """Beyond so much room take no new id, beyond so much claim nothing: StoreFull. Settling always goes on."""

    def accept(self, submission: Submission) -> Awaitable[StandingRow | None]:
        """Insert the row unless its id stands; return what stands, None if it is new.

        It is on its way when this returns, and so it is with `accept_many`, `claim` and `settle`: each sees what
        the calls before it write, whether or not that is awaited yet.

        A submission with a refusal inserts nothing: the refusal is raised if its id is free.
        """

    def accept_many(self, submissions: Sequence[Submission]) -> Awaitable[list[StandingRow | MeshError | None]]:
        """As `accept` for each, in order and in one commit; of the same id twice the second sees the first."""

    def claim(self, asked: ClaimAsked) -> Awaitable[Claimed]:
        """Take the oldest waiting rows of each destination, in order, and mark them inflight.

        A row that is too old is not taken, and nothing behind it: it has to be given up first.
        """

    async def overdue(self, before: int, after: tuple[int, int], limit: int) -> list[ClaimedRow]:
        """Return waiting rows that were accepted before this instant, oldest first, after an instant and number."""

    async def newest_done(self, limit: int) -> list[str]:
        """Return the client message ids of the sends that the broker took last, the last one first."""

    def settle(self, settlements: Sequence[Settlement]) -> Awaitable[list[bool]]:
        """Apply each event if its row is still in a state that allows it; say of each whether it held."""

    async def recover(self, next_attempt_at: int) -> list[Backlog]:
        """At the start: what was inflight has an unknown outcome and waits again. Return all that waits."""

    async def find(self, any_id: str) -> OutboxRow | None:
        """Find a row by its own id, its client message id or the broker's."""

    async def page(self, states: frozenset[OutboxState], after_seq: int, limit: int) -> list[tuple[int, OutboxRow]]:
        """Return rows in these states after a number, oldest first, each with its own number."""

    async def newest(self, which: Shown, before_seq: int, limit: int) -> list[tuple[int, OutboxRow]]:
        """Return rows before a number, the newest first, each with its own number."""

    async def traffic(self, asked: SpansAsked) -> OutboxTraffic: ...

    async def bounds(self) -> Bounds: ...

    async def counts(self) -> dict[OutboxState, int]:
        """Count what is pending, inflight and dead."""

    async def oldest_open(self) -> int | None:
        """Return when the oldest row that still waits was accepted."""

    async def used_bytes(self) -> int:
        """Return how much room the rows take."""

    async def for_operator(self, row_id: str) -> OperatorsRow | None:
        """Find a row by its own id, payload included."""

    async def retire(self, retirement: Retirement) -> None:
        """Abort the row and insert its successor, in one commit.

        StaleClaim if the row has moved since it was looked at, IdempotencyConflict if the successor's id stands.
        """

    async def prune(self, before: int, after_seq: int, limit: int) -> tuple[int, int | None]:
        """Empty one page of settled rows that were accepted before an instant; what answers a retry stays.

        Return how many were emptied, and where to go on; None if there is no older row after that number.
        """

    async def ancestors(self, row_id: str) -> list[str]:
        """Return the ids of the rows that this one took the place of, nearest first."""

    async def remember_members(self, members: Sequence[Member]) -> None: ...

    async def members(self) -> list[Member]: ...

    async def remember(self, name: str, value: str) -> None: ...

    async def recall(self, name: str) -> str | None: ...


class Waits(msgspec.Struct, frozen=True):
    """An unread message, as far as it takes to tell its reader that it is there."""

    broker_message_id: str
    sender_pubkey: str
    sender_name: str
    topic: str | None
    priority: str
    received_at: int
    beginning: str  # of its body


class Waiting(msgspec.Struct, frozen=True):
    messages: list[Waits]
    unread: dict[str, int]  # all of them, by priority


class InboxMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as its reader sees it; `seq` is its place in this daemon's events.

    A struct, since a frozen dataclass takes several times as long to make, and this is made with every message.
    """

    seq: int
    client_message_id: str
    broker_message_id: str
    history_id: int
    sender_pubkey: str
    sender_name: str
    topic: str | None
    body: str
    meta: dict[str, Any] | None
    priority: str
    reply_to: str
    accepted_at: int
    received_at: int
    read_at: int | None
    to_session: str | None = None  # the key of the session that was meant, if one was


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxFilter:
    since_ms: int | None = None
    topic: str | None = None
    sender: str | None = None  # a member's key or name
    mentions: str | None = None  # a member's key
    mentions_name: str | None = None  # and its name: either counts
    words: str | None = None  # FTS
    unread: bool = False  # only what nobody marked as read


class Happened(msgspec.Struct, frozen=True):
    """Something other than a message that readers are told."""

    type: str
    at: int
    data: dict[str, Any]


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, by its number; a message has its row, anything else its data."""

    seq: int
    type: str
    at: int
    data: dict[str, Any] | None
    message: InboxMessage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxSweep:
    before: int  # what happened before this instant may go
    forget_before: int  # and what was swept before this one is forgotten for good
    now: int
    limit: int


class InboxStore(Protocol):
    def limit(self, limit_bytes: int) -> None:
        """Beyond so much room take nothing in: StoreFull. Marks and sweeps go on."""

    async def used_bytes(self) -> int:
        """Return how much room is in use."""

    async def receive(self, items: Sequence[DeliverItem], received_at: int) -> list[InboxMessage]:
        """Store what is new, in order; return just that. What stood already changes nothing."""

    async def restored_upto(self) -> int | None:
        """Return how far an inbox that was lost has been fetched again; None if nothing is to be fetched."""

    async def restore(self, items: Sequence[DeliverItem], received_at: int, upto: int | None) -> None:
        """Store what was delivered before, telling nobody; without `upto` it was the last of it."""

    async def page(self, wanted: InboxFilter, after_seq: int, limit: int) -> list[InboxMessage]:
        """Return messages after an event number, oldest first: at most so many, or as large as a page may be."""

    async def find(self, broker_message_id: str) -> InboxMessage | None: ...

    async def bounds(self) -> Bounds: ...

    async def append_events(self, happened: Sequence[Happened]) -> list[TimelineEntry]:
        """Write down what happened; return what was written, under its numbers. What finds no room is left out."""

    async def append_presence(self, happened: Sequence[Happened], upto: int | None) -> list[TimelineEntry]:
        """Write down who came and went, and in the same commit up to which of the broker's numbers that is.

        StoreFull if there is no room; then nothing was written.
        """

    async def presence_seq(self) -> int | None:
        """Return that number; None if there never was one."""

    async def events(self, after_seq: int, limit: int) -> list[TimelineEntry]:
        """Return what happened after a number, oldest first."""

    async def mark_read(self, broker_message_ids: Sequence[str], at: int) -> int:
        """Mark these as read, and say how many were not yet."""

    async def mark_read_upto(self, seq: int, at: int) -> int:
        """Mark all up to an event as read, and say how many were not yet."""

    async def untold(self, limit: int) -> list[tuple[int, str]]:
        """Return marks that the broker does not know of: their numbers and the broker's ids."""

    async def told(self, seqs: Sequence[int]) -> None:
        """Note that it does."""

    async def unread(self) -> int: ...

    async def waiting(self, priorities: Sequence[str], limit: int, characters: int) -> Waiting:
        """Return the oldest unread messages of these priorities, one priority after the other, and count them all.

        Of a body there are so many characters, so that the answer stays small whatever was sent.
        """

    async def unread_of(self, session_pubkey: str) -> int:
        """Count what nobody has read yet of all that named this session."""

    async def traffic(self, asked: SpansAsked) -> InboxTraffic: ...

    async def sweep(self, sweep: InboxSweep) -> int:
        """Delete one page of what is too old, keeping the ids; return how many events went."""


class BrokerLink(Protocol):
    """The connection, while it stands."""

    async def send(self, payloads: Sequence[bytes]) -> "Future[list[Outcome]]":
        """Put items on the wire in this order, and return when they are on it.

        The future brings an outcome for each, or BrokerUnreachable if the connection ends first.
        """

    async def store(self, write: Callable[[], Awaitable[None]]) -> None:
        """Have the inbox written, however long it has no room: the broker is told, and gives up nothing."""

    async def call(self, op: str, args: dict[str, Any]) -> Any:  # noqa: ANN401  each operation has its own result
        """Ask and wait; the broker's error is raised as the class it was."""
