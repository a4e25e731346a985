"""One SQLite file as its users see it: write, read, close."""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Self, TypeVar

import apsw

from claudemesh.storage.sqlite.connection import open_writer
from claudemesh.storage.sqlite.errors import translated
from claudemesh.storage.sqlite.readers import Query, Readers
from claudemesh.storage.sqlite.replies import LoopReply, ThreadReply
from claudemesh.storage.sqlite.schema import Schema, migrate
from claudemesh.storage.sqlite.writer import GROUP_MAX_DEFAULT, Item, Job, Operation, Outcome, Writer

T = TypeVar("T")

READERS_DEFAULT = 2


class Database:
    """A writer with group commit and readers beside it.

    `write` returns after its commit is on the disk, and raises StoreUnavailable if nobody can say whether it is. A
    caller that is cancelled while it waits does not take its write back. `read` sees everything that was answered
    before it began.
    """

    def __init__(self, writer: Writer, readers: Readers, connection: apsw.Connection) -> None:
        self._writer = writer
        self._readers = readers
        self._connection = connection

    @classmethod
    def open(
        cls, path: Path, schema: Schema, *, group_max: int = GROUP_MAX_DEFAULT, readers: int = READERS_DEFAULT
    ) -> Self:
        """Open or create the file and bring it to the schema's version, or refuse it with the reason."""
        with translated():
            connection = open_writer(path)
            try:
                migrate(connection, schema)
            except BaseException:
                connection.close()
                raise
        writer = Writer(connection, group_max=group_max)
        writer.start()
        return cls(writer, Readers(path, readers), connection)

    async def write(self, operation: Operation[Item, Outcome], item: Item) -> Outcome:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._writer.submit(Job(operation, item, LoopReply(loop, future)))
        return await future

    def write_blocking(self, operation: Operation[Item, Outcome], item: Item) -> Outcome:
        return self.submit(operation, item).result()

    def submit(self, operation: Operation[Item, Outcome], item: Item) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        self._writer.submit(Job(operation, item, ThreadReply(future)))
        return future

    async def read(self, query: Query[T]) -> T:
        return await asyncio.wrap_future(self._readers.submit(query))

    def read_blocking(self, query: Query[T]) -> T:
        return self._readers.submit(query).result()

    def close(self) -> None:
        """Finish what was submitted and let go of the file. May be called twice."""
        self._readers.close()
        self._writer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
