"""The outbox as an operator sees it, and what an operator may do with a row."""

from typing import Final, Literal

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.feed import parse_cursor
from claudemesh.daemon.http.inbox import LIMIT_DEFAULT, LIMIT_MAX, Limit
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.model import OutboxRow
from claudemesh.daemon.operate import Decision, Patch
from claudemesh.kernel.errors import (
    BrokerUnreachable,
    CursorAhead,
    CursorExpired,
    IdempotencyConflict,
    InvalidRequest,
    NotFound,
    StaleClaim,
    TransitionRefused,
)
from claudemesh.kernel.fingerprint import prefix
from claudemesh.kernel.outbox import OutboxState
from claudemesh.wire.instants import render_instant

ALL: Final = frozenset(OutboxState)


class OutboxQuery(msgspec.Struct, frozen=True):
    failed: bool = False
    limit: Limit = LIMIT_DEFAULT
    cursor: str | None = None


class RequeueBody(msgspec.Struct, frozen=True):
    id: str
    new_client_id: str | None = None
    patch: Patch = Patch()
    force: bool = False


class DropBody(msgspec.Struct, frozen=True):
    id: str
    force: bool = False


class PruneBody(msgspec.Struct, frozen=True):
    """Emptied rows are emptied for good, so it takes a word."""

    confirm: Literal[True]


class Pruned(msgspec.Struct, frozen=True):
    pruned: int


class ShownRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    client_message_id: str
    status: str
    to: str
    destination: str
    attempts: int
    last_error: str | None
    enqueued_at: str
    next_attempt_at: str
    accepted_at: str | None
    broker_message_id: str | None
    history_id: int | None
    fingerprint_prefix: str
    aborted_at: str | None
    aborted_by: str | None
    superseded_by: str | None


class OutboxPage(msgspec.Struct, frozen=True):
    rows: list[ShownRow]
    next_cursor: str | None


class Inspected(msgspec.Struct, frozen=True):
    """A row, the rows it took the place of (nearest first), and the one that took its place."""

    row: ShownRow
    ancestors: list[str]
    successor: str | None


def outbox_routes(parts: Parts) -> list[Route]:
    outbox, operating = parts.outbox, parts.operating

    async def show(request: Request) -> Response:
        query: OutboxQuery = request.query
        bounds = await outbox.bounds()
        after = 0 if query.cursor is None else parse_cursor(query.cursor, bounds)
        size = min(query.limit, LIMIT_MAX)
        found = await outbox.page(frozenset({OutboxState.DEAD}) if query.failed else ALL, after, size + 1)
        page = found[:size]
        has_more = len(found) > size
        return json_response(
            OutboxPage([shown_row(row) for _, row in page], f"{bounds.epoch}.{page[-1][0]}" if has_more else None)
        )

    async def inspect(request: Request) -> Response:
        row = await outbox.find(request.params["id"])
        if row is None:
            raise NotFound("the outbox has no row with this id")
        return json_response(Inspected(shown_row(row), await outbox.ancestors(row.id), row.superseded_by))

    async def requeue(request: Request) -> Response:
        body: RequeueBody = request.body
        return json_response(
            await operating.requeue(body.id, new_client_id=body.new_client_id, patch=body.patch, force=body.force)
        )

    async def drop(request: Request) -> Response:
        return json_response(await operating.drop(request.body.id, force=request.body.force))

    async def prune(_: Request) -> Response:
        return json_response(Pruned(await operating.prune(parts.live.config.outbox.prune_after_days)))

    deciding = (NotFound, TransitionRefused, StaleClaim, BrokerUnreachable, InvalidRequest)
    return [
        Route(
            method="GET",
            path="/v1/outbox",
            handler=show,
            summary="Rows of the outbox in the order they were accepted.",
            query=OutboxQuery,
            response=OutboxPage,
            errors=(InvalidRequest, CursorAhead, CursorExpired),
        ),
        Route(
            method="GET",
            path="/v1/outbox/{id}",
            handler=inspect,
            summary="One row by any of its ids, with the chain of rows it belongs to.",
            response=Inspected,
            errors=(NotFound,),
        ),
        Route(
            method="POST",
            path="/v1/outbox/requeue",
            handler=requeue,
            summary="Give a dead or pending row up and send its message under a fresh id.",
            request=RequeueBody,
            response=Decision,
            errors=(*deciding, IdempotencyConflict),
        ),
        Route(
            method="POST",
            path="/v1/outbox/drop",
            handler=drop,
            summary="Give a dead or pending row up for good.",
            request=DropBody,
            response=Decision,
            errors=deciding,
        ),
        Route(
            method="POST",
            path="/v1/outbox/prune",
            handler=prune,
            summary="Empty old settled rows; their ids stay used and answer as before.",
            request=PruneBody,
            response=Pruned,
            errors=(InvalidRequest,),
        ),
    ]


def shown_row(row: OutboxRow) -> ShownRow:
    return ShownRow(
        id=row.id,
        client_message_id=row.client_message_id,
        status=row.status,
        to=row.to,
        destination=row.destination,
        attempts=row.attempts,
        last_error=row.last_error,
        enqueued_at=render_instant(row.enqueued_at),
        next_attempt_at=render_instant(row.next_attempt_at),
        accepted_at=_instant(row.delivered_at),
        broker_message_id=row.broker_message_id,
        history_id=row.history_id,
        fingerprint_prefix=prefix(row.fingerprint),
        aborted_at=_instant(row.aborted_at),
        aborted_by=row.aborted_by,
        superseded_by=row.superseded_by,
    )


def _instant(wall_ms: int | None) -> str | None:
    return None if wall_ms is None else render_instant(wall_ms)
