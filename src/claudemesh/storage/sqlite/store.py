"""What stores that are one file each have in common: how they are opened, and what is asked of them as files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import apsw

from claudemesh.kernel.clock import Clock
from claudemesh.storage.bounds import Bounds
from claudemesh.storage.sqlfile import Queries
from claudemesh.storage.sqlite.database import Database
from claudemesh.storage.sqlite.room import used_bytes
from claudemesh.storage.sqlite.schema import Schema


class SqliteStore:
    schema: ClassVar[Schema]
    queries: ClassVar[Queries]

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: Path) -> Self:
        return cls(Database.open(path, cls.schema))

    @classmethod
    @contextmanager
    def looked_at(cls, path: Path, clock: Clock, within_s: float) -> Iterator[Self]:
        """Look at it for questions only; see `Database.looked_at`."""
        with Database.looked_at(path, cls.schema, clock, within_s) as database:
            yield cls(database)

    @classmethod
    def in_memory(cls) -> Self:
        return cls(Database.in_memory(cls.schema))

    def close(self) -> None:
        self._database.close()

    async def bounds(self) -> Bounds:
        def query(connection: apsw.Connection) -> Bounds:
            row: Any = connection.execute(self.queries["bounds"]).fetchall()[0]
            return Bounds(*row)

        return await self._database.read(query)

    async def used_bytes(self) -> int:
        return await self._database.read(used_bytes)
