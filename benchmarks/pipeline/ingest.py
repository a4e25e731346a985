"""An ingest beside a plain loop: the same rows through ADBC and pyarrow into Parquet, without Spark.

Both are processes of their own, so that start-up counts. An ingest without news is timed too.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from string import Template

import apsw
import asyncpg
import pyarrow.parquet

from benchmarks.report import measured, say_ratio, say_value, scaled
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.broker.stores.sqlite import SqliteStores
from claudemesh.pipeline.shapes import Growth
from claudemesh.pipeline.sources.connection import read_share
from claudemesh.pipeline.sources.model import fields
from claudemesh.pipeline.stores import open_stores
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource
from claudemesh.storage.sqlfile import load_queries
from tests.services.postgres import private_postgres, wheel

MESSAGES = 10_000_000
_SQL = load_queries(files("benchmarks.pipeline") / "ingest.sql")


def fill_sqlite(folder: Path, messages: int) -> str:
    path = folder / "broker.db"
    clock = SystemClock()
    stores = SqliteStores.open(path, clock=clock, mint=UlidSource(clock).ulid, render=render_delivery)
    asyncio.run(stores.aclose())
    connection = apsw.Connection(str(path))
    with connection:
        connection.execute(Template(_SQL["sqlite"]).substitute(messages=messages))
    connection.close()
    return f"sqlite:///{path}"


async def fill_postgres(dsn: str, messages: int) -> None:
    clock = SystemClock()
    stores = await PostgresStores.open(dsn, clock=clock, mint=UlidSource(clock).ulid, render=render_delivery)
    await stores.aclose()
    connection = await asyncpg.connect(dsn)
    for statement in Template(_SQL["postgres"]).substitute(messages=messages).split(";"):
        if statement.strip():
            await connection.execute(statement)
    await connection.close()


def copy_plainly(url: str, folder: Path) -> None:
    """Copy every append-only table through one connection, one after the other."""
    (store,) = open_stores([url])
    for moment in store.moments():
        if not moment.is_cut:
            continue
        for table in store.kind.wanted(Growth.APPEND, bodies=False):
            reading = moment.reading(table, None, moment.position, 1)
            if reading is None:
                continue
            schema, place = fields(table), folder / f"{table.name}.parquet"
            with pyarrow.parquet.ParquetWriter(place, schema, compression="zstd") as file:
                for number in range(len(reading.statements)):
                    for batch in read_share(reading, number, schema):
                        file.write_batch(batch)


def _timed(*command: str) -> float:
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - ourselves
    return time.monotonic() - began_s


def _measure(url: str, name: str) -> None:
    def one_round() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                "claudemesh.cli.main",
                "pipeline",
                "ingest",
                "--store",
                url,
                "--lake",
                f"{folder}/lake",
                "--json",
            ]
            (Path(folder) / "plain").mkdir()
            return {
                "plain": 1 / _timed("benchmarks.pipeline.ingest", url, f"{folder}/plain"),
                "ours": 1 / _timed(*command),
                "nothing new, s": _timed(*command),
            }

    rounds = measured(one_round)
    say_value(f"{name}: plain loop s, ingest s", f"{1 / rounds['plain']:.1f}   {1 / rounds['ours']:.1f}")
    say_ratio(f"{name}: ingest / plain loop", rounds.ratio("ours", "plain"), at_least=(0.5, 1))
    say_value(f"{name}: ingest without news, s (must be 2 at most)", f"{rounds['nothing new, s']:.2f}")


def run(scale: float) -> None:
    messages = scaled(MESSAGES, scale)
    with tempfile.TemporaryDirectory() as name:
        _measure(fill_sqlite(Path(name), messages), f"SQLite, {messages:,} messages")
    with private_postgres(wheel()) as server:
        dsn = server.create_database("bench")
        asyncio.run(fill_postgres(dsn, messages))
        _measure(dsn, f"PostgreSQL, {messages:,} messages")


if __name__ == "__main__":
    copy_plainly(sys.argv[1], Path(sys.argv[2]))
