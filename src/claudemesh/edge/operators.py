"""What an operator asks of a relay: on its Unix socket only, which is its owner's."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import orjson

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.edge.http import Parts
from claudemesh.edge.model import STATES
from claudemesh.edge.operate import Keep, Operating
from claudemesh.kernel.errors import InvalidRequest, NotFound, StateError, StoreUnavailable

LIST_MAX: Final = 1_000
IMPORT_BYTES_MAX: Final = 64 << 20


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    items: list[dict[str, Any]]
    next_cursor: int | None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    state: str | None = None
    after: int = 0
    limit: int = 100


class From(msgspec.Struct, frozen=True, kw_only=True):
    after: int = 0


class Named(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    by: str = "operator"
    keep: Keep | None = None


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    lines: list[msgspec.Raw]
    by: str = "operator"


Decide = Callable[[Operating, str, Decision], Awaitable[Any]]


async def _resolve(operating: Operating, row_id: str, decision: Decision) -> object:
    if decision.keep is None:
        raise InvalidRequest("resolve needs keep: mine or theirs")
    return await operating.resolve(row_id, decision.keep, decision.by)


_DECISIONS: Final[dict[str, tuple[str, Decide]]] = {
    "retry": ("Let an envelope try again", lambda operating, row_id, said: operating.retry(row_id, said.by)),
    "cancel": ("Give an envelope up", lambda operating, row_id, said: operating.cancel(row_id, said.by)),
    "mark-dead": ("Mark an envelope dead", lambda operating, row_id, said: operating.mark_dead(row_id, said.by)),
    "resolve": ("Decide a conflict", _resolve),
}


def operator_routes(parts: Parts) -> list[Route]:
    return [*_looking(parts), *_moving(parts), *(_deciding(parts, name, *how) for name, how in _DECISIONS.items())]


def _operating(parts: Parts) -> Operating:
    if parts.operating is None:
        raise StoreUnavailable("the relay's outbox is damaged: `statehub outbox recover` saves what can be read")
    return parts.operating


def _looking(parts: Parts) -> list[Route]:
    async def page(request: Request) -> Response:
        asked: Page = request.query
        if asked.state is not None and asked.state not in STATES:
            raise InvalidRequest(f"a state is one of {', '.join(STATES)}")
        limit = max(1, min(asked.limit, LIST_MAX))
        state = STATES[asked.state] if asked.state is not None else None
        found = await _operating(parts).page(state, asked.after, limit)
        cursor = found[-1].seq if len(found) == limit else None
        return json_response(Listing(items=[msgspec.to_builtins(one) for one in found], next_cursor=cursor))

    async def show(request: Request) -> Response:
        return json_response(await _operating(parts).show(request.params["id"]))

    async def find(request: Request) -> Response:
        asked: Named = request.query
        return json_response(await _operating(parts).show(asked.id))

    return [
        Route(method="GET", path="/outbox", handler=page, summary="Envelopes", query=Page, response=Listing),
        Route(
            method="GET",
            path="/outbox/find",
            handler=find,
            summary="One envelope by its id, or by its key, which no path could hold",
            query=Named,
            response=dict[str, Any],
            errors=(NotFound,),
        ),
        Route(
            method="GET",
            path="/outbox/{id}",
            handler=show,
            summary="One envelope, with both values of a conflict",
            response=dict[str, Any],
            errors=(NotFound,),
        ),
    ]


def _moving(parts: Parts) -> list[Route]:
    async def export(request: Request) -> Response:
        asked: From = request.query
        items, cursor = await _operating(parts).export(asked.after)
        lines = [orjson.loads(msgspec.json.encode(one)) for one in items]
        return json_response(Listing(items=lines, next_cursor=cursor))

    async def import_(request: Request) -> Response:
        asked: Imported = request.body
        return json_response(await _operating(parts).import_([bytes(line) for line in asked.lines], asked.by))

    return [
        Route(
            method="GET",
            path="/outbox/export",
            handler=export,
            summary="Envelopes that are not settled, whole",
            query=From,
            response=Listing,
        ),
        Route(
            method="POST",
            path="/outbox/import",
            handler=import_,
            summary="Envelopes of another relay",
            request=Imported,
            response=dict[str, int],
            body_bytes_max=IMPORT_BYTES_MAX,
        ),
    ]


def _deciding(parts: Parts, name: str, summary: str, decide: Decide) -> Route:
    async def handler(request: Request) -> Response:
        return json_response(await decide(_operating(parts), request.params["id"], request.body))

    return Route(
        method="POST",
        path=f"/outbox/{{id}}/{name}",
        handler=handler,
        summary=summary,
        request=Decision,
        response=dict[str, Any],
        errors=(NotFound, StateError),
    )
