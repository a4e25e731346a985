"""Spark's side of the sources: rows of a store as a batch source, and the steps of a copy as a stream.

`claudemesh_rows` reads what a plan says: a private file, so that no password stands in an option that Spark shows
or logs. Its partitions open connections of their own and yield Arrow. `claudemesh_steps` streams one row a batch:
from which position to which the store is copied. Spark's checkpoint remembers the steps, and that is what makes a
copy go on after a crash with the very batch that it was in.

Workers load this file, so it needs nothing of this package but the connections.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from claudemesh.pipeline.sources.connection import connected, fetch

ROWS: Final = "claudemesh_rows"
STEPS: Final = "claudemesh_steps"


class Share(InputPartition):
    """What one partition reads: all that it has to know, since its worker may be on another machine."""

    def __init__(self, driver: str, uri: str, before: Sequence[str], sql: str, values: Sequence[str]) -> None:
        super().__init__(None)
        self.driver = driver
        self.uri = uri
        self.before = before
        self.sql = sql
        self.values = values


class RowsSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return ROWS

    def schema(self) -> str:
        return str(self.options["columns"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowsReader(Path(self.options["plan"]), to_arrow_schema(schema))


class RowsReader(DataSourceReader):
    def __init__(self, plan: Path, schema: pa.Schema) -> None:
        self._plan = plan
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        plan = json.loads(self._plan.read_text())
        head = (plan["driver"], plan["uri"], plan["before"])
        return [Share(*head, statement["sql"], statement["values"]) for statement in plan["statements"]]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # its own kind
        with connected(partition.driver, partition.uri) as cursor:
            for statement in partition.before:
                cursor.execute(statement)
            yield from fetch(cursor, partition.driver, partition.sql, tuple(partition.values), self._schema)


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
