"""Chance, for jitter and nothing else: secrets and ids have their own sources."""

import random

_source = random.SystemRandom()


def roll() -> float:
    """Return a number in [0, 1), independent of any other process's."""
    return _source.random()
