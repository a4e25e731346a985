"""The real clock, and the time that ages are judged by."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from claudemesh.kernel.clock import Clock

# It goes on while the machine sleeps. The usual one does not, and a row that slept for a week would not be older.
_MONOTONIC: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def steady(clock: Clock) -> Callable[[], int]:
    """Return wall time as it goes on from now: whoever sets the wall clock makes nothing older or younger."""
    ahead_ms = clock.wall_ms() - clock.monotonic_ms()
    return lambda: clock.monotonic_ms() + ahead_ms


def read_boot() -> str:
    """Say which start of this machine the monotonic clock counts from; nothing, where a system does not tell."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
