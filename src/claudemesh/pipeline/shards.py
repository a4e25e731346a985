"""Writes the archive of an inbox on Spark: its files are written by the workers, side by side.

Every file is a stretch of time, so that a reader goes from one to the next and stops when it has enough.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.pipeline import archive, shardfile
from claudemesh.pipeline.outputs import Job, Result, Run
from claudemesh.pipeline.shardfile import Shard
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource

SHARD_BYTES: Final = 128 * 1024 * 1024  # of text
HEAD_BYTES: Final = 256  # what a document takes beside its body, roughly

Batches = Iterator[pa.RecordBatch]
_SHARD: Final = "file string, documents bigint, last_received_at bigint"


def publish_archive(run: Run, job: Job, source: str, result: Result) -> None:
    """Write no Parquet of what people wrote, but the archive that can be searched."""
    (derive,) = job.outputs.values()
    documents = derive(run.tables(source), run.params)
    result.sources[source] = {"rows": publish(documents, run.lake.root / "search" / source)}


def publish(documents: DataFrame, directory: Path) -> dict[str, int]:
    """Put these documents in the place of all that the directory holds, for readers at one moment."""

    def write() -> list[Shard]:
        rows = _in_order(documents).mapInArrow(_writer(directory), _SHARD).collect()  # as the parts are: in order
        return [Shard(**row.asDict()) for row in rows]

    shards = archive.rebuild(directory, write)
    return {"documents": sum(shard.documents for shard in shards), "shards": len(shards)}


def _in_order(documents: DataFrame) -> DataFrame:
    (size,) = documents.agg(F.sum(F.octet_length("body") + HEAD_BYTES)).collect()[0]
    key = ("received_at", "seq")
    return documents.repartitionByRange(1 + (size or 0) // SHARD_BYTES, *key).sortWithinPartitions(*key)


def _writer(directory: Path) -> Callable[[Batches], Batches]:
    """Return what a worker does with its part: no expression of Spark's writes such a file."""

    def write(batches: Batches) -> Batches:
        path = directory / f"{UlidSource(SystemClock()).ulid()}.db"
        shard = shardfile.write(path, (row for batch in batches for row in _rows(batch)))
        yield pa.RecordBatch.from_pylist([msgspec.structs.asdict(shard)])

    return write


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
