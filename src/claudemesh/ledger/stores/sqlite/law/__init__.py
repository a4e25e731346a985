"""What a ledger's schema must be, by version, and in what a file's differs from it.

The law is the text of the `.sql` files beside this one. A file is held against a database in memory that was made
of the same texts, object by object: who drops, alters or adds a trigger changes what is found there.
"""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

import apsw

NEWEST: Final = 2
VERSIONS: Final = tuple(range(1, NEWEST + 1))

# What came with which version.
REQUEUED_SINCE: Final = 2
ORDERED_SINCE: Final = 2  # by columns of the step
CHAINED_SINCE: Final = 2

_TEXTS: Final = tuple((files(__package__) / f"v{version}.sql").read_text(encoding="utf-8") for version in VERSIONS)
_OBJECTS: Final = "SELECT type, name, lower(tbl_name), sql FROM sqlite_schema"
_VERSION_DIGITS_MAX: Final = 9
_META: Final = "SELECT value FROM cassette_meta WHERE key = ?"


class Object(NamedTuple):
    """A table, index or trigger. `sql` is the text that made it, if it was not made by a constraint."""

    type: str
    name: str
    table: str
    sql: str | None


def enact(connection: apsw.Connection, *, after: int, upto: int) -> None:
    """Bring a database from one version to another; the caller has begun a transaction."""
    for text in _TEXTS[after:upto]:
        connection.execute(text).fetchall()  # to its end, and not to the first row


def read_version(connection: apsw.Connection) -> int | None:
    """Return the version that a file says it has, or None if it says none."""
    said = _read_meta(connection, "db_version")
    return int(said) if said.isdecimal() and len(said) <= _VERSION_DIGITS_MAX else None


def read_ledger_id(connection: apsw.Connection) -> str:
    """Return what tells this ledger from all others, or nothing if it does not say."""
    return _read_meta(connection, "ledger_id")


def _read_meta(connection: apsw.Connection, key: str) -> str:
    try:
        row = connection.execute(_META, (key,)).fetchone()
    except apsw.SQLError:  # the table is gone
        return ""
    return str(row[0]) if row else ""


@cache
def objects_of(version: int) -> frozenset[Object]:
    connection = apsw.Connection(":memory:")
    enact(connection, after=0, upto=version)
    found = frozenset(Object(*row) for row in connection.execute(_OBJECTS))
    connection.close()
    return found


def tables_of(version: int) -> frozenset[str]:
    return frozenset(one.name for one in objects_of(version) if one.type == "table")


def read_objects(connection: apsw.Connection, version: int) -> frozenset[Object]:
    """Return what belongs to the ledger's tables; other tables of the file are nobody's business here."""
    tables = tables_of(version)
    return frozenset(one for one in (Object(*row) for row in connection.execute(_OBJECTS)) if one.table in tables)


def differences(connection: apsw.Connection) -> list[str]:
    """Say in what a file's schema is not the law's; nothing, if it is."""
    version = read_version(connection)
    if version is None:
        return ["cassette_meta does not say a version"]
    if not 1 <= version <= NEWEST:
        return [f"the ledger has version {version}, and this program knows 1 to {NEWEST}"]
    law, found = objects_of(version), read_objects(connection, version)
    return [] if found == law else list(_tell_apart(law, found))


def _tell_apart(law: frozenset[Object], found: frozenset[Object]) -> Iterator[str]:
    by_name = {one.name: one for one in found}
    for one in sorted(law - found, key=lambda each: each.name):
        what = "is missing" if one.name not in by_name else "was altered"
        yield f"{one.type} {one.name} {what}"
    lawful = {one.name for one in law}
    for one in sorted(found - law, key=lambda each: each.name):
        if one.name not in lawful:
            yield f"{one.type} {one.name} is not the law's"
