"""pgmq as its users run it: its own SQL on a server that flushes, asked by asyncpg on connections that are held."""

import asyncio
import time
from importlib.resources import files

import asyncpg

from benchmarks.messages import SIZE, text

QUEUE = "bench"


async def install(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(files("pgmq").joinpath("sql", "pgmq.sql").read_text(encoding="utf-8"))
        await connection.execute("SELECT pgmq.create($1)", QUEUE)
    finally:
        await connection.close()


async def measure_send(dsn: str, messages: int, *, connections: int) -> float:
    """Return how many messages a second are sent, each awaited, one row each, on so many connections."""
    statement = f"SELECT pgmq.send('{QUEUE}', to_jsonb($1::text))"
    return await _measure(dsn, statement, messages, connections)


async def measure_insert(dsn: str, messages: int, *, connections: int) -> float:
    """Return the same of a bare insert of one row: the floor of what a database can confirm."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, body text NOT NULL)")
    await connection.close()
    return await _measure(dsn, "INSERT INTO bare (body) VALUES ($1)", messages, connections)


async def _measure(dsn: str, statement: str, messages: int, connections: int) -> float:
    numbers = iter(range(messages))

    async def send(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        prepared = await connection.prepare(statement)
        for number in numbers:
            await prepared.fetch(text(number, SIZE))

    held = [await asyncpg.connect(dsn) for _ in range(connections)]
    try:
        began_s = time.monotonic()
        await asyncio.gather(*(send(connection) for connection in held))
        return messages / (time.monotonic() - began_s)
    finally:
        for connection in held:
            await connection.close()
