"""The relay's spool after power cuts: no write that was answered as queued is lost, none is sent and forgotten."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.powercut.envelopes import SPOOL, with_sync_normal
from tests.powercut.harness import check, record, survives


@pytest.mark.req("R5")
def test_no_power_cut_loses_a_write_that_was_answered_as_queued(tmp_path: Path, effort: int) -> None:
    survives(SPOOL, tmp_path, rounds=effort)


def test_a_relay_that_answers_before_the_disk_has_it_is_found_out(tmp_path: Path) -> None:
    subject = replace(SPOOL, workload=with_sync_normal)
    report = check(subject, record(with_sync_normal, tmp_path / "log"), seed=7, count=300)
    assert sum("acknowledged and lost" in str(each) for each in report.violations) > 30, report
