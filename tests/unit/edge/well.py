"""The status of a relay with which all is well, for those who ask what is said of another."""

from typing import Any, Final

WELL: Final[dict[str, Any]] = {
    "upstream": "127.0.0.1:18000",
    "upstream_reachable": True,
    "upstream_state": "online",
    "listen": "127.0.0.1:18080",
    "pending": 0,
    "blocked": 0,
    "oldest_pending_age_s": 0,
    "conflicts": 0,
    "dead": 0,
    "outbox_usable": True,
}
