"""How a file gets to the version this program knows.

`application_id` marks whose file it is, `user_version` the last migration applied; both live in the file's header
and change with the transaction that does the work.
"""

from dataclasses import dataclass

import apsw

from claudemesh.kernel.errors import StoreCorrupt
from claudemesh.storage.migrate import Migration, check_migrations, plan


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file must hold; `application_id` is a 31-bit number of its own for every kind of file."""

    application_id: int
    migrations: tuple[Migration, ...]

    def __post_init__(self) -> None:
        check_migrations(self.migrations)


def migrate(connection: apsw.Connection, schema: Schema) -> None:
    """Apply what is due, all of it or nothing; two processes that start at once do it one after the other."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.pragma("user_version")
        _check_ownership(connection, schema, version)
        due = plan(version, schema.migrations)
        for migration in due:
            connection.execute(migration.sql)
        if due:
            connection.pragma("user_version", due[-1].version)
            connection.pragma("application_id", schema.application_id)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_ownership(connection: apsw.Connection, schema: Schema, version: int) -> None:
    found = connection.pragma("application_id")
    if found == schema.application_id:
        return
    is_empty = version == 0 and found == 0 and not connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
    if not is_empty:
        raise StoreCorrupt(
            f"the file belongs to something else: application_id {found:#x}, not {schema.application_id:#x}"
        )
