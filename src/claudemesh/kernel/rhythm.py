"""How often to ask whether the other side is there, when to hang up, and how long its lease outlives that.

Both sides go by the same three times, and each may have been told others: what they come to is derived here.
"""

from dataclasses import dataclass
from typing import Final

from claudemesh.kernel.clock import DAY_MS

LEASE_TTL_MS: Final = 90_000
PING_INTERVAL_MS: Final = 30_000
STALE_PONG_MS: Final = 75_000

LEASE_TTL_MS_MIN: Final = 1_000  # whoever is told of a shorter one would have to hang up at once
TIME_MS_MIN: Final = 50
TIME_MS_MAX: Final = 7 * DAY_MS

PINGS_A_SILENCE: Final = 2  # that are sent, at least, before a silent connection is ended
TICKS_AN_INTERVAL: Final = 10
TICK_MS_MIN: Final = 20
TICK_MS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Rhythm:
    """A silent connection is ended before its lease is, and pinged before that."""

    lease_ttl_ms: int = LEASE_TTL_MS
    ping_interval_ms: int = PING_INTERVAL_MS
    stale_pong_ms: int = STALE_PONG_MS

    @property
    def tick_ms(self) -> int:
        """How often to look: often enough to be right within one interval."""
        return max(TICK_MS_MIN, min(TICK_MS_MAX, self.ping_interval_ms // TICKS_AN_INTERVAL))


def derive_rhythm(lease_ttl_ms: int, ping_interval_ms: int, stale_pong_ms: int) -> Rhythm:
    """Return the rhythm of these times: a threshold beyond the lease would keep a socket with nobody behind it."""
    stale_ms = min(stale_pong_ms, lease_ttl_ms)
    return Rhythm(lease_ttl_ms, min(ping_interval_ms, max(1, stale_ms // PINGS_A_SILENCE)), stale_ms)
