"""A kind of store that is declared goes all the way: into the lake, past its tombstones, and into frames."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claudemesh.pipeline import frames
from claudemesh.pipeline.catalogue import KINDS
from claudemesh.pipeline.ingest import Ingest, Wish
from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.pipeline.place import check_whole
from claudemesh.pipeline.sources import sqlite
from claudemesh.pipeline.stores import find_stores, open_stores
from tests.contract.pipeline.test_sqlite_source import LATER, LATER_SCHEMA, LATER_SQL
from tests.spark.test_ingest import receive


@pytest.mark.req("S1")
def test_a_kind_of_store_that_is_declared_is_copied_counted_and_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, LATER.name, LATER)
    monkeypatch.setattr(sqlite, "_HERE", tmp_path)
    (tmp_path / "later_sqlite.sql").write_text(LATER_SQL)
    lake = Lake(tmp_path / "a lake [1] {a,b}*")

    def ingest() -> Cut:
        return Ingest(lake, lambda: spark, Wish(), lambda _: None).run(open_stores(find_stores(tmp_path)), 0)

    receive(tmp_path / "later.db", LATER_SCHEMA, "INSERT INTO entry VALUES (1, 'one', ''), (2, 'two', '')")
    ingest()
    receive(
        tmp_path / "later.db",
        "INSERT INTO entry VALUES (3, 'three', '')",
        "DELETE FROM entry WHERE id = 1",
        "INSERT INTO tombstone VALUES (1, 'entry', 1)",
    )
    cut = ingest()
    check_whole(lake, cut)
    [(name, source)] = cut.sources.items()
    assert (source.generation, source.rows["entry"], source.live["entry"]) == (0, 3, 2)
    said = frames.tables(spark, lake, cut, name)["entry"].select("said").collect()
    assert sorted(row.said for row in said) == ["one", "three", "two"]

    [file] = lake.root.glob("bronze/*/g=0/entry/batch=0/*")
    file.write_bytes(file.read_bytes()[:-5])
    receive(tmp_path / "later.db", "INSERT INTO entry VALUES (4, 'four', '')")
    again = ingest()
    check_whole(lake, again)
    assert (again.sources[name].generation, again.sources[name].rows["entry"]) == (1, 3), "read anew"
