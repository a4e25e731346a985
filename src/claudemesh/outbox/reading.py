"""What an answer makes of a row: the table of `kernel.outbox`, and when a row is poison."""

from dataclasses import dataclass
from typing import Final

from claudemesh.kernel.outbox import OutboxEvent, derive_event

SERVER_ERRORS_MAX: Final = 20  # a row at which the other side fails this often, while it takes others, is poison


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer makes of a row, and of its destination."""

    event: OutboxEvent
    last_error: str | None
    is_server_failure: bool


_TAKEN: Final = Reading(OutboxEvent.ACCEPTED, None, is_server_failure=False)


def read_outcome(status: int | None, code: str | None, server_errors: int, *, others_pass: bool) -> Reading:
    """Read one outcome. `server_errors` is how often the other side failed at this row while it took others."""
    event = derive_event(status)
    if event is OutboxEvent.ACCEPTED:
        return _TAKEN
    error = code or (f"status_{status}" if status is not None else "no_answer")
    is_server_failure = status is not None and status >= 500 and others_pass  # noqa: PLR2004  HTTP's own range
    if is_server_failure and server_errors + 1 >= SERVER_ERRORS_MAX:
        return Reading(OutboxEvent.REFUSED, "attempts_exhausted", is_server_failure=True)
    return Reading(event, error, is_server_failure)
