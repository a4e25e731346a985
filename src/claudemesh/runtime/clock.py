"""The real clock."""

import time

from claudemesh.kernel.clock import MonotonicMs, WallMs


class SystemClock:
    def wall_ms(self) -> WallMs:
        return WallMs(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> MonotonicMs:
        return MonotonicMs(time.monotonic_ns() // 1_000_000)
