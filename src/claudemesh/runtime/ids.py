"""Fresh ids from the real clock and real entropy. A process has one source, shared by all its threads."""

import secrets
import threading

from claudemesh.kernel.clock import Clock
from claudemesh.kernel.ids import ULID_RANDOM_BITS, UlidState, next_ulid


class UlidSource:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._state = UlidState()

    def ulid(self) -> str:
        entropy = secrets.randbits(ULID_RANDOM_BITS)
        with self._lock:
            self._state = next_ulid(self._state, self._clock.wall_ms(), entropy)
            return self._state.text
