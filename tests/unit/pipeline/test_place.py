"""What a lake lost, or was given, since a cut was published, is noticed before anybody rests on it."""

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from claudemesh.kernel.errors import IntegrityError
from claudemesh.pipeline.catalogue import OUTBOX, Growth
from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.pipeline.place import check_whole, write_rows
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
    return replace(CUT, sources={"one": at})


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
def test_what_was_put_into_a_lake_is_not_counted_in(lake: Lake, cut: Cut) -> None:
    [file] = lake.root.glob("bronze/one/*/outbox/batch=1/rows.parquet")
    file.with_name("more.parquet").write_bytes(file.read_bytes())
    with pytest.raises(IntegrityError, match="outbox"):
        check_whole(lake, cut)
