"""The daemon's HTTP surface: one table of routes, each a thin handler over a use case."""

from claudemesh.asgi.openapi import openapi_document
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.control import control_routes
from claudemesh.daemon.http.events import event_routes
from claudemesh.daemon.http.inbox import inbox_routes
from claudemesh.daemon.http.manage import manage_routes
from claudemesh.daemon.http.outbox import outbox_routes
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.http.sends import send_routes
from claudemesh.daemon.http.status import document_route, status_routes


def daemon_routes(parts: Parts) -> list[Route]:
    routes = [
        *send_routes(parts),
        *inbox_routes(parts),
        *outbox_routes(parts),
        *control_routes(parts),
        *event_routes(parts),
        *manage_routes(parts),
        *status_routes(parts),
    ]
    document = openapi_document("claudemesh daemon", parts.version, routes)
    return [*routes, document_route(document)]
