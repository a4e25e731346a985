"""How a file gets to the version this program knows.

`application_id` marks whose file it is, `user_version` the last migration applied; both live in the file's header
and change with the transaction that does the work.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw

from claudemesh.kernel.errors import IntegrityError, StoreCorrupt
from claudemesh.storage.migrate import Migration, check_migrations, plan
from claudemesh.storage.sqlite.transactions import Transactions

_APPLICATION_ID_MAX: Final = 2**31 - 1

# A file up to this size is read through at the start (some 0.3 s); a larger one would keep its callers waiting, and
# damage in it is found where it is met.
CHECKED_BYTES_MAX: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file must hold; `application_id` is a number of its own for every kind of file."""

    application_id: int
    migrations: tuple[Migration, ...]

    def __post_init__(self) -> None:
        check_migrations(self.migrations)
        if not 0 < self.application_id <= _APPLICATION_ID_MAX:
            raise ValueError(
                f"an application_id lies within 1 and {_APPLICATION_ID_MAX}, not {self.application_id}"
            )


def check_owner(connection: apsw.Connection, schema: Schema) -> int:
    """Return the file's version, or refuse a file that is not ours or is newer; nothing is changed."""
    found, version = connection.pragma("application_id"), int(connection.pragma("user_version"))
    is_empty = version == 0 and found == 0 and not connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
    if found != schema.application_id and not is_empty:
        raise StoreCorrupt(
            f"the file belongs to something else: application_id {found:#x}, not {schema.application_id:#x}"
        )
    plan(version, schema.migrations)
    return version


def migrate(connection: apsw.Connection, transactions: Transactions, schema: Schema) -> None:
    """Apply what is due, all of it or nothing; two processes that start at once do it one after the other."""
    # With foreign keys on, rebuilding a table (copy, drop, rename) would delete the rows that refer to it.
    connection.pragma("foreign_keys", 0)
    try:
        transactions.begin()
        with transactions.committing():
            due = plan(check_owner(connection, schema), schema.migrations)
            for migration in due:
                # To its end: by itself it would stop at the first statement that returns a row.
                connection.execute(migration.sql).fetchall()
            if due:
                _check_references(connection)
                connection.pragma("user_version", due[-1].version)
                connection.pragma("application_id", schema.application_id)
    finally:
        connection.pragma("foreign_keys", 1)


def check_pages(connection: apsw.Connection, path: Path) -> None:
    """Refuse a damaged file before anybody relies on it."""
    if path.stat().st_size > CHECKED_BYTES_MAX:
        return
    found: list[Any] = connection.execute("PRAGMA quick_check(1)").fetchall()
    if found[0][0] != "ok":
        raise StoreCorrupt(f"{path} is damaged: {found[0][0]}")


def _check_references(connection: apsw.Connection) -> None:
    broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise IntegrityError(f"a migration leaves {len(broken)} rows that refer to nothing, in {broken[0][0]}")
