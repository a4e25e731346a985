"""What the app is handed, in `scope[MARK]`: the key, and the way to settle it in the transaction of the write.

Without it the answer is recorded after the write was committed, and a crash in between leaves a write that no key
knows of: a retry runs it again. With it, both are there or neither.
"""

from typing import Any, Final

from claudemesh.idempotency.model import Claim, KeptResponse, Settlement
from claudemesh.idempotency.policy import derive_settlement
from claudemesh.idempotency.ports import KeyStore
from claudemesh.kernel.write_errors import MarkLost

MARK: Final = "claudemesh.idempotency"
ANSWER_BYTES_MAX: Final = 256 * 1024


class Mark:
    def __init__(self, store: KeyStore, claim: Claim, answer_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self.claim = claim
        self.is_settled = False  # in a transaction that may still roll back
        self.is_lost = False  # for ever: what another worker took over does not come back
        self._store = store
        self.answer_bytes_max = answer_bytes_max

    @property
    def key(self) -> str:
        return self.claim.key

    def complete(self, connection: Any, response: KeptResponse) -> None:  # noqa: ANN401  an apsw.Connection
        """Keep the answer in the connection's transaction; raises MarkLost, so that the write rolls back.

        It may be called again, for a transaction that is run again. An answer that is never kept is a ValueError.
        """
        settlement = self.settlement(response)
        try:
            self._store.complete(connection, self.claim, settlement)
        except MarkLost:
            self.is_lost = True
            raise
        self.is_settled = True

    async def complete_async(self, connection: Any, response: KeptResponse) -> None:  # noqa: ANN401  of asyncpg
        """As `complete`, on an asyncpg connection."""
        settlement = self.settlement(response)
        try:
            await self._store.complete_async(connection, self.claim, settlement)
        except MarkLost:
            self.is_lost = True
            raise
        self.is_settled = True

    def settlement(self, response: KeptResponse, size: int | None = None) -> Settlement:
        """Say what is written of an answer; `size` is that of its body, if it is not all there."""
        size = len(response.body) if size is None else size
        return derive_settlement(response, is_too_large=size > self.answer_bytes_max)
