"""What a job is told beside its tables."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Params:
    now_ms: int
    since_ms: int | None = None
    retention_days: int = 365
    window_s: int = 60
    sends_per_window: int = 6000
