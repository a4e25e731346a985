"""The lake's metrics: a text file that is replaced as a whole and keeps what other jobs found."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from claudemesh.pipeline.lake import Cut, Lake, SourceCut
from claudemesh.pipeline.metrics import FILE, write_metrics

SOURCE = SourceCut(
    kind="broker",
    store="sqlite:///broker.db",
    life="1",
    generation=1,
    version=1,
    bodies=False,
    position={},
    batches=1,
    whole=1,
    rows={"message_history": 12},
    live={},
    counts={"message_history": 12},
    lag={"open_transactions": 1, "oldest_s": 2.5},
    digest="",
)
CUT = Cut(number=3, at_ms=1_500, sources={'a"b': SOURCE}, read=['a"b'])


def read(lake: Lake) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families((lake.root / FILE).read_text())
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_a_scraper_reads_the_cut_its_rows_and_its_lag(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write_metrics(lake, CUT, {"orphans": 2})
    assert read(lake) == {
        ("cm_pipeline_cut",): 3,
        ("cm_pipeline_cut_timestamp_seconds",): 1.5,
        ("cm_pipeline_rows", 'a"b', "message_history"): 12,
        ("cm_pipeline_open_transaction_seconds", 'a"b'): 2.5,
        ("cm_pipeline_violations", "orphans"): 2,
    }


def test_what_another_job_found_stays_until_it_runs_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write_metrics(lake, CUT, {"orphans": 2, "audit": 1})
    write_metrics(lake, CUT, {"audit": 0})
    found = read(lake)
    assert found["cm_pipeline_violations", "orphans"] == 2
    assert found["cm_pipeline_violations", "audit"] == 0


def test_how_long_a_transaction_is_open_is_not_said_where_nobody_was_told(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write_metrics(lake, replace(CUT, sources={"one": replace(SOURCE, lag={"open_transactions": 1})}), {})
    assert "cm_pipeline_open_transaction_seconds" not in (lake.root / FILE).read_text()


@pytest.mark.req("S4")
def test_a_run_on_an_older_cut_leaves_what_is_said_of_the_newest(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    older = replace(CUT, number=2)
    lake.publish(older)
    lake.publish(CUT)
    write_metrics(lake, CUT, {"orphans": 0})
    before = read(lake)
    write_metrics(lake, older, {"orphans": 2})
    assert read(lake) == before
