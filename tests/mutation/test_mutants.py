"""Every fault of the inside turns its test red: `make mutants`; those of requirements are for `make test`."""

from pathlib import Path

import pytest

from tests.faults.children import ROOT
from tests.faults.mutants import MUTANTS
from tests.faults.planting import objection
from tests.requirements import Fault

# Those on Spark are planted in its own lane.
FAULTS = [pytest.param(fault, id=fault.what) for fault in MUTANTS if not fault.test.startswith("tests/spark/")]

pytestmark = pytest.mark.timeout(300)  # beyond the limit of the run inside, which tells more


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mutant_turns_its_test_red(fault: Fault, tmp_path: Path) -> None:
    why = objection(fault, src=ROOT / "src", scratch=tmp_path)
    assert why is None, why
