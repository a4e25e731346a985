"""Stores with something in them, the lake beside, and both counted by somebody else."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import asyncpg
import duckdb

from claudemesh.pipeline.lake import Cut, Lake

# Of every table that only grows, which columns no two rows have the same. Written out: the catalogue is under test.
KEYS = {
    "client_message_dedupe": ("broker_message_id",),
    "message_history": ("mesh_id", "history_id"),
    "topic_message": ("mesh_id", "history_id"),
    "message_queue": ("mesh_id", "history_id"),
    "queue_lease": ("mesh_id", "history_id"),
    "delivery_queue": ("mesh_id", "history_id", "recipient_id"),
    "mention_index": ("mesh_id", "history_id", "mentioned"),
    "delivery_event": ("id",),
    "presence_event": ("id",),
    "tombstone": ("id",),
}


class Writer:
    """The process of `writer.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def say(self, line: str) -> None:
        """Have it done."""
        self.begin(line)
        self.hear("done")

    def begin(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word


@contextmanager
def writing(url: str) -> Iterator[Writer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.writer", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        writer = Writer(process)
        writer.hear("ready")
        yield writer
    finally:
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        process.stdout.read()
        process.stdout.close()
        assert process.wait(60) == 0


ASK_FILE = """
import json, sqlite3, sys
print(json.dumps(sqlite3.connect(sys.argv[1], uri=True).execute(sys.argv[2]).fetchall()))
"""


def count_in_store(url: str) -> dict[str, int]:
    """Ask the store itself, through another door than an ingest: rows of each table, and accepted ids.

    A file is asked in a process of its own: this one may have it open through another library.
    """
    is_file = url.startswith("sqlite:///")
    schema = "" if is_file else "mesh."
    which = {"client_message_dedupe": " WHERE state = 'accepted'"}
    sql = " UNION ALL ".join(
        f"SELECT '{name}', count(*) FROM {schema}{name}{which.get(name, '')}"  # noqa: S608 - our own
        for name in KEYS
    )
    if is_file:
        file = f"file:{quote(url.removeprefix('sqlite:///'))}?mode=ro"
        said = subprocess.run([sys.executable, "-c", ASK_FILE, file, sql], check=True, capture_output=True)
        return dict(json.loads(said.stdout))
    return asyncio.run(_ask_server(url, sql))


async def _ask_server(url: str, sql: str) -> dict[str, int]:
    connection = await asyncpg.connect(url)
    try:
        return {row[0]: row[1] for row in await connection.fetch(sql)}
    finally:
        await connection.close()


def count_by_duckdb(lake: Lake, source: str, cut: Cut) -> dict[str, tuple[int, int]]:
    """Return rows and distinct keys of all that lies in the directories of the source, whatever a cut names."""
    place = lake.root / "bronze" / source / f"g={cut.sources[source].generation}"
    counted = {}
    for table, key in KEYS.items():
        files = [str(file) for file in (place / table).glob("batch=*/*.parquet")]
        if not files:
            counted[table] = (0, 0)
            continue
        found = duckdb.read_parquet(files, hive_partitioning=False)
        [row] = found.aggregate(f"count(*), count(DISTINCT ({', '.join(key)}))").fetchall()
        counted[table] = row
    return counted
