"""Budgets counted in this process.

Memory is bounded: only what was taken in this window is remembered, and of a member that is at most its budget.
"""

from collections.abc import Sequence

from claudemesh.kernel.clock import Clock

_Key = tuple[str, str]  # mesh, sender


class MemoryLimiter:
    """On the monotonic clock: a step of the wall clock neither opens nor closes a window."""

    def __init__(self, clock: Clock, window_ms: int) -> None:
        self._clock = clock
        self._window_ms = window_ms
        self._window = -1
        self._taken: dict[_Key, set[str]] = {}

    async def consume(
        self, mesh: str, sender: str, client_message_ids: Sequence[str], limit: int
    ) -> list[int | None]:
        now = self._clock.monotonic_ms()
        self._turn(now // self._window_ms)
        wait_ms = self._window_ms - now % self._window_ms
        taken = self._taken.setdefault((mesh, sender), set())
        return [None if _take(id_, taken, limit) else wait_ms for id_ in client_message_ids]

    async def aclose(self) -> None:
        """Nothing is held."""

    def _turn(self, window: int) -> None:
        if window != self._window:
            self._taken = {}
            self._window = window


def _take(id_: str, taken: set[str], limit: int) -> bool:
    if id_ not in taken and len(taken) >= limit:
        return False
    taken.add(id_)
    return True
