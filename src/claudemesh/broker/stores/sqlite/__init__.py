"""The broker's store as one SQLite file. Each module serves one port, with its statements in the .sql beside it.

accept       who may use an id, and everything that one accept writes
deliveries   what waits for a member; acks, attempts, read marks
receipts     how far a message came
directory    meshes, members, invites
topics work  destinations; the leases of work queues
seats        who gets what waits, and the beat of the lease clock; in memory: chairs
presence     leases that outlive their sockets
upkeep       the broker's key, retention, the orphan check
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Self

from claudemesh.broker.model import Delivery
from claudemesh.broker.stores.sqlite.accept import SqliteAcceptStore
from claudemesh.broker.stores.sqlite.chairs import Chairs
from claudemesh.broker.stores.sqlite.deliveries import SqliteDeliveryStore
from claudemesh.broker.stores.sqlite.directory import SqliteDirectoryStore
from claudemesh.broker.stores.sqlite.leaseclock import LeaseClock
from claudemesh.broker.stores.sqlite.presence import SqlitePresenceStore, read_delivering
from claudemesh.broker.stores.sqlite.receipts import SqliteReceiptStore
from claudemesh.broker.stores.sqlite.seats import AloneBus, SqliteSeatStore
from claudemesh.broker.stores.sqlite.topics import SqliteTopicStore
from claudemesh.broker.stores.sqlite.upkeep import SqliteUpkeepStore
from claudemesh.broker.stores.sqlite.work import SqliteWorkStore
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.rhythm import LEASE_TTL_MS
from claudemesh.storage.migrate import load_migrations
from claudemesh.storage.sqlite import Database, Schema

APPLICATION_ID = 0x636D6272  # "cmbr"

SCHEMA = Schema(APPLICATION_ID, load_migrations(files(__name__) / "migrations"))


@dataclass(frozen=True, slots=True)
class SqliteStores:
    """All ports over one file."""

    database: Database
    accepts: SqliteAcceptStore
    deliveries: SqliteDeliveryStore
    receipts: SqliteReceiptStore
    directory: SqliteDirectoryStore
    topics: SqliteTopicStore
    work: SqliteWorkStore
    upkeep: SqliteUpkeepStore
    seats: SqliteSeatStore
    presence: SqlitePresenceStore
    bus: AloneBus

    @classmethod
    def open(  # noqa: PLR0913  its parts, by name
        cls,
        path: Path,
        *,
        clock: Clock,
        mint: Callable[[], str],
        render: Callable[[Delivery], bytes],
        group_max: int = 256,
        lease_ttl_ms: int = LEASE_TTL_MS,
    ) -> Self:
        """Open or create the file. `mint` makes broker message ids, `render` what a recipient is sent."""
        database = Database.open(path, SCHEMA, group_max=group_max)
        return cls._over(database, clock, mint, render, lease_ttl_ms)

    @classmethod
    def in_memory(
        cls,
        *,
        clock: Clock,
        mint: Callable[[], str],
        render: Callable[[Delivery], bytes],
        lease_ttl_ms: int = LEASE_TTL_MS,
    ) -> Self:
        """Open a store that is gone with the process."""
        return cls._over(Database.in_memory(SCHEMA), clock, mint, render, lease_ttl_ms)

    @classmethod
    def _over(
        cls,
        database: Database,
        clock: Clock,
        mint: Callable[[], str],
        render: Callable[[Delivery], bytes],
        lease_ttl_ms: int,
    ) -> Self:
        leases = LeaseClock(clock, database)
        chairs = Chairs(database.read_blocking(read_delivering))
        return cls(
            database,
            SqliteAcceptStore(database, mint),
            SqliteDeliveryStore(database, chairs, render),
            SqliteReceiptStore(database),
            SqliteDirectoryStore(database, chairs.unseat),
            SqliteTopicStore(database),
            SqliteWorkStore(database, leases),
            SqliteUpkeepStore(database),
            SqliteSeatStore(database, leases, chairs, mint, lease_ttl_ms),
            SqlitePresenceStore(database, leases, chairs, lease_ttl_ms),
            AloneBus(),
        )

    async def aclose(self) -> None:
        await asyncio.to_thread(self.database.close)
