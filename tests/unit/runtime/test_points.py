"""Points are silent until a test arms them."""

from collections.abc import Iterator

import pytest

from claudemesh.runtime import points


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    points.disarm_all()


HERE = points.declare("test.here")


def test_a_point_does_nothing_until_it_is_armed_and_after_it_is_disarmed() -> None:
    reached: list[str] = []
    points.reach(HERE)
    points.arm("test.here", lambda: reached.append("here"))
    points.reach(HERE)
    points.disarm_all()
    points.reach(HERE)
    assert reached == ["here"]


def test_a_name_that_nothing_reaches_cannot_be_armed() -> None:
    with pytest.raises(ValueError, match="no point is called"):
        points.arm("test.her", lambda: None)


def test_a_name_is_declared_once() -> None:
    with pytest.raises(ValueError, match="two points"):
        points.declare("test.here")
