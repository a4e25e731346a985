"""Rows of a database as values; both databases give the columns in the same order."""

from collections.abc import Iterable
from typing import Any

from claudemesh.hub.model import Entry, Kind, Newest, Page, Row, Tally

_KINDS = {kind.value: kind for kind in Kind}  # a look-up, where calling the enum takes several times as long


def row_of(found: Iterable[Any]) -> Row:
    kind, *rest = found
    return Row(_KINDS[kind], *rest)


def line_of(entry: Entry) -> tuple[Any, ...]:
    """Return a line of the journal as it is written, in the order of `append`."""
    return (
        entry.seq,
        entry.at,
        entry.kind.value,
        entry.entity_id,
        entry.base_revision,
        entry.revision,
        entry.method,
        entry.path,
        entry.idempotency_key,
        entry.source_host,
        entry.source_agent,
        entry.expectation,
        entry.fields,
        entry.deleted,
    )


def page_of(rows: list[Row], limit: int) -> Page:
    """Make a page of one row more than it shows, which tells that there is another page."""
    shown = rows[:limit]
    return Page(shown, shown[-1].seq if len(rows) > limit else None)


def tally_of(found: Iterable[Any]) -> Tally:
    kind, status, rows = found
    return Tally(_KINDS[kind], status, rows)


def newest_of(found: Iterable[Any]) -> Newest:
    seq, kind, row_id, revision, at, deleted = found
    return Newest(seq, _KINDS[kind], row_id, revision, at, bool(deleted))
