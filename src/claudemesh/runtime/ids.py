"""Fresh ids from the real clock and real entropy. A process has one source, shared by all its threads."""

import os
import threading
import weakref
from typing import Final

from claudemesh.kernel.clock import Clock
from claudemesh.kernel.ids import ULID_RANDOM_BITS, next_ulid, render_ulid

_ENTROPY_BYTES: Final = ULID_RANDOM_BITS // 8
_DRAWS: Final = 256  # asking the system costs more than an id does, so it is asked for many


class UlidSource:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0
        self._drawn: list[int] = []
        _sources.add(self)

    def ulid(self) -> str:
        with self._lock:
            if not self._drawn:
                self._drawn = _draw()
            self._last = number = next_ulid(self._last, self._clock.wall_ms(), self._drawn.pop())
        return render_ulid(number)

    def forget(self) -> None:
        """Begin with a draw of its own, in a child that was forked off."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._drawn = []


def _draw() -> list[int]:
    drawn = os.urandom(_DRAWS * _ENTROPY_BYTES)
    return [int.from_bytes(drawn[at : at + _ENTROPY_BYTES]) for at in range(0, len(drawn), _ENTROPY_BYTES)]


_sources: Final[weakref.WeakSet[UlidSource]] = weakref.WeakSet()


def _forget_all() -> None:
    for source in _sources:
        source.forget()


os.register_at_fork(after_in_child=_forget_all)  # two processes must not go on from the same draw
