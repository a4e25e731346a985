"""The hub's store as one PostgreSQL database, which several hubs may share."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Self

import asyncpg

from claudemesh.hub.stores.postgres.hub import PostgresHubStore
from claudemesh.idempotency.stores.postgres import MIGRATIONS, PostgresKeyStore
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.world import World
from claudemesh.storage.migrate import in_order, load_migrations
from claudemesh.storage.postgres import Database, Endpoint, Schema
from claudemesh.storage.postgres.database import POOL_MAX

_OWN: Final = load_migrations(files(__name__) / "migrations")
SCHEMA: Final = Schema("hub", in_order(*MIGRATIONS[:1], *_OWN[:1]))


@dataclass(frozen=True, slots=True)
class PostgresStores:
    database: Database
    hub: PostgresHubStore
    keys: PostgresKeyStore

    @classmethod
    async def open(cls, dsn: str, world: World, *, pool_max: int = POOL_MAX) -> Self:
        """Connect, and bring the schema up to date."""
        try:
            database = await Database.open(Endpoint(dsn), SCHEMA, pool_max=pool_max)
        except asyncpg.PostgresError as error:  # too few rights, or a schema of this name that is not ours
            raise ConfigError(f"the database cannot be used: {str(error).partition(chr(10))[0]}") from error
        return cls(database, PostgresHubStore(database), PostgresKeyStore(database, world, SCHEMA.name))

    async def aclose(self) -> None:
        await self.database.aclose()
