"""Time and identity as the kernel sees them: values that arrive, never something to ask for.

An instant is an integer number of milliseconds. Wall instants count from the Unix epoch and may step; monotonic
ones count from an arbitrary point of this process and never go back. Deadlines inside a process run on the
monotonic clock, what is stored is wall time.
"""

from typing import NewType, Protocol

WallMs = NewType("WallMs", int)
MonotonicMs = NewType("MonotonicMs", int)


class Clock(Protocol):
    def wall_ms(self) -> WallMs: ...
    def monotonic_ms(self) -> MonotonicMs: ...


class IdSource(Protocol):
    def ulid(self) -> str:
        """Return an id greater than every one this source gave before, whatever the clock did."""
        ...
