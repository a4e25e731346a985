"""When to try again: exponential backoff with full jitter, so that a thousand clients never come back in step."""

from typing import Final

BACKOFF_BASE_MS: Final = 500
BACKOFF_CAP_MS: Final = 60_000

_DOUBLINGS_MAX: Final = (BACKOFF_CAP_MS // BACKOFF_BASE_MS).bit_length()


def derive_backoff_ms(attempts: int, jitter: float, retry_after_ms: int | None = None) -> int:
    """Return how long to wait after `attempts` failed tries (at least one).

    `jitter` is a random number in [0, 1). The wait is uniform below min(cap, base * 2**(attempts-1)). A server's
    Retry-After is honoured in full, and the jitter comes on top of it: everyone was told the same instant.
    """
    if attempts < 1:
        raise ValueError("nothing has failed yet")
    if not 0 <= jitter < 1:
        raise ValueError("jitter is not within [0, 1)")
    ceiling_ms = min(BACKOFF_CAP_MS, BACKOFF_BASE_MS << min(attempts - 1, _DOUBLINGS_MAX))
    return max(retry_after_ms or 0, 0) + int(ceiling_ms * jitter)
