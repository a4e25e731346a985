"""A table that is not sound never becomes a machine."""

from enum import StrEnum

import pytest

from claudemesh.kernel.errors import TransitionRefused
from claudemesh.kernel.fsm import Machine


class Door(StrEnum):
    OPEN = "open"
    SHUT = "shut"
    GONE = "gone"


class Push(StrEnum):
    PUSHED = "pushed"
    PULLED = "pulled"
    REMOVED = "removed"


SOUND = {
    (Door.OPEN, Push.PUSHED): Door.SHUT,
    (Door.SHUT, Push.PULLED): Door.OPEN,
    (Door.SHUT, Push.REMOVED): Door.GONE,
}


def build(
    table: dict[tuple[Door, Push], Door], final: frozenset[Door] = frozenset({Door.GONE})
) -> Machine[Door, Push]:
    return Machine("door", Door, Push, Door.OPEN, final, table)


def test_a_pair_in_the_table_steps_to_its_state() -> None:
    machine = build(SOUND)
    assert machine.step(Door.OPEN, Push.PUSHED) is Door.SHUT
    assert machine.sources(Push.PULLED) == [Door.SHUT]


def test_a_pair_that_is_not_in_the_table_is_refused_by_name() -> None:
    with pytest.raises(TransitionRefused) as refused:
        build(SOUND).step(Door.OPEN, Push.PULLED)
    assert refused.value.extras == {"state": "open", "event": "pulled"}


@pytest.mark.parametrize(
    ("table", "final", "fault"),
    [
        ({**SOUND, (Door.SHUT, Push.REMOVED): Door.OPEN}, {Door.GONE}, "gone is never reached"),
        ({**SOUND, (Door.GONE, Push.PULLED): Door.OPEN}, {Door.GONE}, "gone is final but has a way out"),
        (SOUND, set(), "gone has no way out"),
        ({**SOUND, (Door.SHUT, Push.REMOVED): Door.GONE, (Door.SHUT, Push.PULLED): Door.GONE}, {Door.GONE}, None),
        (
            {(Door.OPEN, Push.PUSHED): Door.SHUT, (Door.SHUT, Push.REMOVED): Door.GONE},
            {Door.GONE},
            "pulled changes nothing",
        ),
    ],
)
def test_an_unsound_table_names_its_fault(
    table: dict[tuple[Door, Push], Door], final: set[Door], fault: str | None
) -> None:
    if fault is None:
        assert build(table, frozenset(final)).reachable() == set(Door)
    else:
        with pytest.raises(ValueError, match=fault):
            build(table, frozenset(final))


def test_the_drawing_holds_every_row_of_the_table() -> None:
    assert build(SOUND).to_mermaid().splitlines() == [
        "stateDiagram-v2",
        "    [*] --> open",
        "    open --> shut: pushed",
        "    shut --> open: pulled",
        "    shut --> gone: removed",
        "    gone --> [*]",
    ]
