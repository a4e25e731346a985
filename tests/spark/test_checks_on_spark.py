"""The history checker says the same on Spark as on SQLite, of clean histories and of every class of bug."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from claudemesh.pipeline.catalogue import OUTBOX, kind_of
from claudemesh.pipeline.checks.invariants import INPUTS, Input
from claudemesh.pipeline.checks.spark import check_inputs, gather
from claudemesh.pipeline.checks.sqlite import check_on_sqlite
from tests.unit.pipeline.histories import clean, history, rows
from tests.unit.pipeline.mutations import ALSO, CASES

ARROW = {"bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}


def frame(spark: SparkSession, one: Input, rows: Iterable[tuple[Any, ...]], *more: str) -> DataFrame:
    """Make a frame of the rows of an input, with more columns before its own."""
    types = dict.fromkeys(more, "string") | {name: one.kind.table(one.table).columns[name] for name in one.columns}
    schema = pa.schema([(name, ARROW[kind]) for name, kind in types.items()])
    named = [dict(zip(types, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(named, schema))


@pytest.mark.timeout(1200)
@pytest.mark.req("S3")
def test_spark_finds_what_sqlite_finds_in_every_broken_history_and_nothing_in_clean_ones(
    spark: SparkSession,
) -> None:
    # All in one, each in a mesh of its own, since a query takes Spark a while however little it is asked of.
    stories = [clean(seed, f"clean-{seed}", is_lake=bool(seed % 2)) for seed in range(4)]
    expected = set()
    for name, mutation in CASES:
        story = clean(11, mutation.__name__, steps=60)
        mutation(story)
        stories.append(story)
        expected |= {(broken, story.mesh) for broken in {name} | ALSO.get(mutation, set())}
    tables, log = rows(stories), history(stories)
    inputs = {
        one.name: frame(
            spark,
            one,
            [
                (store, *row)
                for store, of_store in tables.items()
                if kind_of(of_store) is one.kind
                for row in of_store[one.table]
            ],
            "store",
        )
        for one in INPUTS
    }
    verdict = check_inputs(spark, inputs, log)
    # Of hubs and relays, which have no mesh, the name of the store says whose story it is.
    assert {(one.invariant, one.evidence["mesh"].partition("/")[0]) for one in verdict.violations} == expected
    assert verdict == check_on_sqlite(tables, log)


@pytest.mark.req("S3")
def test_the_rows_of_all_sources_are_told_apart_and_a_lake_without_bodies_has_none(spark: SparkSession) -> None:
    columns = {one.name: one for one in INPUTS}
    tables = {
        source: {"outbox": frame(spark, columns["outbox_outbox"], of_store["outbox"])}
        for source, of_store in rows([clean(1, steps=20)]).items()
        if kind_of(of_store) is OUTBOX
    }
    inputs = gather(spark, tables)
    found = {(row.store, row.seq) for row in inputs["outbox_outbox"].collect()}
    assert found == {(source, row.seq) for source, one in tables.items() for row in one["outbox"].collect()}
    assert inputs["broker_body"].columns == ["store", *columns["broker_body"].columns]
