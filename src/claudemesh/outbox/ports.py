"""What the sender needs of a store."""

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from claudemesh.outbox.model import Backlog, ClaimAsked, Claimed, ClaimedRow, D, Settlement

S_contra = TypeVar("S_contra", bound=Settlement, contravariant=True)


class SendingStore(Protocol[D, S_contra]):
    """Every write returns after it is durable, in one commit with whatever else was waiting."""

    def claim(self, asked: ClaimAsked[D]) -> Awaitable[Claimed[D]]:
        """Take the oldest waiting rows of each destination, in order, and mark them inflight.

        A row that is too old is not taken, and nothing behind it: it has to be given up first. Nor is anything
        behind a row that is out, or in conflict.

        It is on its way when this returns, and so it is with `settle`: each sees what the calls before it write,
        whether or not that is awaited yet.
        """

    async def overdue(self, before: int, after: tuple[int, int], limit: int) -> list[ClaimedRow[D]]:
        """Return waiting rows that were accepted before this instant, oldest first, after an instant and number."""

    def settle(self, settlements: Sequence[S_contra]) -> Awaitable[list[bool]]:
        """Apply each event if its row is still in a state that allows it; say of each whether it held."""

    async def recover(self, next_attempt_at: int) -> list[Backlog[D]]:
        """At the start: what was inflight has an unknown outcome and waits again. Return all that waits."""
