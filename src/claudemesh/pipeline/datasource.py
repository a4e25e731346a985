"""Spark's side of the sources: rows of a store as a batch source, and the steps of a copy as a stream.

`claudemesh_copy` copies what a plan says: a private file, so that no password stands in an option that Spark shows
or logs. Its partitions open connections of their own and write what comes, as Arrow, into Parquet: rows that went
through the JVM on their way would take five times as long. What they yield is how many rows that were.
`claudemesh_steps` streams one row a batch: from which position to which the store is copied. Spark's checkpoint
remembers the steps, and that is what makes a copy go on after a crash with the very batch that it was in.

Workers load this file, so it needs nothing of this package but the connections.
"""

import json
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from claudemesh.pipeline.sources.connection import Reading, read_share, to_schema

COPY: Final = "claudemesh_copy"
STEPS: Final = "claudemesh_steps"
GROUP_ROWS: Final = 500_000


class Share(InputPartition):
    """What one partition copies: all that it has to know, since its worker may be on another machine."""

    def __init__(self, plan: dict[str, Any], number: int) -> None:
        super().__init__(None)
        self.plan = plan
        self.number = number


class CopySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return COPY

    def schema(self) -> str:
        return "rows bigint"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - always the same
        return CopyReader(Path(self.options["plan"]))


class CopyReader(DataSourceReader):
    def __init__(self, plan: Path) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        plan = json.loads(self._plan.read_text())
        return [Share(plan, number) for number in range(len(plan["reading"]["statements"]))]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # its own kind
        plan, schema = partition.plan, to_schema(partition.plan["columns"])
        batches = read_share(Reading.parse(plan["reading"]), partition.number, schema)
        rows = write_parquet(batches, schema, Path(plan["directory"]) / f"{partition.number}.parquet")
        yield pa.RecordBatch.from_pydict({"rows": [rows]})


def write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: Path) -> int:
    """Write a file that is there whole and durable, or not at all; return how many rows it has.

    Another attempt at the same may be under way: the one that ends last stays, and both are the same.
    """
    attempt = file.with_name(f".{file.name}.{platform.node()}-{os.getpid()}")
    rows, held = 0, []
    with pyarrow.parquet.ParquetWriter(attempt, schema, compression="zstd") as writer:
        for batch in batches:
            rows += batch.num_rows
            held.append(batch)
            if sum(one.num_rows for one in held) >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(held, schema))
                held = []
        writer.write_table(pa.Table.from_batches(held, schema))
    with attempt.open("rb") as written:
        os.fsync(written.fileno())
    attempt.rename(file)
    return rows


class StepsSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return STEPS

    def schema(self) -> str:
        return "since string, upto string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        return StepsReader(json.loads(self.options["target"]))


class StepsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are positions of a source; the first is before everything."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._target = {"position": target}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"position": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - as above
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as above
        """Do nothing: the target is fixed from the start."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - as above
        return self._target

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition((json.dumps(start["position"]), json.dumps(end["position"])))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        yield partition.value

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint holds it already."""
