"""What is asked of a store of keys. Every write returns after its commit is durable.

A mark is its claim's for as long as the row bears the claim's owner and token: one whose lease ran out, but which
nobody took over, can still be renewed and settled. Leases are judged by the store's own clock.
"""

from typing import Any, Protocol

from claudemesh.idempotency.model import Asked, Begun, Claim, Found, KeyRow, Settlement

SWEEP_MAX = 1_000
PAGE_MAX = 200


class KeyStore(Protocol):
    async def begin(self, asked: Asked) -> Begun | Found:
        """Put a mark under the key, or say what stands there; of many who ask at once one begins."""

    async def renew(self, claim: Claim, lease_ms: int) -> bool:
        """Give the mark a whole lease from now; False if it is no longer the claim's, or is settled."""

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        """Keep the answer; False, and nothing is written, if the mark is no longer the claim's."""

    async def release(self, claim: Claim) -> bool:
        """Take the mark away, so that the next request begins; False if it is not the claim's, or is settled."""

    def complete(self, connection: Any, claim: Claim, settlement: Settlement, /) -> None:  # noqa: ANN401  the driver's
        """As `settle`, in the transaction that the connection is in; raises MarkLost, so that it rolls back."""

    async def complete_async(self, connection: Any, claim: Claim, settlement: Settlement, /) -> None:  # noqa: ANN401
        """As `complete`, for a driver that has to be awaited."""

    async def sweep(self, now_ms: int, limit: int = SWEEP_MAX) -> int:
        """Forget keys that expired, at most so many; return how many."""

    async def page(self, after: int = 0, limit: int = PAGE_MAX) -> list[KeyRow]:
        """Return keys in the order in which they were first seen, after that number."""

    async def aclose(self) -> None: ...
