"""The daemon's outbox after power cuts: no acknowledged send is lost, none is there twice, none is forgotten."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.powercut.harness import Workload, check, record, survives
from tests.powercut.outboxes import OUTBOX, with_early_answers, with_sync_normal


@pytest.mark.req("D1")
def test_no_power_cut_loses_or_doubles_a_send_that_was_answered(tmp_path: Path, effort: int) -> None:
    survives(OUTBOX, tmp_path, rounds=effort)


@pytest.mark.parametrize("workload", [with_sync_normal, with_early_answers])
def test_a_daemon_that_answers_before_the_disk_has_it_is_found_out(tmp_path: Path, workload: Workload) -> None:
    report = check(replace(OUTBOX, workload=workload), record(workload, tmp_path / "log"), seed=7, count=300)
    assert sum("acknowledged and lost" in str(each) for each in report.violations) > 30, report
