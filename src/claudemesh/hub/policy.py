"""What a write makes of a row. The whole rule of the hub: no store decides anything of it.

An expectation is judged before the change: If-Match first, since it names the revision itself. A write that expects
nothing is applied to whatever stands. Times of a row only grow, whatever the clock does.
"""

import msgspec

from claudemesh.hub.model import (
    NO_OPINION,
    WITH_STATUS,
    Asked,
    Changed,
    Create,
    Delete,
    Expectation,
    Outcome,
    Refused,
    Row,
    SetOnce,
    Unchanged,
    Update,
)
from claudemesh.kernel.errors import MeshError, NotFound
from claudemesh.kernel.write_errors import RevisionConflict, StaleVersion

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict).decode


def decide(row: Row | None, asked: Asked, now_ms: int) -> Outcome:
    """Return what the write makes of the row that stands, or why it is refused."""
    change = asked.change
    if isinstance(change, Create):
        return Changed(None, Row(asked.kind, asked.id, 0, 1, now_ms, now_ms, change.fields))
    if row is None:
        return Refused(NotFound("there is no such row"))
    refusal = judge(row, asked.expected)
    if refusal is not None:
        return Refused(refusal, row)
    return _apply(row, change, now_ms)


def _apply(row: Row, change: Update | SetOnce | Delete, now_ms: int) -> Outcome:
    match change:
        case Update(values):
            return Changed(row, _next(row, {**_decode(row.fields), **values}, now_ms))
        case SetOnce(name, value):
            fields = _decode(row.fields)
            if fields.get(name) is not None:
                return Unchanged(row)
            return Changed(row, _next(row, {**fields, name: value}, now_ms))
        case Delete():
            return Changed(row, _next(row, None, now_ms), is_deleted=True)


def judge(row: Row, expected: Expectation) -> MeshError | None:
    """Say why the row is not what the caller takes it to be; None if it is."""
    if expected is NO_OPINION:
        return None
    if expected.revisions is not None and row.revision not in expected.revisions:
        return StaleVersion(f"the row has revision {row.revision}")
    if expected.updated_at is not None and row.updated_at != expected.updated_at:
        return RevisionConflict("expected_updated_at is not when the row was changed last")
    if expected.status is not None and status_of(row) != expected.status:
        return RevisionConflict("expected_status is not the row's status")
    return None


def status_of(row: Row) -> str | None:
    """Return the row's status; None if its kind has none."""
    if row.kind not in WITH_STATUS:
        return None
    status: str = _decode(row.fields)["status"]
    return status


def _next(row: Row, fields: dict[str, object] | None, now_ms: int) -> Row:
    text = row.fields if fields is None else _encode(fields).decode()
    updated_at = max(now_ms, row.updated_at + 1)
    return Row(row.kind, row.id, row.seq, row.revision + 1, row.created_at, updated_at, text)
