"""A cut as frames: the tables of one source, by the names of the catalogue."""

import re
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.pipeline.catalogue import KINDS
from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.pipeline.shapes import Grave, Growth, Table

_GLOB: Final = re.compile(r"[\[\]{}*?\\]")  # what Spark would take for a pattern


def tables(spark: SparkSession, lake: Lake, cut: Cut, source: str) -> dict[str, DataFrame]:
    """Return the tables as they were at the cut, with the rows that may still change."""
    at = cut.sources[source]
    kind = KINDS[at.kind]
    found: dict[str, DataFrame] = {}
    for table in kind.tables:
        if table.is_body and not at.bodies:
            continue
        if table.growth is Growth.WHOLE:
            found[table.name] = read(spark, table, [lake.whole(source, at.generation, table.name, at.whole)])
            continue
        found[table.name] = read(spark, table, lake.batches(source, at.generation, table.name, at.batches))
        for one in reversed(at.earlier):  # what the store has forgotten since
            before = read(spark, table, lake.batches(source, one.generation, table.name, one.batches))
            gone = before.join(found[table.name], [*table.key], "left_anti")
            found[table.name] = found[table.name].unionByName(gone)
    for table in kind.tables:
        if table.open_of in found:
            found[table.open_of] = found[table.open_of].unionByName(found.pop(table.name))
    return found


def buried_rows(tombstones: DataFrame, grave: Grave) -> DataFrame:
    """Return the keys of the rows that are gone."""
    return tombstones.where(F.col("what") == grave.what).select(*grave.key)


def read(spark: SparkSession, table: Table, places: list[Path]) -> DataFrame:
    """Read with the catalogue's own columns, and no others: nothing is merged by accident."""
    columns = describe(table)
    if not places:
        return spark.createDataFrame([], columns)
    return spark.read.schema(columns).parquet(*(_GLOB.sub(r"\\\g<0>", str(place)) for place in places))


def describe(table: Table) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in table.columns.items())
