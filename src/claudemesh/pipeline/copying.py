"""The part of an ingest that Spark does: a store's new rows, table by table, into the batches of the lake."""

import json
import os
import shutil
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from claudemesh.pipeline.datasource import COPY, STEPS, CopySource, StepsSource
from claudemesh.pipeline.frames import buried_rows, read
from claudemesh.pipeline.lake import make_private, sync_tree
from claudemesh.pipeline.place import Place, write_rows
from claudemesh.pipeline.session import is_local
from claudemesh.pipeline.shapes import TOMBSTONE, Table
from claudemesh.pipeline.sources.connection import Reading, read_share
from claudemesh.pipeline.sources.model import Moment, Position, fields
from claudemesh.runtime import points

TABLE_WRITTEN: Final = points.declare("pipeline.table_written")
BATCH_WRITTEN: Final = points.declare("pipeline.batch_written")

FEW: Final = 50_000  # rows that the driver reads and writes by itself
_THREADS: Final = 4  # tables that are written at once: a small one is mostly waiting


def copy_upto(spark: SparkSession, place: Place, moment: Moment) -> None:
    """Copy what is not in the lake yet, up to the moment, as one batch; one that was cut off is made again."""
    spark.dataSource.register(StepsSource)
    failures: list[BaseException] = []

    def write(steps: DataFrame, number: int) -> None:
        try:
            _write_batch(steps, number, place, moment)
        except BaseException as error:
            failures.append(error)
            raise

    query = (
        spark.readStream.format(STEPS)
        .option("target", json.dumps(moment.position))
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if failures:  # what happened here, and not what Spark says of it
            raise failures[0] from None
        raise
    finally:
        query.stop()


def _write_batch(steps: DataFrame, number: int, place: Place, moment: Moment) -> None:
    (step,) = steps.collect()
    since, upto = json.loads(step["since"]), json.loads(step["upto"])
    spark = steps.sparkSession
    readings = _plan(place, moment, since, upto, 2 * spark.sparkContext.defaultParallelism)

    few_max = FEW if is_local(str(spark.sparkContext.master)) else 0

    def write(table: Table, reading: Reading | None) -> None:
        directory = place.batch(table, number)
        shutil.rmtree(directory, ignore_errors=True)  # of the same step, when it was cut off
        make_private(directory.parent)
        few = fetch_few(reading, fields(table), few_max) if reading else None
        if few is not None:
            write_rows(few, directory)
        elif reading is not None:
            make_private(directory)
            spark.dataSource.register(CopySource)  # here, since it starts a worker
            with planned(place, table, reading, directory) as plan:
                spark.read.format(COPY).option("plan", str(plan)).load().collect()
            sync_tree(directory)
        points.reach(TABLE_WRITTEN)

    with ThreadPoolExecutor(_THREADS) as threads:
        for done in [threads.submit(write, table, reading) for table, reading in readings]:
            done.result()
    points.reach(BATCH_WRITTEN)


def _plan(
    place: Place, moment: Moment, since: Position | None, upto: Position, partitions: int
) -> list[tuple[Table, Reading | None]]:
    """Decide first, on the one connection of the moment; then tables are written side by side."""
    return [(table, moment.reading(table, since, upto, partitions)) for table in place.appended]


def fetch_few(reading: Reading, schema: pa.Schema, count_max: int) -> pa.Table | None:
    """Read here and now what is only few rows; None if they are more. Workers cost seconds to start."""
    if count_max == 0 or len(reading.statements) > 1:
        return None
    rows = read_share(reading, 0, schema)
    few: list[pa.RecordBatch] = []
    with closing(rows):
        for batch in rows:
            few.append(batch)
            if sum(part.num_rows for part in few) > count_max:
                return None
    return pa.Table.from_batches(few, schema=schema)


_plans = count(1)


@contextmanager
def planned(place: Place, table: Table, reading: Reading, target: Path) -> Iterator[Path]:
    """Give a file that says what to copy: ours alone, since Spark logs its options."""
    directory = place.lake.root / "_plans"
    make_private(directory)
    plan = directory / f"{os.getpid()}-{next(_plans)}.json"
    descriptor = os.open(plan, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"reading": asdict(reading), "columns": dict(table.columns), "directory": str(target)}, file)
    try:
        yield plan
    finally:
        plan.unlink()


def count_gone(
    session: Callable[[], SparkSession], place: Place, batches: range, counted: Container[str]
) -> dict[str, int]:
    """Return of how many rows in the lake the tombstones of these batches say that the store has them no more."""
    table = next((one for one in place.appended if one.name == TOMBSTONE), None)
    graves = [place.batch(table, number) for number in batches] if table else []
    present = [grave for grave in graves if grave.is_dir()]
    if table is None or not present:
        return {}
    spark = session()
    tombstones = read(spark, table, present).cache()
    gone: dict[str, int] = {}
    for one in place.appended:
        if one.grave is not None and one.name in counted:
            rows = read(spark, one, place.lake.batches(place.source, place.generation, one.name, batches.stop))
            gone[one.name] = rows.join(buried_rows(tombstones, one.grave), [*one.grave.key], "left_semi").count()
    tombstones.unpersist()
    return gone
