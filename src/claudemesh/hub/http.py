"""The hub's routes: for each kind a list, its rows and what may be done to them; and what operators ask."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.openapi import openapi_document
from claudemesh.asgi.routes import Handler, Header, Route
from claudemesh.hub import bodies
from claudemesh.hub.asking import (
    body_expectation,
    creation_of,
    expectation_of,
    mark_of,
    origin_of,
    refuse_unstorable,
    update_of,
)
from claudemesh.hub.model import Asked, Delete, Kind, Update
from claudemesh.hub.rendering import PLACES, page_response, parse_cursor, row_response, summary_response
from claudemesh.hub.service import HubService
from claudemesh.idempotency.policy import POLICY_PATH
from claudemesh.kernel.errors import (
    BadHost,
    BadOrigin,
    BadToken,
    DaemonBusy,
    Forbidden,
    MeshError,
    MissingToken,
    NotFound,
    StoreFull,
    StoreUnavailable,
)
from claudemesh.kernel.write_errors import (
    AnswerNotKept,
    BadHeader,
    BadIdempotencyKey,
    KeyInProgress,
    KeyReused,
    MarkLost,
    RevisionConflict,
    StaleVersion,
    TooDeep,
    Unstorable,
)
from claudemesh.runtime.metrics import CONTENT_TYPE, Metrics

TITLE: Final = "claudemesh State Hub"
PUBLIC_PATHS: Final = frozenset({"/health"})

_KEYED: Final = (BadIdempotencyKey, KeyReused, KeyInProgress, AnswerNotKept, MarkLost, StoreUnavailable, StoreFull)
_SENT: Final = (TooDeep, Unstorable)
_JUDGED: Final = (NotFound, BadHeader, RevisionConflict, StaleVersion)
_READ: Final = (NotFound, StoreUnavailable)

_KEY: Final = Header("Idempotency-Key", "The same key and request again is answered as the first time.")
_IF_MATCH: Final = Header(
    "If-Match", "The row's ETag: if it has another by now, nothing changes and the answer is 412."
)

# What stands before the routes: the guard, the limits.
_EVERYWHERE: Final[tuple[type[MeshError], ...]] = (BadHost, BadOrigin, Forbidden, DaemonBusy)
_WITH_TOKEN: Final[tuple[type[MeshError], ...]] = (MissingToken, BadToken)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpParts:
    service: HubService
    metrics: Metrics
    health: Callable[[], Awaitable[bodies.Health]]
    now_ms: Callable[[], int]
    version: str
    needs_token: bool


def hub_routes(parts: HttpParts) -> list[Route]:
    """Return the table of routes, for the server and for the document."""
    routes = [route for kind in Kind for route in (_create(parts, kind), _list(parts, kind), _get(parts, kind))]
    routes += [*_changes(parts), *_operations(parts)]

    async def document(_request: Request) -> Response:
        everywhere = (*_EVERYWHERE, *(_WITH_TOKEN if parts.needs_token else ()))
        return json_response(
            openapi_document(TITLE, parts.version, routes, everywhere=everywhere, public_paths=PUBLIC_PATHS)
        )

    routes.append(
        Route(method="GET", path="/openapi.json", handler=document, summary="This document.", response=dict)
    )
    return routes


# --- what every kind has ---------------------------------------------------------------------------


def _create(parts: HttpParts, kind: Kind) -> Route:
    create = parts.service.create

    async def handler(request: Request) -> Response:
        mark = mark_of(request)
        return await create(kind, creation_of(request), origin_of(request, mark), mark)

    return Route(
        method="POST",
        path=PLACES[kind],
        handler=handler,
        summary=_SUMMARIES[kind],
        request=bodies.NEW[kind],
        response=bodies.ROW[kind],
        status=201,
        headers=(_KEY,),
        errors=(*_SENT, *_KEYED),
    )


_SUMMARIES: Final = {
    Kind.PROGRESS: "Say what an agent has done.",
    Kind.MESSAGES: "Leave a message for somebody.",
    Kind.TOKEN_EVENTS: "Note how many tokens an agent used.",
    Kind.DECISIONS: "Ask for a decision, or write one down.",
    Kind.TASKS: "Make a task.",
    Kind.WORKPLANS: "Make a workplan.",
}


def _list(parts: HttpParts, kind: Kind) -> Route:
    async def handler(request: Request) -> Response:
        query: bodies.ListQuery = request.query
        after_seq = 0 if query.cursor is None else parse_cursor(query.cursor)
        return page_response(await parts.service.page(kind, after_seq, min(query.limit, bodies.LIST_MAX)))

    return Route(
        method="GET",
        path=PLACES[kind],
        handler=handler,
        summary="All of them in the order in which they were made, page by page.",
        query=bodies.ListQuery,
        response=bodies.list_of(bodies.ROW[kind]),
        errors=(StoreUnavailable,),
    )


def _get(parts: HttpParts, kind: Kind) -> Route:
    async def handler(request: Request) -> Response:
        row = await parts.service.get(kind, request.params["id"])
        if row is None:
            raise NotFound("there is no such row")
        return row_response(row)

    return Route(
        method="GET",
        path=f"{PLACES[kind]}{{id}}",
        handler=handler,
        summary="One of them, with its revision as ETag.",
        response=bodies.ROW[kind],
        errors=_READ,
    )


# --- changes ---------------------------------------------------------------------------------------


def _changes(parts: HttpParts) -> list[Route]:
    service = parts.service

    async def read_message(request: Request) -> Response:
        mark = mark_of(request)
        expected = expectation_of(request)
        return await service.mark_read(request.params["id"], origin_of(request, mark), mark, expected)

    async def resolve(request: Request) -> Response:
        refuse_unstorable(request.raw)
        change = Update({"resolution": request.body.resolution, "status": "resolved"})
        mark, expected = mark_of(request), expectation_of(request, request.body)
        return await service.change(
            Kind.DECISIONS, request.params["id"], change, origin_of(request, mark), mark, expected
        )

    async def delete_task(request: Request) -> Response:
        mark, expected = mark_of(request), expectation_of(request)
        return await service.change(
            Kind.TASKS, request.params["id"], Delete(), origin_of(request, mark), mark, expected
        )

    async def sync_statuses(request: Request) -> Response:
        refuse_unstorable(request.raw)
        asks = [
            Asked(Kind.TASKS, one.id, Update({"status": one.status}), body_expectation(one))
            for one in request.body.tasks
        ]
        mark = mark_of(request)
        return await service.change_many(asks, origin_of(request, mark), mark)

    return [
        Route(
            method="PATCH",
            path="/messages/{id}/read",
            handler=read_message,
            summary="Say that a message was read; again changes nothing.",
            response=bodies.MessageRead,
            headers=(_KEY, _IF_MATCH),
            errors=(*_JUDGED, *_KEYED),
        ),
        _patch(parts, Kind.DECISIONS, bodies.ChangeDecision, bodies.DecisionChanged),
        Route(
            method="POST",
            path="/decisions/{id}/resolve",
            handler=resolve,
            summary="Say what was decided.",
            request=bodies.Resolve,
            response=bodies.DecisionChanged,
            headers=(_KEY, _IF_MATCH),
            errors=(*_SENT, *_JUDGED, *_KEYED),
        ),
        Route(
            method="POST",
            path="/tasks/bulk-status-sync",
            handler=sync_statuses,
            summary=f"Set the status of up to {bodies.BULK_MAX} tasks in one transaction, each judged by itself.",
            request=bodies.BulkStatusSync,
            response=bodies.BulkAnswer,
            headers=(_KEY,),
            errors=(*_SENT, *_KEYED),
        ),
        _patch(parts, Kind.TASKS, bodies.ChangeTitled, bodies.TaskChanged),
        Route(
            method="DELETE",
            path="/tasks/{id}",
            handler=delete_task,
            summary="Remove a task; the journal keeps its life.",
            status=204,
            headers=(_KEY, _IF_MATCH),
            errors=(*_JUDGED, *_KEYED),
        ),
        _patch(parts, Kind.WORKPLANS, bodies.ChangeTitled, bodies.WorkplanChanged),
    ]


def _patch(parts: HttpParts, kind: Kind, body: type[bodies.Expecting], response: type[bodies.Stood]) -> Route:
    change = parts.service.change

    async def handler(request: Request) -> Response:
        mark, update, expected = mark_of(request), update_of(request), expectation_of(request, request.body)
        return await change(kind, request.params["id"], update, origin_of(request, mark), mark, expected)

    return Route(
        method="PATCH",
        path=f"{PLACES[kind]}{{id}}",
        handler=handler,
        summary="Change what is named, if the row is what the caller expects it to be.",
        request=body,
        response=response,
        headers=(_KEY, _IF_MATCH),
        errors=(*_SENT, *_JUDGED, *_KEYED),
    )


# --- what operators ask ----------------------------------------------------------------------------


def _operations(parts: HttpParts) -> list[Route]:
    async def summary(_request: Request) -> Response:
        return summary_response(await parts.service.summary(), parts.now_ms())

    async def health(_request: Request) -> Response:
        return json_response(await parts.health())

    async def metrics(_request: Request) -> Response:
        return Response(200, parts.metrics.render(), ((b"content-type", CONTENT_TYPE.encode()),))

    async def policy(_request: Request) -> Response:
        raise NotFound("what stands before the routes answers this")  # it is here for the document

    def route(path: str, handler: Handler, said: str, response: type | None, content_type: str = "") -> Route:
        return Route(
            method="GET",
            path=path,
            handler=handler,
            summary=said,
            response=response,
            content_type=content_type or "application/json",
            errors=(StoreUnavailable,) if response is not None else (),
        )

    return [
        route("/state/summary", summary, "How many rows there are, and the last writes.", bodies.StateSummary),
        route(POLICY_PATH, policy, "How long an Idempotency-Key is known, and what is kept under it.", dict),
        route("/health", health, "Whether the hub works.", bodies.Health),
        route("/metrics", metrics, "Metrics for Prometheus.", None, CONTENT_TYPE),
    ]
