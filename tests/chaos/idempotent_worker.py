"""One worker process of an app that writes rows under the middleware, for tests that kill and stop it.

    python -m tests.chaos.idempotent_worker STORE HOW LEASE_MS [HOLD]

STORE is a file of SQLite or a DSN of PostgreSQL, which several workers share; HOW is `complete` (the key is settled
in the transaction of the write) or `plain` (it is left to the middleware). It prints `port N` when it serves, and
`at before`, `at after` around the commit of each write; at HOLD it waits there for a line on stdin.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import apsw
import uvicorn

from claudemesh.asgi.messages import Receive, Scope, Send
from claudemesh.idempotency import MARK, KeptResponse, KeyStore, Mark, WriteIdempotencyMiddleware
from claudemesh.idempotency.stores.postgres import MIGRATIONS as POSTGRES
from claudemesh.idempotency.stores.postgres import PostgresKeyStore
from claudemesh.idempotency.stores.sqlite import MIGRATIONS as SQLITE
from claudemesh.idempotency.stores.sqlite import SqliteKeyStore
from claudemesh.runtime.world import World, real_world
from claudemesh.storage.migrate import Migration, in_order
from claudemesh.storage.postgres import Connection, Endpoint
from claudemesh.storage.postgres import Database as PostgresDatabase
from claudemesh.storage.postgres import Schema as PostgresSchema
from claudemesh.storage.sqlite import Database, Schema

APP = Migration(1, "app", "CREATE TABLE written (pid INTEGER NOT NULL)")
SCHEMA = Schema(0x74657374, in_order(*SQLITE, APP))
POSTGRES_SCHEMA = PostgresSchema("app", in_order(*POSTGRES, APP))

Write = Callable[[Mark | None], Awaitable[None]]

answer = KeptResponse(201, ((b"content-type", b"text/plain"),), b"written by %d" % os.getpid())


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def open_sqlite(path: str, world: World) -> tuple[KeyStore, Write]:
    database = Database.open(Path(path), SCHEMA)

    def operation(connection: apsw.Connection, marks: Sequence[Mark | None]) -> list[None]:
        for mark in marks:
            connection.execute("INSERT INTO written VALUES (?)", (os.getpid(),))
            if mark is not None:
                mark.complete(connection, answer)
        return [None for _ in marks]

    async def write(mark: Mark | None) -> None:
        await database.write(operation, mark)

    return SqliteKeyStore(database, world), write


async def open_postgres(dsn: str, world: World) -> tuple[KeyStore, Write]:
    database = await PostgresDatabase.open(Endpoint(dsn), POSTGRES_SCHEMA)

    async def write(mark: Mark | None) -> None:
        async def operation(connection: Connection) -> None:
            await connection.execute("INSERT INTO app.written VALUES ($1)", os.getpid())
            if mark is not None:
                await mark.complete_async(connection, answer)

        await database.transact(operation)

    return PostgresKeyStore(database, world, "app"), write


async def main(place: str, how: str, lease_ms: str, hold: str = "") -> None:
    world = real_world()
    is_postgres = place.startswith("postgresql://")
    store, write = await open_postgres(place, world) if is_postgres else open_sqlite(place, world)

    async def reach(point: str) -> None:
        say(f"at {point}")
        if point == hold:
            await asyncio.to_thread(sys.stdin.readline)

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        await reach("before")
        await write(scope[MARK] if how == "complete" else None)
        await reach("after")
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})

    served = WriteIdempotencyMiddleware(app, store, lease_ms=int(lease_ms))
    listening = socket.create_server(("127.0.0.1", 0))
    say(f"port {listening.getsockname()[1]}")
    config = uvicorn.Config(served, log_config=None, lifespan="off", access_log=False)  # type: ignore[arg-type]
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
