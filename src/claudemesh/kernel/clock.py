"""Time as the kernel sees it: values that arrive, never something to ask for.

An instant is an integer number of milliseconds. Wall instants count from the Unix epoch and may step; monotonic
ones count from an arbitrary point of this process and never go back. Deadlines inside a process run on the
monotonic clock, what is stored is wall time.
"""

from typing import Final, Protocol

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class Clock(Protocol):
    def wall_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...
