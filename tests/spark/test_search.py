"""The archive of an inbox, as Spark writes it."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from claudemesh.pipeline import archive, shards
from claudemesh.pipeline.catalogue import INBOX
from claudemesh.pipeline.jobs.search import documents
from tests.unit.pipeline.archives import TEXTS, document, found, holds

PARAMS: Any = None  # the search has none


def tables(spark: SparkSession, bodies: list[str]) -> dict[str, DataFrame]:
    """Return an inbox that received these, a millisecond apart, with its rows in no order."""
    rows = [{**document(seq)._asdict(), "sender_id": "S", "body": body} for seq, body in enumerate(bodies)]

    def frame(name: str) -> DataFrame:
        columns = INBOX.table(name).columns
        schema = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        return spark.createDataFrame([[row[column] for column in columns] for row in reversed(rows)], schema)

    return {"inbox": frame("inbox"), "body": frame("body")}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.req("S2")
def test_what_spark_indexed_is_found_as_a_scan_finds_it_whatever_the_number_of_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 10 * shards.HEAD_BYTES)
    bodies = [*TEXTS, "words again"]
    directory = tmp_path / "search" / "s1"
    told = shards.publish(documents(tables(spark, bodies), PARAMS), directory)
    index = archive.read_index(directory)
    assert told == {"documents": len(bodies), "shards": len(index)}
    assert len(index) > 1
    assert [one.last_received_at for one in index] == sorted(one.last_received_at for one in index)
    assert names(directory) == {"index.json", "lock", *(one.file for one in index)}
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    for words in TEXTS:
        assert found(tmp_path, words) == [body for body in bodies if holds(body, words)]


@pytest.mark.req("S2")
def test_an_inbox_without_messages_has_an_archive_without_any(spark: SparkSession, tmp_path: Path) -> None:
    told = shards.publish(documents(tables(spark, []), PARAMS), tmp_path / "search" / "s1")
    assert told["documents"] == 0
    assert found(tmp_path, "words") == []


Batches = Iterator[pa.RecordBatch]


def dies_behind(writer: Callable[[Path], Callable[[Batches], Batches]]) -> Callable[[Path], Any]:
    """Make a worker kill itself when its file is written, before it can tell of it."""

    def make(directory: Path) -> Callable[[Batches], Batches]:
        write = writer(directory)

        def write_and_die(batches: Batches) -> Batches:
            for _ in write(batches):
                os.kill(os.getpid(), signal.SIGKILL)
            yield from ()

        return write_and_die

    return make


@pytest.mark.req("S2")
def test_a_rebuild_whose_worker_is_killed_leaves_the_archive_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "search" / "s1"
    shards.publish(documents(tables(spark, ["words old"]), PARAMS), directory)
    before = names(directory)
    monkeypatch.setattr(shards, "_writer", dies_behind(shards._writer))
    with pytest.raises(Py4JJavaError, match="worker exited unexpectedly"):
        shards.publish(documents(tables(spark, ["words new"]), PARAMS), directory)
    assert names(directory) == before
    assert found(tmp_path, "words") == ["words old"]
