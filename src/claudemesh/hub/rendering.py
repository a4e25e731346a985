"""How rows, conflicts and pages are written: the bytes of every answer, made inside the transaction of its write.

A row's fields are kept as the JSON that is sent, so a row is put together from texts and never decoded for that.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from http import HTTPStatus
from typing import Final

import msgspec

from claudemesh.asgi.messages import Headers, Response
from claudemesh.hub.model import (
    Changed,
    Expectation,
    Kind,
    Outcome,
    Page,
    Refused,
    Row,
    Shape,
    Summary,
    Unchanged,
    Write,
)
from claudemesh.hub.policy import status_of
from claudemesh.kernel.errors import InvalidRequest, MeshError
from claudemesh.wire import problem
from claudemesh.wire.instants import render_instant

_JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final[Headers] = ((b"content-type", problem.CONTENT_TYPE.encode()),)
_CURSOR_DIGITS_MAX: Final = 18

_encode: Final = msgspec.json.Encoder().encode

# What a kind is called in addresses.
PLACES: Final = {kind: f"/{kind.replace('_', '-')}/" for kind in Kind}


# --- rows ------------------------------------------------------------------------------------------


def render_row(row: Row, *, before: Row | None = None) -> str:
    """Return the row as an object; with what it was before, if that is asked for."""
    previous = "" if before is None else f',"previous":{_previous(before)}'
    return (
        f'{{"id":"{row.id}",{row.fields[1:-1]},"revision":{row.revision},'
        f'"created_at":"{render_instant(row.created_at)}","updated_at":"{render_instant(row.updated_at)}"{previous}}}'
    )


def _previous(row: Row) -> str:
    status = _encode(status_of(row)).decode()
    return f'{{"revision":{row.revision},"updated_at":"{render_instant(row.updated_at)}","status":{status}}}'


def etag(row: Row) -> tuple[bytes, bytes]:
    return (b"etag", b'"%d"' % row.revision)


def row_response(row: Row) -> Response:
    return Response(200, render_row(row).encode(), (_JSON, etag(row)))


# --- answers to writes -----------------------------------------------------------------------------


def render_answer(write: Write, outcomes: list[Outcome]) -> Response:
    """Return the one answer to a write."""
    if write.shape is Shape.LIST:
        items = ",".join(_item(asked.id, one) for asked, one in zip(write.asks, outcomes, strict=True))
        return Response(200, f'{{"items":[{items}]}}'.encode(), (_JSON,))
    (outcome,) = outcomes
    match outcome:
        case Refused(error, current):
            return Response(error.status, _render_refusal(error, current).encode(), _PROBLEM)
        case Changed(is_deleted=True):
            return Response(HTTPStatus.NO_CONTENT)
        case Changed(None, row):
            location = (b"location", f"{PLACES[row.kind]}{row.id}".encode())
            return Response(HTTPStatus.CREATED, render_row(row).encode(), (_JSON, etag(row), location))
        case Changed(before, row):
            return Response(200, render_row(row, before=before).encode(), (_JSON, etag(row)))
        case Unchanged(row):
            return Response(200, render_row(row, before=row).encode(), (_JSON, etag(row)))


def _item(row_id: str, outcome: Outcome) -> str:
    named = f'{{"id":{_encode(row_id).decode()}'
    match outcome:
        case Refused(error, current):
            return f'{named},"http_status":{error.status},"problem":{_render_refusal(error, current)}}}'
        case Changed(before, row):
            return f'{named},"http_status":200,"task":{render_row(row, before=before)}}}'
        case Unchanged(row):
            return f'{named},"http_status":200,"task":{render_row(row, before=row)}}}'


def _render_refusal(error: MeshError, current: Row | None) -> str:
    """Return the problem, with the row as it stands: whoever was refused sees what it would have overwritten."""
    told = _encode(problem.render(error)).decode()
    return told if current is None else f'{told[:-1]},"current":{render_row(current)}}}'


# --- what is asked, and pages ----------------------------------------------------------------------


def render_expectation(expected: Expectation) -> str | None:
    """Return what was expected, for the journal; None if nothing was."""
    said: dict[str, object] = {}
    if expected.revisions is not None:
        said["revisions"] = expected.revisions
    if expected.updated_at is not None:
        said["updated_at"] = render_instant(expected.updated_at)
    if expected.status is not None:
        said["status"] = expected.status
    return _encode(said).decode() if said else None


def page_response(page: Page) -> Response:
    rows = ",".join(render_row(row) for row in page.rows)
    following = "null" if page.next_seq is None else f'"{render_cursor(page.next_seq)}"'
    return Response(200, f'{{"items":[{rows}],"next_cursor":{following}}}'.encode(), (_JSON,))


def render_cursor(seq: int) -> str:
    return urlsafe_b64encode(b"1:%d" % seq).decode().rstrip("=")


def parse_cursor(text: str) -> int:
    """Return after which row the page begins."""
    try:
        version, _, digits = urlsafe_b64decode(text + "=" * (-len(text) % 4)).partition(b":")
    except (NotBase64, ValueError):
        version, digits = b"", b""
    if version != b"1" or not digits.isdigit() or len(digits) > _CURSOR_DIGITS_MAX:
        raise InvalidRequest("cursor is not one that a list of the hub has given")
    return int(digits)


def summary_response(summary: Summary, now_ms: int) -> Response:
    kinds: dict[str, dict[str, object]] = {kind: {"count": 0, "by_status": {}} for kind in Kind}
    for tally in summary.tallies:
        told = kinds[tally.kind]
        told["count"] = int(str(told["count"])) + tally.rows
        if tally.status and isinstance(told["by_status"], dict):
            told["by_status"][tally.status] = tally.rows
    newest = [
        {
            "kind": one.kind,
            "id": one.id,
            "revision": one.revision,
            "updated_at": render_instant(one.at),
            "deleted": one.deleted,
        }
        for one in summary.newest
    ]
    writes = summary.newest[0].seq if summary.newest else 0
    document = {"kinds": kinds, "newest": newest, "writes": writes, "generated_at": render_instant(now_ms)}
    return Response(200, _encode(document), (_JSON,))
