"""What the relay needs of its store and of its parts. Each who asks has a port; only `app` knows what is behind it.

What replay needs is `outbox.ports.SendingStore`. Every write returns after it is durable.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from claudemesh.edge.model import Envelope, EnvelopeSeen, EnvelopeShown, Exportable, StandingRow, Submission
from claudemesh.kernel.outbox import OutboxState
from claudemesh.outbox.model import OperatorsRow


@dataclass(frozen=True, slots=True)
class Looked:
    """What a write meets: what stands under its key, and whether others to its entity wait."""

    standing: StandingRow | None
    has_open: bool


@dataclass(frozen=True, slots=True)
class OutageSeen:
    id: str
    began_at: int
    online_at: int | None
    first_seq: int  # the first envelope that could belong to it


@dataclass(frozen=True, slots=True)
class Results:
    """What became of envelopes: how many in each state, and how many a later one made needless."""

    counts: dict[str, int]
    coalesced: int


class LookingStore(Protocol):
    async def look(self, key: str | None, destination: str | None) -> Looked:
        """Return what stands under a key, and whether writes of an entity wait: both as of one moment."""


class AcceptingStore(LookingStore, Protocol):
    def accept(self, submission: Submission) -> Awaitable[StandingRow | None]:
        """Queue it if its key is free: None. Else say what stands there, or raise why nothing was queued.

        A status write takes the place of the one before it in its lane, if that was never tried, in one commit.
        """

    def accept_all(self, submissions: Sequence[Submission]) -> Awaitable[list[StandingRow | None]]:
        """Accept all of them in one commit, or none; a key that stands for another request is raised, too."""


class CountingStore(Protocol):
    async def counts(self) -> dict[OutboxState, int]:
        """Return how many wait, are out, are in conflict and are dead."""

    async def oldest_open(self) -> int | None:
        """Return when the one was accepted that has waited longest."""

    async def blocked(self) -> int:
        """Count what waits behind envelopes in conflict, and so for an operator."""


class OutageStore(CountingStore, Protocol):
    def begin_outage(self, outage_id: str, at: int) -> Awaitable[None]:
        """Write an outage down; one that is not over goes on instead."""

    def back_online(self, at: int) -> Awaitable[None]: ...

    def end_outage(self, outage_id: str, at: int) -> Awaitable[None]: ...

    async def open_outage(self) -> OutageSeen | None:
        """Return the one that is not over."""

    async def results(self, first_seq: int) -> Results:
        """Return what became of all that was queued since an envelope."""


class OperatedStore(AcceptingStore, Protocol):
    """A decision is applied to the row as it was judged; StaleClaim if it has moved meanwhile."""

    async def page(self, state: OutboxState | None, after_seq: int, limit: int) -> list[EnvelopeSeen]: ...

    async def show(self, any_id: str) -> EnvelopeShown | None:
        """Return an envelope by its id or its key."""

    async def for_operator(self, row_id: str) -> OperatorsRow | None: ...

    async def theirs(self, seq: int) -> Any:  # noqa: ANN401  JSON is anything
        """Return the row as it was seen at the upstream, of a conflict."""

    def retire(self, row: OperatorsRow, at: int, by: str, successor: Submission | None = None) -> Awaitable[None]:
        """Cancel an envelope; with a successor the same write goes out under a fresh key, at the end."""

    def condemn(self, row: OperatorsRow, reason: str) -> Awaitable[None]:
        """Mark it dead."""

    def reopen(self, row: OperatorsRow, envelope: Envelope, at: int, why: str) -> Awaitable[None]:
        """Put an envelope that is in conflict back into its place in the queue, with what is to be sent now."""

    async def export(self, after_seq: int, limit: int) -> list[Exportable]:
        """Return a page of rows, whatever their state, in the order of acceptance."""


class Queued(Protocol):
    """Who is told of new envelopes."""

    def queued(self, lanes: Sequence[str]) -> None: ...

    async def begin_outage_if_away(self) -> None:
        """Write down that an outage began, before its first envelope is."""
