"""Fresh ids from the real clock and real entropy. A process has one source, shared by all its threads."""

import os
import threading
import weakref
from typing import Final

from claudemesh.kernel.clock import Clock
from claudemesh.kernel.ids import ULID_RANDOM_BITS, UlidState, next_ulid

_ENTROPY_BYTES: Final = ULID_RANDOM_BITS // 8
_DRAWN_BYTES: Final = 256 * _ENTROPY_BYTES  # asking the system costs more than an id does, so it is asked for many


class UlidSource:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._state = UlidState()
        self._drawn = memoryview(b"")
        _sources.add(self)

    def ulid(self) -> str:
        with self._lock:
            if not self._drawn:
                self._drawn = memoryview(os.urandom(_DRAWN_BYTES))
            entropy = int.from_bytes(self._drawn[:_ENTROPY_BYTES])
            self._drawn = self._drawn[_ENTROPY_BYTES:]
            self._state = next_ulid(self._state, self._clock.wall_ms(), entropy)
            return self._state.text

    def forget(self) -> None:
        """Begin with a draw of its own, in a child that was forked off."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._drawn = memoryview(b"")


_sources: Final[weakref.WeakSet[UlidSource]] = weakref.WeakSet()


def _forget_all() -> None:
    for source in _sources:
        source.forget()


os.register_at_fork(after_in_child=_forget_all)  # two processes must not go on from the same draw
