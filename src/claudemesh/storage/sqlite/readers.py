"""How a query sees one unchanging moment, beside a writer that never waits for it.

A few read-only connections, opened and checked at the start, and as many threads. A query runs inside a read
transaction: whatever it asks, it is answered from the same commit. A query that takes long keeps the WAL from being
moved into the file, so it should page instead.
"""

import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import apsw

from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.storage.sqlite.connection import configure, connect
from claudemesh.storage.sqlite.errors import translated
from claudemesh.storage.sqlite.replies import ThreadReply
from claudemesh.storage.sqlite.writer import Job, Writer

T = TypeVar("T")

Query = Callable[[apsw.Connection], T]


class Readers:
    def __init__(self, path: Path, count: int) -> None:
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="sqlite-reader")
        self._idle: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        for _ in range(count):
            connection = connect(path, read_only=True)
            self._idle.put(connection)
            configure(connection)

    def submit(self, query: Query[T]) -> Future[T]:
        if os.getpid() != self._pid:
            raise StoreUnavailable("the store was opened before a fork, and its readers stayed with the parent")
        try:
            return self._pool.submit(self._run, query)
        except RuntimeError as error:
            raise StoreUnavailable("the store is closed") from error

    def close(self) -> None:
        """Wait for the queries under way, then close. May be called twice."""
        self._pool.shutdown(wait=True)
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def _run(self, query: Query[T]) -> T:
        connection = self._idle.get()  # never waits: there are as many as threads
        try:
            with translated():
                return _in_transaction(connection, query)
        except StopIteration as error:  # a future of a loop cannot carry it, and would never be answered
            raise RuntimeError("a query raised StopIteration") from error
        finally:
            self._idle.put(connection)


class WriterAsReader:
    """Queries of a database in memory, which has one connection: each waits its turn among the writes."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def submit(self, query: Query[T]) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def operation(connection: apsw.Connection, items: Sequence[None]) -> Sequence[T]:
            return [query(connection) for _ in items]

        self._writer.submit(Job(operation, (None,), ThreadReply(future)))
        return future

    def close(self) -> None:
        """Nothing of its own to close."""


def _in_transaction(connection: apsw.Connection, query: Query[T]) -> T:
    connection.execute("BEGIN")
    try:
        return query(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
