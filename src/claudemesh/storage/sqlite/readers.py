"""How a query sees one unchanging moment, beside a writer that never waits for it.

A few read-only connections, opened and checked at the start, and as many threads. A query runs inside a read
transaction: whatever it asks, it is answered from the same commit. A query that takes long keeps the WAL from being
moved into the file, so it should page instead.
"""

import os
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.storage.sqlite.connection import configure, connect
from claudemesh.storage.sqlite.errors import translate
from claudemesh.storage.sqlite.inspect import Look
from claudemesh.storage.sqlite.replies import Reply, answer
from claudemesh.storage.sqlite.writer import Job, Writer

T = TypeVar("T")

Query = Callable[[apsw.Connection], T]


class _Asked(NamedTuple):
    query: Query[Any]
    reply: Reply


class Readers:
    def __init__(self, path: Path, count: int) -> None:
        if count < 1:
            raise ValueError("there is at least one reader")
        self._pid = os.getpid()
        self._queue: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._asking = threading.Lock()
        self._is_closed = False
        connections = [connect(path, read_only=True) for _ in range(count)]
        for connection in connections:
            configure(connection)
        self._threads = [
            threading.Thread(target=self._run, args=(connection,), name="sqlite-reader", daemon=True)
            for connection in connections
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, query: Query[Any], reply: Reply) -> None:
        if os.getpid() != self._pid:
            raise StoreUnavailable("the store was opened before a fork, and its readers stayed with the parent")
        with self._asking:
            if self._is_closed:
                raise StoreUnavailable("the store is closed")
            self._queue.put(_Asked(query, reply))

    def close(self) -> None:
        """Wait for the queries that were asked, then close. May be called twice."""
        with self._asking:
            if not self._is_closed:
                self._is_closed = True
                for _ in self._threads:
                    self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self, connection: apsw.Connection) -> None:
        while (asked := self._queue.get()) is not None:
            outcome: object
            try:
                outcome = _in_transaction(connection, asked.query)
            except BaseException as error:  # noqa: BLE001  it is raised where the answer is waited for
                outcome = translate(error)
            answer([(asked.reply, outcome)])
            del asked, outcome  # what was read belongs to whoever asked
        connection.close()


class WriterAsReader:
    """Queries of a database in memory, which has one connection: each waits its turn among the writes."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def submit(self, query: Query[Any], reply: Reply) -> None:
        def operation(connection: apsw.Connection, items: Sequence[None]) -> Sequence[object]:
            return [query(connection) for _ in items]

        self._writer.submit(Job(operation, (None,), reply))

    def close(self) -> None:
        """Nothing of its own to close."""


class LookAsReader:
    """Queries of a file that is only looked at: one after the other, all of them answered from the same commit."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def submit(self, query: Query[Any], reply: Reply) -> None:
        try:
            outcome = query(self._look)
        except BaseException as error:  # noqa: BLE001  as above
            outcome = translate(error)
        answer([(reply, outcome)])

    def close(self) -> None:
        """Nothing of its own to close."""


def _in_transaction(connection: apsw.Connection, query: Query[T]) -> T:
    connection.execute("BEGIN")
    try:
        return query(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
