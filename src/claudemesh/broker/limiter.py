"""How much a member may send: so many new ids in each window of time, counted in this process.

Idempotent for each id and window: a retry that missed the look-up costs nothing. A refusal takes nothing. Memory is
bounded: only what was taken in this window is remembered, and of a member that is at most its budget.
"""

from collections.abc import Sequence
from typing import Final

from claudemesh.kernel.clock import Clock

WINDOW_MS_DEFAULT: Final = 60_000
SENDS_PER_WINDOW_DEFAULT: Final = 6_000

_Key = tuple[int, int]  # mesh, sender


class MemoryLimiter:
    """On the monotonic clock: a step of the wall clock neither opens nor closes a window."""

    def __init__(self, clock: Clock, window_ms: int = WINDOW_MS_DEFAULT) -> None:
        self._clock = clock
        self._window_ms = window_ms
        self._window = -1
        self._taken: dict[_Key, set[str]] = {}

    async def consume(
        self, mesh_id: int, sender_id: int, client_message_ids: Sequence[str], limit: int
    ) -> list[int | None]:
        now = self._clock.monotonic_ms()
        self._turn(now // self._window_ms)
        wait_ms = self._window_ms - now % self._window_ms
        taken = self._taken.setdefault((mesh_id, sender_id), set())
        return [None if _take(id_, taken, limit) else wait_ms for id_ in client_message_ids]

    def _turn(self, window: int) -> None:
        if window != self._window:
            self._taken = {}
            self._window = window


def _take(id_: str, taken: set[str], limit: int) -> bool:
    if id_ not in taken and len(taken) >= limit:
        return False
    taken.add(id_)
    return True
