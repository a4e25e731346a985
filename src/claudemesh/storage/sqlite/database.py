"""One SQLite file as its users see it: write, read, close."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

import apsw

from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import MeshError, StoreUnavailable
from claudemesh.storage.migrate import plan
from claudemesh.storage.sqlite import sync_guard
from claudemesh.storage.sqlite.connection import configure, configure_memory, connect
from claudemesh.storage.sqlite.errors import translated
from claudemesh.storage.sqlite.file import one_at_a_time, provide
from claudemesh.storage.sqlite.inspect import looking
from claudemesh.storage.sqlite.readers import LookAsReader, Query, Readers, WriterAsReader
from claudemesh.storage.sqlite.replies import LoopReply, ThreadReply
from claudemesh.storage.sqlite.schema import Schema, check_owner, check_pages, migrate
from claudemesh.storage.sqlite.transactions import Transactions
from claudemesh.storage.sqlite.writer import GROUP_MAX_DEFAULT, Item, Job, Operation, Outcome, Writer

T = TypeVar("T")

READERS_DEFAULT = 2


class NotYetOurs(Exception):
    """The file is of an older version, or was only just made: who opens it brings it to ours."""


class _NoWriter:
    """Of a file that is only looked at."""

    def submit(self, _: Job) -> None:
        raise StoreUnavailable("the file is only looked at, and nothing is written")

    def close(self) -> None:
        """Nothing of its own to close."""


class Database:
    """A writer with group commit and readers beside it.

    `write` returns after its commit is on the disk, and raises StoreUnavailable if nobody can say whether it is. A
    caller that is cancelled while it waits does not take its write back. `read` sees everything that was answered
    before it began.
    """

    def __init__(
        self,
        writer: Writer | _NoWriter,
        readers: Readers | WriterAsReader | LookAsReader,
        connection: apsw.Connection,
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._connection = connection

    @classmethod
    def open(
        cls, path: Path, schema: Schema, *, group_max: int = GROUP_MAX_DEFAULT, readers: int = READERS_DEFAULT
    ) -> Self:
        """Open or create the file and bring it to the schema's version, or refuse it with the reason."""
        sync_guard.install()
        path = path.parent.resolve() / path.name
        with one_at_a_time(path.parent), translated():
            provide(path)
            connection = connect(path, read_only=False)
            try:
                check_owner(connection, schema)  # before the first change: a file that is not ours stays as it is
                configure(connection)
                transactions = Transactions(connection)
                migrate(connection, transactions, schema)
                check_pages(connection, path)
                sync_guard.sync_directory(path.parent)
                writer = Writer(connection, transactions, group_max=group_max)
                reading = Readers(path, readers)
            except BaseException:
                connection.close()
                raise
        writer.start()
        return cls(writer, reading, connection)

    @classmethod
    @contextmanager
    def looked_at(cls, path: Path, schema: Schema, clock: Clock, within_s: float) -> Iterator[Self]:
        """Look at a file as it is at one moment, and keep nobody from it: who has it open, or opens it, goes on.

        A damaged file is refused as by `open`. NotYetOurs of one that would have to be changed first.
        """
        with looking(path, clock, within_s) as connection:
            with translated():
                if plan(check_owner(connection, schema), schema.migrations):
                    raise NotYetOurs
                check_pages(connection, path)
            yield cls(_NoWriter(), LookAsReader(connection), connection)

    @classmethod
    def in_memory(cls, schema: Schema, *, group_max: int = GROUP_MAX_DEFAULT) -> Self:
        """Open a database that is gone with the process: the same behaviour, and nothing durable."""
        connection = apsw.Connection(":memory:")
        configure_memory(connection)
        transactions = Transactions(connection)
        migrate(connection, transactions, schema)
        writer = Writer(connection, transactions, group_max=group_max)
        writer.start()
        return cls(writer, WriterAsReader(writer), connection)

    def write(self, operation: Operation[Item, Outcome], item: Item) -> "asyncio.Future[Outcome]":
        """Apply the operation to one item; a refusal is raised.

        It is submitted before this returns: two calls without an await between them mostly share a commit.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._writer.submit(Job(operation, (item,), LoopReply(loop, future)))
        return future

    def write_many(
        self, operation: Operation[Item, Outcome], items: Sequence[Item]
    ) -> "asyncio.Future[list[Outcome | MeshError]]":
        """Apply it to each item, in one commit unless one breaks; a refusal is the outcome of its own item."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Outcome | MeshError]] = loop.create_future()
        self._writer.submit(Job(operation, tuple(items), LoopReply(loop, future), is_batch=True))
        return future

    def write_blocking(self, operation: Operation[Item, Outcome], item: Item) -> Outcome:
        """As `write`, from a thread that has no event loop."""
        return self.submit(operation, item).result()

    def submit(self, operation: Operation[Item, Outcome], item: Item) -> Future[Outcome]:
        """As `write_blocking`, without waiting yet. It cannot be cancelled: it is as good as written."""
        future: Future[Outcome] = Future()
        future.set_running_or_notify_cancel()
        self._writer.submit(Job(operation, (item,), ThreadReply(future)))
        return future

    def read(self, query: Query[T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._readers.submit(query, LoopReply(loop, future))
        return future

    def read_blocking(self, query: Query[T]) -> T:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self._readers.submit(query, ThreadReply(future))
        return future.result()

    def close(self) -> None:
        """Finish what was submitted and let go of the file. May be called twice.

        It waits for the queries and writes under way, so from an event loop call it in a thread.
        """
        self._readers.close()
        self._writer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
