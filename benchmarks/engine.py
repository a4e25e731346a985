"""The SQLite engine: what sharing a commit is worth, against floors measured in the same run.

64 callers in one event loop each store 1 KiB texts one after the other. Every answer is durable. The floors are the
same disk without any of our code: one append and sync at a time, and one bare SQLite connection in a loop.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from benchmarks.report import say_rate, say_ratio, say_value
from claudemesh.runtime import points
from claudemesh.storage.migrate import Migration
from claudemesh.storage.sqlite import Database, Schema
from claudemesh.storage.sqlite.connection import configure

BODY = b"x" * 1024
TABLE = "CREATE TABLE message (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL) STRICT"
INSERT = "INSERT INTO message (id, body) VALUES (?, ?) ON CONFLICT DO NOTHING"
SCHEMA = Schema(0x62656E63, (Migration(1, "message", TABLE),))


@dataclass(frozen=True)
class Measured:
    rate: float
    p99_ms: float
    commits_per_message: float


def store(connection: apsw.Connection, items: Sequence[tuple[str, bytes]]) -> list[bool]:
    """Insert all; only if some were there already ask for each which it was."""
    before = connection.total_changes()
    connection.executemany(INSERT, items)
    if connection.total_changes() - before != len(items):
        raise AssertionError("the benchmark never repeats an id")
    return [True] * len(items)


def measure_engine(folder: Path, *, callers: int, each: int, group_max: int) -> Measured:
    commits = 0

    def count() -> None:
        nonlocal commits
        commits += 1

    async def run() -> Measured:
        database = Database.open(folder / "engine.db", SCHEMA, group_max=group_max)
        waits: list[float] = []

        async def call(caller: int) -> None:
            for number in range(each):
                began = time.perf_counter()
                await database.write(store, (f"{caller:03}-{number:07}", BODY))
                waits.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(call(caller) for caller in range(callers)))
        took = time.perf_counter() - began
        database.close()
        waits.sort()
        total = callers * each
        return Measured(total / took, waits[int(total * 0.99)] * 1000, commits / total)

    points.arm("sqlite.before_commit", count)
    try:
        return asyncio.run(run())
    finally:
        points.disarm_all()


def measure_bare_sqlite(folder: Path, *, batches: int, batch: int) -> float:
    """Return rows a second of one connection that does nothing else, with a commit for each batch."""
    connection = apsw.Connection(str(folder / "bare.db"))
    configure(connection)
    connection.execute(TABLE)
    began = time.perf_counter()
    for number in range(batches):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT, [(f"{number:05}-{row:05}", BODY) for row in range(batch)])
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    connection.close()
    return batches * batch / took


def measure_sync(folder: Path, count: int) -> float:
    """Return the median seconds of appending 1 KiB and syncing it."""
    descriptor = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        os.write(descriptor, BODY)
        os.fdatasync(descriptor)
        times.append(time.perf_counter() - began)
    os.close(descriptor)
    return sorted(times)[count // 2]


def run(scale: float) -> None:
    """Interleave the rounds, since the machine changes its mind from minute to minute, and print medians."""
    rounds = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sync_s = measure_sync(folder, int(500 * scale))
            bare = measure_bare_sqlite(folder, batches=int(200 * scale), batch=64)
            grouped = measure_engine(folder, callers=64, each=int(300 * scale), group_max=256)
        with tempfile.TemporaryDirectory() as name:
            single = measure_engine(Path(name), callers=64, each=int(30 * scale), group_max=1)
        with tempfile.TemporaryDirectory() as name:
            alone = measure_engine(Path(name), callers=1, each=int(1500 * scale), group_max=256)
        rounds.append((sync_s, bare, grouped, single, alone))
    rounds.sort(key=lambda row: row[2].rate)
    sync_s, bare, grouped, single, alone = rounds[1]
    say_value("one append of 1 KiB and its sync (floor)", f"{sync_s * 1000:.3f} ms")
    say_rate("bare SQLite, 64 rows a commit (floor)", bare, "rows/s")
    for name, found in (("64 callers", grouped), ("64 callers, group limit 1", single), ("1 caller", alone)):
        more = f"p99 {found.p99_ms:.2f} ms   {found.commits_per_message:.3f} commits a message"
        say_rate(f"engine, {name}", found.rate, "writes/s", more)
    say_ratio("grouped / one transaction a request", grouped.rate / single.rate, at_least=(3, 5))
    say_ratio("grouped / bare SQLite at 64", grouped.rate / bare)
    say_ratio("1 caller / appends and syncs", alone.rate * sync_s)
    say_ratio("p99 at 64 callers / one sync", grouped.p99_ms / (sync_s * 1000), at_most=(100, 50))
