"""The hub's store as one SQLite file: its rows, its journal, and the keys of its callers."""

import asyncio
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final, Self

from claudemesh.hub.stores.sqlite.hub import SqliteHubStore
from claudemesh.idempotency.stores.sqlite import MIGRATIONS, SqliteKeyStore
from claudemesh.runtime.world import World
from claudemesh.storage.migrate import in_order, load_migrations
from claudemesh.storage.sqlite import Database, Schema

APPLICATION_ID: Final = 0x636D6875  # "cmhu"
_OWN: Final = load_migrations(files(__name__) / "migrations")
SCHEMA: Final = Schema(APPLICATION_ID, in_order(*MIGRATIONS[:1], *_OWN[:1]))


@dataclass(frozen=True, slots=True)
class SqliteStores:
    database: Database
    hub: SqliteHubStore
    keys: SqliteKeyStore

    @classmethod
    def open(cls, path: Path, world: World, *, group_max: int = 256) -> Self:
        """Open or create the file."""
        database = Database.open(path, SCHEMA, group_max=group_max)
        return cls(database, SqliteHubStore(database), SqliteKeyStore(database, world))

    async def aclose(self) -> None:
        await asyncio.to_thread(self.database.close)
