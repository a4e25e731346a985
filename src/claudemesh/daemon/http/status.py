"""How the daemon is: health, version, metrics, and the document of this very surface."""

from typing import Any, Final

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.stores.schemas import SCHEMA_VERSION
from claudemesh.kernel.outbox import OutboxState
from claudemesh.runtime.metrics import CONTENT_TYPE
from claudemesh.wire.frames import PROTOCOL
from claudemesh.wire.negotiation import REQUIRED

IPC_API: Final = "v1"
IPC_FEATURES: Final = [
    "send",
    "send_batch",
    "topic",
    "queue",
    "inbox",
    "search",
    "trace",
    "outbox",
    "peers",
    "profile",
    "sessions",
]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    connected: bool
    link: str  # how the connection to the broker is, in words: `catching up` while it stands and is not ready
    lag_ms: int
    queue_depth: int
    inflight: int
    dead: int
    unread: int  # messages of the inbox that were not marked as read
    mesh: str
    member: str
    member_pubkey: str
    session_pubkey: str | None  # of a daemon that was started for one run
    uptime_s: int
    schema_version: int
    daemon_version: str
    broker_version: str | None
    degraded: bool


class Version(msgspec.Struct, frozen=True, kw_only=True):
    daemon_version: str
    ipc_api: str
    ipc_features: list[str]
    schema_version: int
    broker_features_negotiated: list[str]


class Compat(msgspec.Struct, frozen=True, kw_only=True):
    """What fits together: callers compare `ipc_api`, brokers `wire_protocol`, files `schema_version`."""

    daemon_version: str
    ipc_api: list[str]
    wire_protocol: list[int]
    schema_version: int
    requires_of_broker: list[str]


def describe_link(status: str, *, is_ready: bool) -> str:
    return "catching up" if status == "connected" and not is_ready else status


def status_routes(parts: Parts) -> list[Route]:
    async def health(_: Request) -> Response:
        counts = await parts.outbox.counts()
        connector = parts.connector
        link, is_ready = connector.link, parts.receiving.is_ready
        uptime_ms = parts.world.clock.monotonic_ms() - parts.started_ms
        return json_response(
            Health(
                connected=is_ready,
                link=describe_link(connector.status, is_ready=is_ready),
                lag_ms=await parts.receiving.lag_ms(),
                queue_depth=counts[OutboxState.PENDING],
                inflight=counts[OutboxState.INFLIGHT],
                dead=counts[OutboxState.DEAD],
                unread=await parts.inbox.unread(),
                mesh=parts.identity.joined.slug,
                member=parts.identity.joined.name,
                member_pubkey=parts.identity.keys.pubkey,
                session_pubkey=connector.session_pubkey,
                uptime_s=uptime_ms // 1000,
                schema_version=SCHEMA_VERSION,
                daemon_version=parts.version,
                broker_version=None if link is None else link.hello_ack.broker_version,
                degraded=connector.is_degraded,
            )
        )

    async def version(_: Request) -> Response:
        return json_response(
            Version(
                daemon_version=parts.version,
                ipc_api=IPC_API,
                ipc_features=IPC_FEATURES,
                schema_version=SCHEMA_VERSION,
                broker_features_negotiated=[*parts.receiving.terms.features],
            )
        )

    async def compat(_: Request) -> Response:
        return json_response(
            Compat(
                daemon_version=parts.version,
                ipc_api=[IPC_API],
                wire_protocol=[PROTOCOL],
                schema_version=SCHEMA_VERSION,
                requires_of_broker=[*REQUIRED],
            )
        )

    async def metrics(_: Request) -> Response:
        text = await parts.metrics.render(await parts.pressure.look())
        return Response(200, text, ((b"content-type", CONTENT_TYPE.encode()),))

    return [
        Route(
            method="GET",
            path="/v1/health",
            handler=health,
            summary="How the daemon is. It is healthy without a broker: it accepts and keeps.",
            response=Health,
        ),
        Route(
            method="GET",
            path="/v1/version",
            handler=version,
            summary="What runs here, and what it can do.",
            response=Version,
        ),
        Route(
            method="GET",
            path="/v1/compat",
            handler=compat,
            summary="What this daemon works together with.",
            response=Compat,
        ),
        Route(
            method="GET",
            path="/v1/metrics",
            handler=metrics,
            summary="Metrics for Prometheus.",
            content_type=CONTENT_TYPE,
        ),
    ]


def document_route(document: dict[str, Any]) -> Route:
    async def show(_: Request) -> Response:
        return json_response(document)

    return Route(
        method="GET", path="/openapi.json", handler=show, summary="This document.", response=dict[str, Any]
    )
