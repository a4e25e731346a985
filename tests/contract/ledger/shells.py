"""Whoever has the file and a shell: raw SQL on it, with every protection of the connection switched off.

Two libraries in one process do not see each other's locks, so the ledger is closed while a shell is at its file.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import apsw

Rows = list[tuple[Any, ...]]

UNPROTECTED = ("PRAGMA foreign_keys = OFF", "PRAGMA ignore_check_constraints = ON", "PRAGMA trusted_schema = ON")
ERRORS = (sqlite3.Error, apsw.Error)


class Shell(Protocol):
    def __call__(self, sql: str, values: Sequence[Any] = (), /) -> Rows: ...


@contextmanager
def system_shell(path: Path) -> Iterator[Shell]:
    """Give the SQLite that Python brings, which is as old as the law allows for."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield lambda sql, values=(): connection.execute(sql, values).fetchall()
    finally:
        connection.close()


@contextmanager
def newest_shell(path: Path) -> Iterator[Shell]:
    """Give the SQLite that the ledger itself uses."""
    with _connected(path) as connection:
        yield lambda sql, values=(): connection.execute(sql, values).fetchall()


@contextmanager
def lawless_shell(path: Path) -> Iterator[Shell]:
    """Give one without triggers and foreign keys: SQLite has a switch for that, which no file can refuse."""
    with _connected(path) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
        yield lambda sql, values=(): connection.execute(sql, values).fetchall()


@contextmanager
def _connected(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5_000)
    try:
        yield connection
    finally:
        connection.close()


SHELLS: dict[str, Callable[[Path], Any]] = {"system": system_shell, "newest": newest_shell}


@contextmanager
def attacking(path: Path, kind: str = "system", *, recursive: bool = False) -> Iterator[Shell]:
    """Give a shell on which nothing but the file's own triggers can refuse anything."""
    with SHELLS[kind](path) as shell:
        for pragma in (*UNPROTECTED, f"PRAGMA recursive_triggers = {'ON' if recursive else 'OFF'}"):
            shell(pragma)
        yield shell


def dump(shell: Shell) -> dict[str, Rows]:
    """Return all that the file holds: its schema, and every row of every table with its rowid."""
    schema = shell("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
    tables = [name for kind, name, *_ in schema if kind == "table"]
    rows = {name: shell(f"SELECT rowid, * FROM main.{name} ORDER BY rowid") for name in tables}  # noqa: S608
    return {"schema": schema, **rows}
