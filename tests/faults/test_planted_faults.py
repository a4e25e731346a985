"""Of each requirement one planted fault turns its test red here; all others are planted by `make mutants`."""

from pathlib import Path

import pytest

from tests.faults.children import ROOT
from tests.faults.choice import FIRST, OTHERS, OTHERS_ON_SPARK
from tests.faults.planting import BrokenFaultError, copy_sources, objection, planted, run_tests, why_not_green
from tests.requirements import Fault

NODES = {fault.test.partition("::")[0].rpartition("/")[0]: fault.test for fault in FIRST.values()}

pytestmark = pytest.mark.timeout(300)  # beyond the limit of the run inside, which tells more


@pytest.mark.parametrize("fault", [pytest.param(fault, id=f"{id_}: {fault.what}") for id_, fault in FIRST.items()])
def test_a_planted_fault_turns_its_test_red(fault: Fault, tmp_path: Path) -> None:
    why = objection(fault, src=ROOT / "src", scratch=tmp_path)
    assert why is None, why


@pytest.mark.parametrize("folder", sorted(NODES))
def test_a_test_of_each_folder_is_green_here_on_the_code_as_it_is(folder: str, tmp_path: Path) -> None:
    """Show that what turned red did not do so because of the place; all of them are green in their own lane."""
    run = run_tests([NODES[folder]], copy_sources(ROOT / "src"), tmp_path)
    why = why_not_green(run)
    assert why is None, f"{why}\n{run.output}"


def test_all_others_can_be_planted() -> None:
    copy = copy_sources(ROOT / "src")
    broken = []
    for fault in (*OTHERS, *OTHERS_ON_SPARK):
        try:
            with planted(fault, copy):
                pass
        except BrokenFaultError as error:
            broken.append(f"{fault.what} {error}")
    assert broken == []
