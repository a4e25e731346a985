"""What a store holds is in the lake once, whatever happens on the way."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from claudemesh.kernel.errors import ConfigError
from claudemesh.pipeline import copying, frames
from claudemesh.pipeline.ingest import Ingest, Wish
from claudemesh.pipeline.jobs.orphans import orphans
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.search import documents
from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.pipeline.sources import sqlite
from claudemesh.pipeline.sources.connection import connected
from claudemesh.pipeline.stores import open_stores
from tests.contract.pipeline.test_sqlite_source import INBOX_SCHEMA, RECEIVE
from tests.contract.pipeline.visits import VISIT
from tests.services.postgres import Postgres, wheel
from tests.spark.stores import KEYS, count_by_duckdb, count_in_store, writing


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/broker.db"
    servers: Callable[[str], Postgres] = request.getfixturevalue("postgres_servers")
    return servers(wheel().name).create_database(f"ingest_{tmp_path.name.replace('-', '_')}")


@pytest.fixture
def by_workers(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark's workers read all of a server, and of a file all that is several shares."""
    monkeypatch.setattr(copying, "FEW", copying.FEW if url.startswith("sqlite") else 0)
    monkeypatch.setattr(sqlite, "_ROWS_A_PARTITION_MIN", 10)


@pytest.fixture
def few(url: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let the driver read few rows of a file by itself, and Spark's workers read all of a server."""
    count = copying.FEW if url.startswith("sqlite") else 0
    monkeypatch.setattr(copying, "FEW", count)
    return count


def no_session() -> SparkSession:
    raise AssertionError("a session was asked for")


def ingest(spark: SparkSession | None, lake: Lake, url: str, **wish: bool) -> Cut:
    session = no_session if spark is None else lambda: spark
    return Ingest(lake, session, Wish(**wish), lambda _: None).run(open_stores([url]), 0)


def count_by_spark(spark: SparkSession, lake: Lake, cut: Cut, source: str) -> dict[str, tuple[int, int]]:
    """Ask for all tables at once: a job costs what it costs, however little it counts."""
    tables = frames.tables(spark, lake, cut, source)
    keys = [
        tables[name].select(F.lit(name).alias("name"), F.to_json(F.struct(*key)).alias("key"))
        for name, key in KEYS.items()
    ]
    counted = reduce(DataFrame.union, keys).groupBy("name").agg(F.count("*"), F.countDistinct("key")).collect()
    return dict.fromkeys(KEYS, (0, 0)) | {name: (rows, distinct) for name, rows, distinct in counted}


def check_whole(spark: SparkSession, lake: Lake, url: str, cut: Cut) -> None:
    """Rows = distinct = source, by Spark and by DuckDB on the same directories."""
    [source] = cut.sources
    counted = count_by_spark(spark, lake, cut, source)
    assert count_by_duckdb(lake, source, cut) == counted
    assert all(rows == distinct for rows, distinct in counted.values()), counted
    stored = count_in_store(url)
    if not stored["tombstone"]:
        assert {name: rows for name, (rows, _) in counted.items()} == stored
    for journal in ("delivery_event", "presence_event"):
        del stored[journal]  # what retention takes of it has no tombstone of its own
    assert {name: cut.sources[source].live[name] for name in stored} == stored


def without_lag(cut: Cut) -> Cut:
    return replace(cut, sources={name: replace(source, lag={}) for name, source in cut.sources.items()})


@pytest.mark.req("S1")
@pytest.mark.usefixtures("by_workers")
def test_a_store_is_copied_once_and_then_only_what_is_new(spark: SparkSession, tmp_path: Path, url: str) -> None:
    lake = Lake(tmp_path / "lake")
    with writing(url) as writer:
        writer.say("old 2")
        writer.say("fill 40")
        writer.say("visit 2")
        first = ingest(spark, lake, url)
        check_whole(spark, lake, url, first)
        again = ingest(None, lake, url)
        assert without_lag(again) == without_lag(first), "without news there is no session and no cut"
        writer.say("fill 8")
        writer.say("visit 1")
        writer.say("sweep")
        second = ingest(spark, lake, url)
        check_whole(spark, lake, url, second)
    [(name, source)] = second.sources.items()
    assert (second.number, source.generation) == (2, 0)
    assert source.rows["message_history"] == 50
    assert source.live["message_history"] == 48
    assert source.rows["presence_event"] == 3 * len(VISIT)
    [batch] = lake.batches(name, 0, "message_history", first.sources[name].batches)  # it stands as it was
    assert len(list(batch.iterdir())) > (1 if source.store.startswith("sqlite") else 0), "a share has its own file"


@pytest.mark.req("S1")
def test_without_news_a_cut_says_all_the_same_what_is_open_now(
    spark: SparkSession, tmp_path: Path, postgres_servers: Callable[[str], Postgres]
) -> None:
    lake = Lake(tmp_path / "lake")
    url = postgres_servers(wheel().name).create_database("open_now")
    with writing(url):
        pass
    first = ingest(spark, lake, url)
    with connected("postgresql", url) as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT pg_current_xact_id()::text")
        again = ingest(None, lake, url)
    assert without_lag(again) == without_lag(first)
    [before], [now] = first.sources.values(), again.sources.values()
    assert now.lag["open_transactions"] > before.lag["open_transactions"]
    assert now.lag["oldest_s"] > 0


POINTS = ["pipeline.table_written", "pipeline.batch_written", "pipeline.cut_complete", "pipeline.cut_published"]


@pytest.mark.req("S1")
def test_a_driver_killed_in_mid_batch_leaves_nothing_lost_and_nothing_twice(
    spark: SparkSession, tmp_path: Path, url: str, few: int, effort: int
) -> None:
    lake = Lake(tmp_path / "lake")
    is_file = url.startswith("sqlite")
    points = POINTS if effort > 1 else [POINTS[0 if is_file else 1]]
    with writing(url) as writer:
        writer.say("fill 20")
        ingest(spark, lake, url)
        for point in points:
            writer.say("fill 20")
            killed = subprocess.run(
                [sys.executable, "-m", "tests.spark.driver", str(lake.root), url, point, str(few)],
                start_new_session=True,
                check=False,
                capture_output=True,
                timeout=900,
            )
            assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
            writer.say("fill 4")
            check_whole(spark, lake, url, ingest(spark, lake, url))


@pytest.mark.req("S1", "S2", "B8")
def test_no_orphan_is_seen_beside_a_writer_that_goes_on(spark: SparkSession, tmp_path: Path, url: str) -> None:
    """It accepts, updates deliveries and deletes what is too old, all the while."""
    lake = Lake(tmp_path / "lake")
    with writing(url) as writer:
        writer.begin("live")
        for _ in range(2):
            cut = ingest(spark, lake, url)
            [source] = cut.sources
            found = orphans(frames.tables(spark, lake, cut, source), Params(now_ms=0)).collect()
            assert found == []
            assert cut.sources[source].generation == 0, "what was copied agreed with the store's own counts"
        assert cut.sources[source].rows["tombstone"] > 0
        writer.begin("fill 4")
        writer.hear("done")
        writer.hear("done")
        check_whole(spark, lake, url, ingest(spark, lake, url))


HOLE = "DELETE FROM delivery_queue WHERE history_id = 1"


@pytest.mark.req("S1")
def test_a_row_that_went_without_a_tombstone_makes_the_copy_begin_anew(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake, file = Lake(tmp_path / "lake"), tmp_path / "broker.db"
    url = f"sqlite:///{file}"
    with writing(url) as writer:
        writer.say("fill 20")
    ingest(spark, lake, url)
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import apsw, sys; apsw.Connection(sys.argv[1]).execute(sys.argv[2])",
            str(file),
            HOLE,
        ],
        check=True,
    )
    cut = ingest(spark, lake, url, verify=True)
    [source] = cut.sources
    assert cut.sources[source].generation == 1
    assert "delivery_queue in the lake" in caplog.text
    [orphan] = orphans(frames.tables(spark, lake, cut, source), Params(now_ms=0)).collect()
    assert (orphan["client_message_id"], orphan["missing"]) == ("dm-1", ["delivery_queue"])


