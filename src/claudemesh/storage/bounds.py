"""What a cursor over a file's rows is held against."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which file this is, up to where it was swept, and its last number."""

    epoch: str
    swept_upto: int
    last: int
