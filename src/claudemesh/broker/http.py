"""The broker's HTTP: making and joining meshes, and what operators ask. Messages go over the WebSocket only."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.openapi import openapi_document
from claudemesh.asgi.routes import Header, Route
from claudemesh.asgi.tokens import TokenSource
from claudemesh.broker.membership import MembershipService
from claudemesh.kernel.errors import (
    BadToken,
    InviteRefused,
    MissingToken,
    NameTaken,
    Revoked,
    StoreUnavailable,
    Unauthenticated,
)
from claudemesh.runtime.metrics import CONTENT_TYPE, Metrics
from claudemesh.wire.invite import CreateMesh, Membership, Redeem

TITLE: Final = "claudemesh broker"

_ADMIN = Header(
    "Authorization", "Bearer and the admin token; not needed where the broker listens on loopback only."
)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    broker_version: str
    broker_key: str
    connections: int
    delivery_depth: int
    uptime_s: int
    server_time_ms: int  # whoever connects may be at most a minute off


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpParts:
    membership: MembershipService
    admin: TokenSource | None  # None: whoever reaches the broker may make meshes
    metrics: Metrics
    health: Callable[[], Awaitable[Health]]
    version: str


def broker_routes(parts: HttpParts) -> list[Route]:
    """Return the table of routes, for the server and for the document."""

    async def create_mesh(request: Request) -> Response:
        _check_admin(request, parts.admin)
        return json_response(await parts.membership.create_mesh(request.body))

    async def redeem(request: Request) -> Response:
        return json_response(await parts.membership.redeem(request.body))

    async def health(_request: Request) -> Response:
        return json_response(await parts.health())

    async def metrics(_request: Request) -> Response:
        return Response(200, parts.metrics.render(), ((b"content-type", CONTENT_TYPE.encode()),))

    async def document(_request: Request) -> Response:
        return json_response(openapi_document(TITLE, parts.version, routes))

    routes = [
        Route(
            method="POST",
            path="/v1/meshes",
            handler=create_mesh,
            summary="Make a mesh; the same slug and key again is answered as the first time.",
            request=CreateMesh,
            response=Membership,
            headers=(_ADMIN,),
            errors=(Unauthenticated, MissingToken, BadToken, Revoked, StoreUnavailable),
        ),
        Route(
            method="POST",
            path="/v1/invites/redeem",
            handler=redeem,
            summary="Join a mesh by an invite; the same key again is answered as the first time.",
            request=Redeem,
            response=Membership,
            errors=(Unauthenticated, InviteRefused, Revoked, NameTaken, StoreUnavailable),
        ),
        Route(
            method="GET",
            path="/v1/health",
            handler=health,
            summary="Whether the broker works.",
            response=Health,
            errors=(StoreUnavailable,),
        ),
        Route(
            method="GET",
            path="/v1/metrics",
            handler=metrics,
            summary="Metrics for Prometheus.",
            content_type=CONTENT_TYPE,
        ),
        Route(
            method="GET",
            path="/openapi.json",
            handler=document,
            summary="This document.",
            response=dict,
        ),
    ]
    return routes


def _check_admin(request: Request, admin: TokenSource | None) -> None:
    if admin is None:
        return
    scheme, _, presented = (request.header("authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not presented:
        raise MissingToken
    if admin.identify(presented.strip().encode()) is None:
        raise BadToken
