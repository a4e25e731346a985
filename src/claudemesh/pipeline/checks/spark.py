"""The invariants on Spark, over the tables of a cut."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.pipeline.catalogue import kind_of
from claudemesh.pipeline.checks.invariants import (
    COUNTED,
    INPUTS,
    VIEWS,
    Input,
    Verdict,
    read_violations,
    render_count,
    render_search,
)
from claudemesh.pipeline.history import COLUMNS, History

Tables = Mapping[str, DataFrame]

_ARROW = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}


def check_on_spark(spark: SparkSession, tables: Mapping[str, Tables], log: History) -> Verdict:
    """Check the tables of a cut's sources, by their names, against what clients were told."""
    return check_inputs(spark, gather(spark, tables), log)


def check_inputs(spark: SparkSession, inputs: Tables, log: History) -> Verdict:
    """Check tables that hold the rows of all their stores already."""
    with _views(spark, inputs, log):
        # First, since what is counted is kept; and how to join it is decided by how much it is.
        counts = {row[0]: row[1] for row in spark.sql(render_count()).collect()}
        return Verdict({**counts, "torn_lines": log.torn}, read_violations(spark.sql(render_search()).collect()))


@contextmanager
def _views(spark: SparkSession, inputs: Tables, log: History) -> Iterator[None]:
    """Give the queries the names they ask for. What they all ask of is worked out once."""
    kept: list[DataFrame] = []
    try:
        for name, frame in inputs.items():
            frame.createOrReplaceTempView(name)
        for name in ("h", *VIEWS):
            frame = _log(spark, log) if name == "h" else spark.sql(VIEWS[name])
            if name in COUNTED:
                kept.append(frame.persist())
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for frame in kept:
            frame.unpersist()
        for name in (*inputs, "h", *VIEWS):
            spark.catalog.dropTempView(name)


def gather(spark: SparkSession, tables: Mapping[str, Tables]) -> Tables:
    """Return the inputs, each with the rows of all sources and the names of these."""
    return {one.name: _input(spark, one, tables) for one in INPUTS}


def _log(spark: SparkSession, log: History) -> DataFrame:
    columns = zip(*log.rows, strict=True) if log.rows else ((),) * len(COLUMNS)
    arrays = [pa.array(values, _ARROW[kind]) for values, kind in zip(columns, COLUMNS.values(), strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=list(COLUMNS)))


def _input(spark: SparkSession, one: Input, tables: Mapping[str, Tables]) -> DataFrame:
    frames = [
        of_store[one.table].select(F.lit(name).alias("store"), *one.columns)
        for name, of_store in tables.items()
        if kind_of(of_store) is one.kind and one.table in of_store
    ]
    if not frames:
        types = one.kind.table(one.table).columns
        columns = ", ".join(f"{column} {types[column]}" for column in one.columns)
        return spark.createDataFrame([], f"store string, {columns}")
    return reduce(DataFrame.unionAll, frames)
