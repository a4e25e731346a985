"""What is wrong with a relay, by its figures."""

from typing import Any

import msgspec
import pytest

from claudemesh.edge.concerns import COUNTED, WAITING, Concern, judge
from claudemesh.edge.http import Status
from claudemesh.edge.metrics import Figures
from claudemesh.edge.reach import State
from tests.unit.edge.well import WELL

AWAY = {"upstream_reachable": False, "upstream_state": State.OFFLINE.value}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"upstream_reachable": None, "upstream_state": "unknown"}, []),
        ({"blocked": 1, "pending": 2}, [Concern.PENDING]),
        ({"pending": 1, "conflicts": 1, "dead": 1}, [Concern.PENDING, Concern.CONFLICTS, Concern.DEAD]),
        (AWAY, [Concern.UNREACHABLE]),
        ({"upstream_state": State.REFUSED.value}, [Concern.REFUSED]),
        ({"dead": 3, **AWAY}, [Concern.DEAD, Concern.UNREACHABLE]),
        ({"outbox_usable": False}, [Concern.DAMAGED]),
        ({"outbox_usable": False, "pending": 4, **AWAY}, [Concern.DAMAGED, Concern.UNREACHABLE]),
    ],
)
def test_a_status_is_judged_by_all_of_its_figures(changed: dict[str, Any], expected: list[Concern]) -> None:
    assert judge(WELL | changed) == expected


def test_only_an_upstream_that_is_away_leaves_nothing_waiting() -> None:
    assert set(Concern) - WAITING == {Concern.UNREACHABLE, Concern.REFUSED}


def test_what_is_counted_is_called_as_its_figure() -> None:
    assert {str(concern) for concern in COUNTED} <= set(Figures.__dataclass_fields__)
    assert WELL.keys() == {field.name for field in msgspec.structs.fields(Status)}
