"""Instants as people and programs of other languages write them: RFC 3339, UTC, milliseconds."""

from datetime import UTC, datetime, timedelta

from claudemesh.kernel.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def render_instant(wall_ms: int) -> str:
    """Return `2026-01-31T12:00:00.000Z`."""
    return (_EPOCH + wall_ms * _MS).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_instant(text: str) -> int:
    """Read what `render_instant` wrote, and any other ISO 8601 instant; without a zone it is UTC."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest("not an instant: write it as 2026-01-31T12:00:00Z") from error
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - _EPOCH) // _MS
