"""Waiting for something that cannot be waited for by itself, with a bound."""

import time
from collections.abc import Callable
from typing import Final

POLL_S: Final = 0.005


def wait_until(attempt: Callable[[], bool], within_s: float) -> bool:
    """Try until it succeeds; False if it never did in time. It is tried once in any case."""
    deadline = time.monotonic() + within_s
    while not attempt():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def rest(seconds: float) -> None:
    time.sleep(seconds)
