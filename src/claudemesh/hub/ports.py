"""What the hub asks of a store. `tests/contract/hub` says it as tests, over every backend and a plain dict."""

from typing import Protocol

from claudemesh.hub.draft import Decision
from claudemesh.hub.model import Kind, Page, Row, Summary, Write
from claudemesh.idempotency import KeyStore, Mark


class HubStore(Protocol):
    async def write(self, write: Write, mark: Mark | None = None) -> Decision:
        """Decide and write in one transaction, with the answer under the caller's key if there is a mark.

        Nothing of it stands if the mark is lost: MarkLost. An answer that refuses is returned, and is not kept.
        """
        ...

    async def get(self, kind: Kind, row_id: str) -> Row | None:
        """Return a row as it stands."""
        ...

    async def page(self, kind: Kind, after_seq: int, limit: int) -> Page:
        """Return rows in the order in which they were made. No row ever appears before one that was shown."""
        ...

    async def summary(self, newest: int) -> Summary:
        """Return what there is, of one moment, and the last writes, newest first."""
        ...


class Stores(Protocol):
    """All that one hub keeps, in one database."""

    @property
    def hub(self) -> HubStore: ...

    @property
    def keys(self) -> KeyStore: ...

    async def aclose(self) -> None: ...
