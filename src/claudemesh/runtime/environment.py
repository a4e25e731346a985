"""The environment of this process: read, and set for a library that takes its settings from nowhere else."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def read_environment() -> Mapping[str, str]:
    return dict(os.environ)


@contextmanager
def lent_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the length of a `with`; what was there before comes back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
