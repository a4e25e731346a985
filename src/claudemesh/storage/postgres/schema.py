"""How a database gets to the version this program knows.

All of it in one transaction under an advisory lock, so that two brokers that start at once do it one after the
other, and a migration that fails leaves nothing.
"""

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from claudemesh.kernel.errors import IntegrityError
from claudemesh.storage.migrate import Migration, check_migrations, plan
from claudemesh.storage.postgres.connection import Connection
from claudemesh.storage.postgres.errors import translated
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "schema.sql")

_LOCK: Final = 0x636D_6D65_7368  # "cmmesh": of the whole database, since the schema may not be there yet
MIGRATION_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Schema:
    """What a schema of a database must hold."""

    name: str
    migrations: tuple[Migration, ...]

    def __post_init__(self) -> None:
        check_migrations(self.migrations)
        if not self.name.isidentifier():
            raise ValueError(f"{self.name!r} is not the name of a schema")


async def migrate(connection: Connection, schema: Schema) -> None:
    """Apply what is due, all of it or nothing."""
    with translated():
        async with connection.transaction():
            await connection.fetch(_SQL["patience"], str(MIGRATION_MS))
            await connection.fetch(_SQL["lock"], _LOCK, timeout=MIGRATION_MS / 1000)
            if not await connection.fetchval(_SQL["is_prepared"], schema.name):
                await connection.execute(await connection.fetchval(_SQL["render_create"], schema.name))
                await connection.fetch(_SQL["enter"], schema.name)
                await connection.execute(_SQL["create_record"])
            await connection.fetch(_SQL["enter"], schema.name)
            for migration in plan(await _version(connection, schema), schema.migrations):
                await connection.execute(migration.sql, timeout=MIGRATION_MS / 1000)
                await connection.execute(_SQL["note"], migration.version, migration.name)


async def _version(connection: Connection, schema: Schema) -> int:
    versions = [row[0] for row in await connection.fetch(_SQL["versions"])]
    if versions != list(range(1, len(versions) + 1)):
        raise IntegrityError(f"the migrations of schema {schema.name} have gaps: {versions}")
    return len(versions)
