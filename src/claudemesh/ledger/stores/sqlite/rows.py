"""How a statement is asked: positional values in, rows out, and nothing left open."""

from collections.abc import Sequence
from typing import Any

import apsw


def fetch(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    return connection.execute(sql, values).fetchall()


def fetch_one(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
    rows = connection.execute(sql, values).fetchall()
    return rows[0] if rows else None


def fetch_named(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """Return rows by the names of their columns."""
    cursor = connection.execute(sql, values)
    try:
        names = [column[0] for column in cursor.description]
    except apsw.ExecutionCompleteError:  # no rows, no description
        return []
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