@pytest.mark.req("S1", "B7")
def test_an_id_that_was_forgotten_and_is_used_again_is_no_orphan(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:
    lake = Lake(tmp_path / "lake")
    with writing(url) as writer:
        writer.say("reuse")
    cut = ingest(spark, lake, url)
    [source] = cut.sources
    assert orphans(frames.tables(spark, lake, cut, source), Params(now_ms=0)).collect() == []
    assert without_lag(ingest(None, lake, url, verify=True)) == without_lag(cut)


def receive(inbox: Path, *statements: str) -> None:
    """Change an inbox in a process of its own."""
    code = "import apsw, sys\nc = apsw.Connection(sys.argv[1])\nfor one in sys.argv[2:]: c.execute(one)"
    subprocess.run([sys.executable, "-c", code, str(inbox), *statements], check=True)


@pytest.mark.req("S1", "S2")
def test_what_an_inbox_has_forgotten_stays_however_it_is_read_and_bodies_go_when_they_are_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, inbox = Lake(tmp_path / "lake"), tmp_path / "inbox.db"
    receive(inbox, INBOX_SCHEMA, RECEIVE.format(1), RECEIVE.format(2))
    [source] = ingest(spark, lake, str(inbox), bodies=True).sources
    receive(inbox, "DELETE FROM inbox WHERE seq = 1", RECEIVE.format(3))
    for wish in ({"full": True}, {}):
        cut = ingest(spark, lake, str(inbox), **wish)
        tables = frames.tables(spark, lake, cut, source)
        assert sorted(row.seq for row in tables["inbox"].collect()) == [1, 2, 3]
        assert sorted(row.seq for row in tables["body"].collect()) == [1, 2, 3]
    backup = inbox.read_bytes()
    receive(inbox, RECEIVE.format(4))
    ingest(spark, lake, str(inbox))
    inbox.write_bytes(backup)
    receive(inbox, RECEIVE.format(4).replace("'message', 1)", "'message', 9)").replace("'B4'", "'X4'"))
    cut = ingest(spark, lake, str(inbox))
    found = documents(frames.tables(spark, lake, cut, source), Params(now_ms=0)).collect()
    assert sorted(row.broker_message_id for row in found) == ["B1", "B2", "B3", "B4", "X4"]
    cut = ingest(spark, lake, str(inbox), bodies=False)
    assert sorted(row.seq for row in frames.tables(spark, lake, cut, source)["inbox"].collect()) == [1, 2, 3, 4, 4]
    assert list(lake.root.glob("bronze/*/*/body/*")) == []


@pytest.mark.req("S1")
def test_a_cut_is_of_the_stores_that_were_read_and_of_no_store_twice(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    files = [tmp_path / "one.db", tmp_path / "two.db"]
    for inbox in files:
        receive(inbox, INBOX_SCHEMA, RECEIVE.format(1))
    first = ingest(spark, lake, str(files[0]))
    second = ingest(spark, lake, str(files[1]))
    assert len(first.sources) == len(second.sources) == 1
    assert len(lake.cut(second.number).sources) == 2, "what was copied before is kept"
    shutil.copy(files[0], tmp_path / "copy.db")
    with pytest.raises(ConfigError, match="is a copy of"):
        Ingest(lake, no_session, Wish(), lambda _: None).run(
            open_stores([str(path) for path in (files[0], tmp_path / "copy.db")]), 0
        )
    receive(files[1], "UPDATE remembered SET value = '../../outside' WHERE name = 'epoch'")
    with pytest.raises(ConfigError, match="which store"):
        ingest(None, lake, str(files[1]))
