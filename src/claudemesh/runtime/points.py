"""Named points that a test can arm to crash, pause or fail exactly there; in production each is one empty look-up.

A point is declared by the module that reaches it, so that a test cannot arm a name that nothing reaches.
"""

from collections.abc import Callable
from typing import NewType

Point = NewType("Point", str)
Action = Callable[[], None]

_declared: set[str] = set()
_armed: dict[str, Action] = {}


def declare(name: str) -> Point:
    if name in _declared:
        raise ValueError(f"two points are called {name}")
    _declared.add(name)
    return Point(name)


def reach(point: Point) -> None:
    action = _armed.get(point)
    if action is not None:
        action()


def arm(name: str, action: Action) -> None:
    if name not in _declared:
        raise ValueError(f"no point is called {name}")
    _armed[name] = action


def disarm_all() -> None:
    _armed.clear()
