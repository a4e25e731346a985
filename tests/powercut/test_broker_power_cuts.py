"""The embedded broker after power cuts: no accept is lost, none is there by half, no id is taken twice."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.powercut.brokers import BROKER, with_dedupe_in_memory, with_sync_normal
from tests.powercut.harness import Workload, check, record, survives


@pytest.mark.req("B3", "B4")
def test_no_power_cut_loses_or_tears_an_accept_that_was_answered(tmp_path: Path, effort: int) -> None:
    survives(BROKER, tmp_path, rounds=effort)


@pytest.mark.parametrize("workload", [with_sync_normal, with_dedupe_in_memory])
def test_a_broker_that_forgets_is_found_out(tmp_path: Path, workload: Workload) -> None:
    report = check(replace(BROKER, workload=workload), record(workload, tmp_path / "log"), seed=7, count=300)
    assert sum("acknowledged and lost" in str(each) for each in report.violations) > 30, report
