"""Named points that a test can arm to crash, pause or fail exactly there; in production each is one empty look-up.

A point is named where it is reached (`reach("sqlite.before_commit")`) and listed in POINTS, so that a test cannot
arm a name that nothing reaches.
"""

from collections.abc import Callable
from typing import Final

POINTS: Final = frozenset({"sqlite.before_commit", "sqlite.after_commit"})

Action = Callable[[], None]

_armed: dict[str, Action] = {}


def reach(name: str) -> None:
    action = _armed.get(name)
    if action is not None:
        action()


def arm(name: str, action: Action) -> None:
    if name not in POINTS:
        raise ValueError(f"no point is called {name}")
    _armed[name] = action


def disarm_all() -> None:
    _armed.clear()
