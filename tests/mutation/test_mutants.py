"""Every fault that `make test` does not plant turns its test red: `make mutants`."""

from pathlib import Path

import pytest

from tests.faults.children import ROOT
from tests.faults.choice import OTHERS
from tests.faults.planting import copy_sources, objection, run_tests, why_not_green
from tests.requirements import Fault

NODES = {fault.test.partition("::")[0]: fault.test for fault in OTHERS}

pytestmark = pytest.mark.timeout(300)  # beyond the limit of the run inside, which tells more


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.what) for fault in OTHERS])
def test_a_mutant_turns_its_test_red(fault: Fault, tmp_path: Path) -> None:
    why = objection(fault, src=ROOT / "src", scratch=tmp_path)
    assert why is None, why


@pytest.mark.parametrize("file", sorted(NODES))
def test_a_test_of_each_file_is_green_here_on_the_code_as_it_is(file: str, tmp_path: Path) -> None:
    """Show that what turned red did not do so because of the place."""
    run = run_tests([NODES[file]], copy_sources(ROOT / "src"), tmp_path)
    why = why_not_green(run)
    assert why is None, f"{why}\n{run.output}"
