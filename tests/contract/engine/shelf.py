"""The smallest store that can show what an engine promises: texts on a shelf, each under a key.

`Shelf` is the port. Its two kinds of adapter are the SQLite engine and `OracleShelf`, a plain dict that says in a
few lines what the right answer is. A backend that joins later (Postgres) adds an adapter here and no test.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import apsw

from claudemesh.kernel.errors import InvalidRequest, MeshError, SchemaTooNew
from claudemesh.storage.migrate import Migration
from claudemesh.storage.sqlite import Database, Schema

Row = tuple[int, str, str]


class UnexpectedError(Exception):
    """What an operation with a bug raises in mid-write."""


class Shelf(Protocol):
    group_max: int

    async def put(self, key: str, text: str) -> str:
        """Keep `text` under a free key and return it; under a taken one return what stands there."""

    async def drop(self, key: str) -> bool:
        """Remove the key; False if it was free."""

    async def refuse(self, key: str) -> None:
        """Judge against the key before any write: raises InvalidRequest and changes nothing."""

    async def break_after_write(self, key: str) -> None:
        """Write the key, then fail: raises UnexpectedError and changes nothing."""

    async def rows(self) -> list[Row]:
        """Return (position, key, text) in the order of their arrival."""

    def held(self) -> "asyncio.AbstractAsyncContextManager[None]":
        """Make everything that is called inside wait, so that it can form one group."""

    async def reopen(self) -> None: ...

    async def reopen_as_an_older_program(self) -> None: ...

    def close(self) -> None: ...


# --- the SQLite engine -----------------------------------------------------------------------------

TABLE = Migration(
    1,
    "shelf",
    """
    CREATE TABLE shelf (
      position INTEGER PRIMARY KEY AUTOINCREMENT,
      key TEXT NOT NULL UNIQUE,
      text TEXT NOT NULL
    ) STRICT
    """,
)
NOTE = Migration(2, "note", "ALTER TABLE shelf ADD COLUMN note TEXT")

SCHEMA = Schema(0x73686C66, (TABLE, NOTE))
OLDER_SCHEMA = Schema(0x73686C66, (TABLE,))


def put(connection: apsw.Connection, items: Sequence[tuple[str, str]]) -> list[str]:
    outcomes = []
    for key, text in items:
        standing = connection.execute("SELECT text FROM shelf WHERE key = ?", (key,)).fetchone()
        if standing is None:
            connection.execute("INSERT INTO shelf (key, text) VALUES (?, ?)", (key, text))
        outcomes.append(text if standing is None else standing[0])
    return outcomes


def drop(connection: apsw.Connection, keys: Sequence[str]) -> list[bool]:
    outcomes = []
    for key in keys:
        connection.execute("DELETE FROM shelf WHERE key = ?", (key,))
        outcomes.append(connection.changes() == 1)
    return outcomes


def refuse(_connection: apsw.Connection, keys: Sequence[str]) -> list[MeshError]:
    return [InvalidRequest(f"no to {key}") for key in keys]


def break_after_write(connection: apsw.Connection, keys: Sequence[str]) -> list[None]:
    put(connection, [(key, "half done") for key in keys])
    raise UnexpectedError


def rows(connection: apsw.Connection) -> list[Row]:
    return connection.execute("SELECT position, key, text FROM shelf ORDER BY position").fetchall()


class SqliteShelf:
    def __init__(self, path: Path, group_max: int) -> None:
        self.path = path
        self.group_max = group_max
        self.database = self._open(SCHEMA)

    def _open(self, schema: Schema) -> Database:
        return Database.open(self.path, schema, group_max=self.group_max)

    async def put(self, key: str, text: str) -> str:
        return await self.database.write(put, (key, text))

    async def drop(self, key: str) -> bool:
        return await self.database.write(drop, key)

    async def refuse(self, key: str) -> None:
        await self.database.write(refuse, key)

    async def break_after_write(self, key: str) -> None:
        await self.database.write(break_after_write, key)

    async def rows(self) -> list[Row]:
        return await self.database.read(rows)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep the writer's thread inside an operation until the block ends."""
        entered, release = threading.Event(), threading.Event()

        def wait(_connection: apsw.Connection, items: Sequence[None]) -> list[None]:
            entered.set()
            release.wait(30)
            return list(items)

        holding = self.database.write(wait, None)
        assert await asyncio.to_thread(entered.wait, 30)
        try:
            yield
        finally:
            release.set()
            await holding

    async def reopen(self) -> None:
        self.close()
        self.database = self._open(SCHEMA)

    async def reopen_as_an_older_program(self) -> None:
        self.close()
        self._open(OLDER_SCHEMA).close()

    def close(self) -> None:
        self.database.close()


# --- the oracle ------------------------------------------------------------------------------------


class OracleShelf:
    """What is right, without any engine: a dict, and a counter that never goes back."""

    group_max = 1

    def __init__(self) -> None:
        self._by_key: dict[str, tuple[int, str]] = {}
        self._last = 0

    async def put(self, key: str, text: str) -> str:
        if key not in self._by_key:
            self._last += 1
            self._by_key[key] = (self._last, text)
        return self._by_key[key][1]

    async def drop(self, key: str) -> bool:
        return self._by_key.pop(key, None) is not None

    async def refuse(self, key: str) -> None:
        raise InvalidRequest(f"no to {key}")

    async def break_after_write(self, key: str) -> None:
        raise UnexpectedError(key)

    async def rows(self) -> list[Row]:
        return sorted((position, key, text) for key, (position, text) in self._by_key.items())

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        yield

    async def reopen(self) -> None:
        pass

    async def reopen_as_an_older_program(self) -> None:
        raise SchemaTooNew

    def close(self) -> None:
        pass
