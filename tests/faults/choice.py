"""Which faults `make test` plants, and which it leaves to `make mutants`.

All of them take longer than anybody waits before a commit. So `make test` plants one of each requirement, the first
that stands beside it, and sees to it that all others could be planted. Those on Spark are planted in its own lane,
by the same rule.
"""

from tests.faults.mutants import MUTANTS
from tests.requirements import REQUIREMENTS, Fault

_SPARK = "tests/spark/"
_STARTS = "tests/spark/test_session.py"  # its starts are processes of their own, which need the fault in a file


def _is_on_spark(fault: Fault) -> bool:
    return fault.test.startswith(_SPARK) and not fault.test.startswith(_STARTS)


def _of_requirements(*, on_spark: bool) -> dict[str, list[Fault]]:
    rows = {row.id: [fault for fault in row.faults if _is_on_spark(fault) is on_spark] for row in REQUIREMENTS}
    return {id_: faults for id_, faults in rows.items() if faults}


def _others(rows: dict[str, list[Fault]], *, on_spark: bool) -> list[Fault]:
    mutants = [fault for fault in MUTANTS if _is_on_spark(fault) is on_spark]
    return [fault for faults in rows.values() for fault in faults[1:]] + mutants


_HERE, _ON_SPARK = _of_requirements(on_spark=False), _of_requirements(on_spark=True)

FIRST = {id_: faults[0] for id_, faults in _HERE.items()}
OTHERS = _others(_HERE, on_spark=False)
FIRST_ON_SPARK = [faults[0] for faults in _ON_SPARK.values()]
OTHERS_ON_SPARK = _others(_ON_SPARK, on_spark=True)
