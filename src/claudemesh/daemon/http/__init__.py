"""The daemon's HTTP surface: one table of routes, each a thin handler over a use case."""

from typing import Final

from claudemesh.asgi.openapi import openapi_document
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.control import control_routes
from claudemesh.daemon.http.events import event_routes
from claudemesh.daemon.http.extension import Extension
from claudemesh.daemon.http.inbox import inbox_routes
from claudemesh.daemon.http.manage import manage_routes
from claudemesh.daemon.http.outbox import outbox_routes
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.http.sends import send_routes
from claudemesh.daemon.http.sessions import session_routes
from claudemesh.daemon.http.status import document_route, status_routes
from claudemesh.daemon.settings import Ipc
from claudemesh.kernel.errors import (
    BadHost,
    BadOrigin,
    BadToken,
    DaemonBusy,
    Forbidden,
    MissingToken,
    RateLimited,
    TokenInUrl,
)

# What the guard of the port and the limits may answer, whatever was asked.
BEFORE_ANY_ROUTE: Final = (
    MissingToken, BadToken, TokenInUrl, BadHost, BadOrigin, Forbidden, RateLimited, DaemonBusy,
)  # fmt: skip


def public_paths(ipc: Ipc) -> frozenset[str]:
    """Return what is answered by TCP without a token."""
    return frozenset({"/v1/health"} if ipc.public_health_check else ())


def daemon_routes(parts: Parts, extension: Extension) -> list[Route]:
    routes = [
        *send_routes(parts),
        *inbox_routes(parts),
        *outbox_routes(parts),
        *control_routes(parts),
        *session_routes(parts),
        *event_routes(parts),
        *manage_routes(parts),
        *status_routes(parts),
        *extension.routes,
    ]
    document = openapi_document(
        "claudemesh daemon",
        parts.version,
        routes,
        everywhere=BEFORE_ANY_ROUTE,
        public_paths=public_paths(parts.settings.config.ipc) | extension.public_paths,
    )
    return [*routes, document_route(document)]
