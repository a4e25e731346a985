"""How a query sees one unchanging moment, beside a writer that never waits for it.

A few threads with a read-only connection each. A query runs inside a read transaction: whatever it asks, it is
answered from the same commit.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.storage.sqlite.connection import open_reader
from claudemesh.storage.sqlite.errors import translated

T = TypeVar("T")

Query = Callable[[apsw.Connection], T]


class Readers:
    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="sqlite-reader")

    def submit(self, query: Query[T]) -> Future[T]:
        try:
            return self._pool.submit(self._run, query)
        except RuntimeError as error:
            raise StoreUnavailable("the store is closed") from error

    def close(self) -> None:
        """Wait for the queries under way, then close. May be called twice."""
        self._pool.shutdown(wait=True)
        while self._connections:
            self._connections.pop().close()

    def _run(self, query: Query[T]) -> T:
        with translated():
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                return query(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = open_reader(self._path)
            self._local.connection = connection
            self._connections.append(connection)
        return connection
