"""The ledger after power cuts: what was answered is there and whole, what was retried is there once."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.powercut.harness import Workload, check, record, survives
from tests.powercut.ledgers import LEDGER, upgraded, with_early_answers, with_sync_normal


@pytest.mark.req("L3", "L4", "L5", "L10")
def test_no_power_cut_loses_or_halves_what_a_ledger_answered(tmp_path: Path, effort: int) -> None:
    survives(LEDGER, tmp_path, rounds=effort)


@pytest.mark.req("L7")
def test_a_power_cut_in_an_upgrade_leaves_one_version_or_the_other_and_its_leases(
    tmp_path: Path, effort: int
) -> None:
    survives(replace(LEDGER, workload=upgraded), tmp_path, rounds=effort, count=600)  # beside the 2,000 above


@pytest.mark.parametrize("workload", [with_sync_normal, with_early_answers])
def test_a_ledger_that_answers_before_the_disk_has_it_is_found_out(tmp_path: Path, workload: Workload) -> None:
    report = check(replace(LEDGER, workload=workload), record(workload, tmp_path / "log"), seed=7, count=300)
    assert sum("answered and lost" in str(each) for each in report.violations) > 30, report
