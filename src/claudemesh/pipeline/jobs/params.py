"""What a job is told beside its tables. The defaults are those of a broker: what it was told, only it knows."""

from dataclasses import dataclass
from typing import Final

RETENTION_DAYS: Final = 365
WINDOW_S: Final = 60
SENDS_PER_WINDOW: Final = 6_000


@dataclass(frozen=True, slots=True)
class Params:
    now_ms: int
    since_ms: int | None = None
    retention_days: int = RETENTION_DAYS
    window_s: int = WINDOW_S
    sends_per_window: int = SENDS_PER_WINDOW  # of a mesh that has no budget of its own
    cut_ms: int | None = None  # when the stores were looked at, if that was not now

    @property
    def looked_ms(self) -> int:
        return self.now_ms if self.cut_ms is None else self.cut_ms
