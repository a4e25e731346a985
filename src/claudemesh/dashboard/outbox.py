"""The outbox, the newest first, and the two decisions about a row. Not every decision: a page patches no message.

The caller's key is the new message's id, or part of who gave the row up; so the outbox itself knows a second try.
"""

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.outbox import ShownRow, shown_row
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.operate import Decision, Patch
from claudemesh.daemon.ports import Shown
from claudemesh.dashboard.fields import LIMIT_DEFAULT, NUMBER_MAX, Id, Key, Limit, Number, clamp
from claudemesh.kernel.errors import (
    BrokerUnreachable,
    IdempotencyConflict,
    NotFound,
    StaleClaim,
    TransitionRefused,
)

BY = "dashboard"


class RowsQuery(msgspec.Struct, frozen=True):
    state: Shown = "all"
    before: Number = NUMBER_MAX
    limit: Limit = LIMIT_DEFAULT


class Rows(msgspec.Struct, frozen=True):
    rows: list[ShownRow]
    next_before: int | None


class RowBody(msgspec.Struct, frozen=True):
    id: Id
    key: Key
    force: bool = False


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """`done`: the broker had it all along. `replayed`: this key had decided it before, and nothing was done now."""

    id: str
    status: str
    superseded_by: str | None
    client_message_id: str | None
    broker_message_id: str | None
    history_id: int | None
    replayed: bool


def outbox_routes(parts: Parts) -> list[Route]:
    async def rows(request: Request) -> Response:
        query: RowsQuery = request.query
        size = clamp(query.limit)
        found = await parts.outbox.newest(query.state, query.before, size + 1)
        page = found[:size]
        return json_response(Rows([shown_row(row) for _, row in page], page[-1][0] if len(found) > size else None))

    async def requeue(request: Request) -> Response:
        body: RowBody = request.body
        return _answer(
            await parts.operating.requeue(body.id, new_client_id=body.key, patch=Patch(), force=body.force, by=BY)
        )

    async def drop(request: Request) -> Response:
        body: RowBody = request.body
        return _answer(await parts.operating.drop(body.id, force=body.force, by=f"{BY} ({body.key})"))

    deciding = (NotFound, TransitionRefused, StaleClaim, BrokerUnreachable, IdempotencyConflict)
    return [
        Route(
            method="GET",
            path="/v1/dashboard/outbox",
            handler=rows,
            summary="Rows of the outbox, the newest first.",
            query=RowsQuery,
            response=Rows,
        ),
        Route(
            method="POST",
            path="/v1/dashboard/outbox/requeue",
            handler=requeue,
            summary="Give a dead or pending row up and send its message anew; the key is the new id.",
            request=RowBody,
            response=Decided,
            errors=deciding,
        ),
        Route(
            method="POST",
            path="/v1/dashboard/outbox/drop",
            handler=drop,
            summary="Give a dead or pending row up for good; once for each key.",
            request=RowBody,
            response=Decided,
            errors=deciding,
        ),
    ]


def _answer(decision: Decision) -> Response:
    return json_response(Decided(**msgspec.structs.asdict(decision)))
