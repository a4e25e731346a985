"""What a lake lost, or was given, since a cut was published, is noticed before anybody rests on it."""

from pathlib import Path
from shutil import rmtree
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from claudemesh.kernel.errors import ConfigError, IntegrityError
from claudemesh.pipeline.catalogue import INBOX, OUTBOX
from claudemesh.pipeline.lake import Cut, Earlier, Lake
from claudemesh.pipeline.place import check_whole, write_rows
from claudemesh.pipeline.shapes import Growth
from claudemesh.pipeline.sources.model import fields
from tests.unit.pipeline.test_metrics import CUT

ROWS = {"outbox": 3, "outbox_open": 1, "owner": 1}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def cut(lake: Lake) -> Cut:
    """Copy an outbox: two batches of settled rows, and the small tables."""
    at = replace(CUT.sources['a"b'], kind="outbox", batches=3, rows=ROWS)
    for table in OUTBOX.tables:
        for batch, rows in enumerate([2, 1] if table.growth is Growth.APPEND else [1]):
            place = (
                lake.batch("one", at.generation, table.name, batch)
                if table.growth is Growth.APPEND
                else lake.whole("one", at.generation, table.name, at.whole)
            )
            write_rows(pa.Table.from_pylist([{}] * rows, fields(table)), place)
    return replace(CUT, sources={"one": at}, read=["one"])


def test_a_lake_that_is_as_it_was_written_passes(lake: Lake, cut: Cut) -> None:
    check_whole(lake, cut)


@pytest.mark.req("S4")
@pytest.mark.parametrize("place", ["outbox/batch=1/rows.parquet", "owner/cut=*/rows.parquet"])
def test_what_was_removed_from_a_lake_is_missed(lake: Lake, cut: Cut, place: str) -> None:
    [file] = lake.root.glob(f"bronze/one/*/{place}")
    file.unlink()
    with pytest.raises(IntegrityError, match="--full"):
        check_whole(lake, cut)


@pytest.mark.req("S4")
def test_a_file_of_a_lake_that_is_torn_is_named(lake: Lake, cut: Cut) -> None:
    [file] = lake.root.glob("bronze/one/*/outbox/batch=0/rows.parquet")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(IntegrityError, match=r"batch=0/rows.parquet.*--full"):
        check_whole(lake, cut)


@pytest.mark.req("S4")
def test_what_was_put_into_a_lake_is_not_counted_in(lake: Lake, cut: Cut) -> None:
    [file] = lake.root.glob("bronze/one/*/outbox/batch=1/rows.parquet")
    file.with_name("more.parquet").write_bytes(file.read_bytes())
    with pytest.raises(IntegrityError, match="outbox"):
        check_whole(lake, cut)


@pytest.fixture
def inbox(lake: Lake) -> Cut:
    """Copy an inbox with bodies twice: what it had forgotten by then is in the first copy alone."""
    rows = {"inbox": 1, "event": 1, "body": 1, "owner": 1}
    at = replace(
        CUT.sources['a"b'],
        kind="inbox",
        bodies=True,
        generation=1,
        batches=1,
        rows=rows,
        earlier=[Earlier(0, 1, rows)],
    )
    for table in INBOX.tables:
        line = pa.Table.from_pylist([{}], fields(table))
        if table.growth is Growth.WHOLE:
            write_rows(line, lake.whole("one", 1, table.name, at.whole))
            continue
        for generation in (0, 1):
            write_rows(line, lake.batch("one", generation, table.name, 0))
    return replace(CUT, sources={"one": at}, read=["one"])


@pytest.mark.req("S4")
@pytest.mark.parametrize("place", ["g=0/inbox", "g=1/inbox", "g=1/body"])
def test_what_only_the_lake_remembers_is_missed_and_cannot_be_read_anew(lake: Lake, inbox: Cut, place: str) -> None:
    check_whole(lake, inbox)
    rmtree(lake.root / "bronze" / "one" / place)
    with pytest.raises(IntegrityError, match="from a backup"):
        check_whole(lake, inbox)


def test_words_that_were_not_wanted_any_more_are_not_missed_in_older_cuts(lake: Lake, inbox: Cut) -> None:
    for generation in ("g=0", "g=1"):
        rmtree(lake.root / "bronze" / "one" / generation / "body")
    lake.publish(replace(inbox, number=inbox.number + 1))
    check_whole(lake, inbox)


def test_a_broken_manifest_of_an_older_cut_stops_no_ingest_and_nothing_is_removed(
    lake: Lake, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    lake.publish(cut)
    (lake.root / "_cuts" / "0.json").write_text("{")
    old = lake.root / "gold" / "traffic" / "cut=0"
    old.mkdir(parents=True)
    lake.vacuum()
    assert old.exists()
    assert "nothing old is removed" in caplog.text


@pytest.mark.parametrize("change", [{"number": 7}, {"read": ["nobody"]}])
def test_a_manifest_that_does_not_agree_with_itself_is_refused(
    lake: Lake, cut: Cut, change: dict[str, Any]
) -> None:
    lake.publish(cut)
    file = lake.root / "_cuts" / f"{cut.number}.json"
    file.write_bytes(msgspec.json.encode(replace(cut, **change)))
    with pytest.raises(ConfigError, match="edited"):
        lake.cut(cut.number)
