"""Statements in, typed rows out. A statement is run to its end, since an open cursor would block the commit."""

from collections.abc import Sequence
from typing import Any

import apsw

Row = tuple[Any, ...]


def fetch(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> list[Row]:
    return connection.execute(statement, values).fetchall()


def fetch_one(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> Row | None:
    rows = fetch(connection, statement, values)
    return rows[0] if rows else None


def run(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> int:
    """Return how many rows it changed itself, without its triggers."""
    connection.execute(statement, values)
    return connection.changes()
