"""What happens under the middleware, for logs and metrics. Neither keys nor paths: both are the callers'."""

from dataclasses import dataclass
from typing import ClassVar

from claudemesh.runtime.observe import Level


@dataclass(frozen=True, slots=True)
class WriteReplayed:
    """A request was answered as it was answered before."""

    name: ClassVar[str] = "idempotency.write_replayed"
    level: ClassVar[Level] = "debug"
    status: int


@dataclass(frozen=True, slots=True)
class AnswerNotRecorded:
    """The app answered, and the store did not take it: a retry may run the write again."""

    name: ClassVar[str] = "idempotency.answer_not_recorded"
    level: ClassVar[Level] = "warning"
    code: str


@dataclass(frozen=True, slots=True)
class MarkTakenOver:
    """A worker was silent for longer than its lease, and another one began the same write."""

    name: ClassVar[str] = "idempotency.mark_taken_over"
    level: ClassVar[Level] = "warning"


@dataclass(frozen=True, slots=True)
class KeysSwept:
    """So many keys expired and were deleted."""

    name: ClassVar[str] = "idempotency.keys_swept"
    count: int
