"""The broker's store as a PostgreSQL database, which several brokers may share. Each module serves one port.

accept       who may use an id, and everything that one accept writes
deliveries   what waits for a member; acks, attempts, read marks
receipts     how far a message came
directory    meshes, members, invites
topics work  destinations; the leases of work queues
upkeep       the broker's key, epochs, retention, the orphan check
brokers      which brokers run on the database
seats        which connection of which broker gets what waits for a key
presence     leases that outlive their sockets
bus notices  what brokers tell each other
writers      the order in which the writes of one mesh are applied
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Self

import asyncpg

from claudemesh.broker.events import EpochBegan
from claudemesh.broker.model import Delivery
from claudemesh.broker.stores.postgres.accept import PostgresAcceptStore
from claudemesh.broker.stores.postgres.brokers import LivingBroker
from claudemesh.broker.stores.postgres.bus import PostgresBus
from claudemesh.broker.stores.postgres.deliveries import PostgresDeliveryStore
from claudemesh.broker.stores.postgres.directory import PostgresDirectoryStore
from claudemesh.broker.stores.postgres.presence import PostgresPresenceStore
from claudemesh.broker.stores.postgres.receipts import PostgresReceiptStore
from claudemesh.broker.stores.postgres.seats import PostgresSeatStore
from claudemesh.broker.stores.postgres.topics import PostgresTopicStore
from claudemesh.broker.stores.postgres.upkeep import PostgresUpkeepStore
from claudemesh.broker.stores.postgres.work import PostgresWorkStore
from claudemesh.broker.stores.postgres.writers import MeshWriters
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import ConfigError, MeshError
from claudemesh.kernel.rhythm import LEASE_TTL_MS
from claudemesh.runtime.observe import Observer
from claudemesh.storage.migrate import load_migrations
from claudemesh.storage.postgres import Database, Endpoint, Schema
from claudemesh.storage.postgres.database import POOL_MAX

SCHEMA: Final = Schema("mesh", load_migrations(files(__name__) / "migrations"))


@dataclass(frozen=True, slots=True)
class PostgresStores:
    """All ports over one database, as one broker of it."""

    database: Database
    accepts: PostgresAcceptStore
    deliveries: PostgresDeliveryStore
    receipts: PostgresReceiptStore
    directory: PostgresDirectoryStore
    topics: PostgresTopicStore
    work: PostgresWorkStore
    upkeep: PostgresUpkeepStore
    seats: PostgresSeatStore
    presence: PostgresPresenceStore
    bus: PostgresBus
    broker: LivingBroker

    @classmethod
    async def open(  # noqa: PLR0913  its parts, by name
        cls,
        dsn: str,
        *,
        clock: Clock,
        mint: Callable[[], str],
        render: Callable[[Delivery], bytes],
        observer: Observer | None = None,
        pool_max: int = POOL_MAX,
        lease_ttl_ms: int = LEASE_TTL_MS,
    ) -> Self:
        """Connect, bring the schema up to date and join the brokers that run on it."""
        database = await _open_database(dsn, pool_max)
        writers = MeshWriters(database)
        bus = PostgresBus(database)
        broker = LivingBroker(database, clock, bus.note_others)
        deliveries = PostgresDeliveryStore(database, render)

        def moved(epoch: int | None) -> None:
            deliveries.forget()
            if observer is not None and epoch is not None:
                observer.publish(EpochBegan(epoch))

        stores = cls(
            database,
            PostgresAcceptStore(database, mint, writers),
            deliveries,
            PostgresReceiptStore(database),
            PostgresDirectoryStore(database, writers),
            PostgresTopicStore(database, writers),
            PostgresWorkStore(database, writers),
            PostgresUpkeepStore(database, clock, moved),
            PostgresSeatStore(database, broker, mint, lease_ttl_ms),
            PostgresPresenceStore(database, lease_ttl_ms),
            bus,
            broker,
        )
        try:
            await database.greet_with(stores.upkeep.recognise_server)
            await broker.register()
            await bus.begin(str(broker.id))
        except BaseException:
            await database.aclose()
            raise
        return stores

    async def aclose(self) -> None:
        """Leave the brokers and the database. May be called twice."""
        with suppress(MeshError):  # else its lease runs out
            await self.broker.aclose()
        await self.bus.aclose()
        await self.database.aclose()


async def _open_database(dsn: str, pool_max: int) -> Database:
    try:
        return await Database.open(Endpoint(dsn), SCHEMA, pool_max=pool_max)
    except asyncpg.PostgresError as error:  # a role with too few rights, or a schema of this name that is not ours
        raise ConfigError(f"the database cannot be used: {str(error).partition(chr(10))[0]}") from error
