"""The connections of one store: a few writers that write in order, and a bounded pool for everything else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.storage.postgres.connection import Connection, Endpoint, Record, bounded, check_server, connect
from claudemesh.storage.postgres.errors import translated
from claudemesh.storage.postgres.retrying import retried
from claudemesh.storage.postgres.schema import MIGRATION_MS, Schema, migrate
from claudemesh.storage.postgres.writer import WEIGHT_MAX, Writer

POOL_MAX: Final = 8
POOL_WAIT_S: Final = 10.0

Outcome = TypeVar("Outcome")

Greeting = Callable[[Connection], Awaitable[None]]


class _Pool:
    """Connections that are lent, at most so many. The driver's own pool resets each one at every return."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], connections_max: int) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(connections_max)
        self._is_closed = False

    @asynccontextmanager
    async def lent(self, seconds: float | None = None) -> AsyncIterator[Connection]:
        """Lend one for a while, at most for so long."""
        try:
            async with asyncio.timeout(POOL_WAIT_S):
                await self._room.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("no connection to the database came free in time") from error
        try:
            connection = await self._take()
            try:
                with bounded(connection, seconds):
                    yield connection
            except asyncio.CancelledError:  # whatever it was doing, the driver has begun to cancel it
                connection.terminate()
                raise
            finally:
                self._give_back(connection)
        finally:
            self._room.release()

    async def aclose(self) -> None:
        self._is_closed = True
        while self._idle:
            await self._idle.pop().close(timeout=1)

    async def _take(self) -> Connection:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()

    def _give_back(self, connection: Connection) -> None:
        if connection.is_closed():
            return
        if self._is_closed or connection.is_in_transaction():  # its end failed, and nobody knows how it stands
            connection.terminate()
        else:
            self._idle.append(connection)


class Database:
    def __init__(self, endpoint: Endpoint, pool_max: int = POOL_MAX) -> None:
        self.endpoint = endpoint
        self._pool = _Pool(self._connect, pool_max)
        self._greet: Greeting | None = None
        self._writers: list[Writer] = []

    @classmethod
    async def open(cls, endpoint: Endpoint, schema: Schema, *, pool_max: int = POOL_MAX) -> Self:
        """Connect, refuse a server that cannot keep our promises, and bring the schema up to date."""
        database = cls(endpoint, pool_max)
        try:
            async with database._pool.lent(MIGRATION_MS / 1000) as connection:
                await check_server(connection)
                await migrate(connection, schema)
        except BaseException:
            await database.aclose()
            raise
        return database

    def writer(self, weight_max: int = WEIGHT_MAX) -> Writer:
        """Return a new writer, with a connection of its own from its first use on."""
        writer = Writer(self._connect, weight_max=weight_max)
        self._writers.append(writer)
        return writer

    async def fetch(self, statement: str, *values: Any) -> list[Record]:  # noqa: ANN401 - what SQL takes
        """Run one statement by itself."""
        with translated():
            async with self._pool.lent() as connection:
                return await connection.fetch(statement, *values)

    async def transact(
        self, operation: Callable[[Connection], Awaitable[Outcome]], seconds: float | None = None
    ) -> Outcome:
        """Run it in a transaction of its own; again, if it met a deadlock. What it raises rolls back."""
        with translated():
            return await retried(lambda: self._once(operation, seconds))

    async def greet_with(self, greeting: Greeting) -> None:
        """Have every new connection begin with this. The one that is idle after opening too."""
        self._greet = greeting
        async with self._pool.lent() as connection:
            await greeting(connection)

    async def aclose(self) -> None:
        """Finish what was submitted, and leave. May be called twice."""
        for writer in self._writers:
            await writer.aclose()
        await self._pool.aclose()

    async def _once(self, operation: Callable[[Connection], Awaitable[Outcome]], seconds: float | None) -> Outcome:
        async with self._pool.lent(seconds) as connection, connection.transaction():
            return await operation(connection)

    async def _connect(self) -> Connection:
        connection = await connect(self.endpoint)
        if self._greet is not None:
            try:
                with bounded(connection), translated():
                    await self._greet(connection)
            except BaseException:
                connection.terminate()
                raise
        return connection


def column(rows: Sequence[Record], place: int = 0) -> list[Any]:
    """Return one column of some rows."""
    return [row[place] for row in rows]
