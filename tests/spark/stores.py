"""Stores with something in them, the lake beside, and both counted by somebody else."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from claudemesh.pipeline.catalogue import BROKER, Growth
from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.pipeline.stores import open_store

KEYS = {table.name: table.key for table in BROKER.wanted(Growth.APPEND, bodies=False)}


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


def count_in_store(url: str) -> dict[str, int]:
    """Ask the store itself, through another door than an ingest: rows of each table."""
    for moment in open_store(url).moments():
        if moment.is_cut:
            counts = moment.count(None, {})
    return {name: count for name, count in counts.items() if name in KEYS}


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
