"""All at a glance: how the daemon is, what waits where, and what wants an operator."""

import asyncio
from typing import Any, Final

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.http.status import describe_link
from claudemesh.dashboard.relay import RelayStatus, RelayView
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.outbox import OutboxState
from claudemesh.wire.instants import render_instant

BROKER_S: Final = 2.0  # a glance does not wait longer for what only the broker knows


class OutboxCounts(msgspec.Struct, frozen=True):
    pending: int
    inflight: int
    dead: int


class QueueTotals(msgspec.Struct, frozen=True):
    count: int
    ready: int
    leased: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    mesh: str
    member: str
    member_pubkey: str
    version: str
    broker_version: str | None
    connected: bool
    link: str
    degraded: bool
    lag_ms: int
    uptime_s: int
    outbox: OutboxCounts
    unread: int
    relay: RelayStatus
    queues: QueueTotals | None  # null while the broker is away


def overview_routes(parts: Parts, relay: RelayView) -> list[Route]:
    async def overview(_: Request) -> Response:
        counts, relayed, queues = await asyncio.gather(parts.outbox.counts(), relay.status(), _count_queues(parts))
        world, joined, link = parts.world, parts.identity.joined, parts.connector.link
        is_ready = parts.receiving.is_ready
        return json_response(
            Overview(
                at=render_instant(world.clock.wall_ms()),
                mesh=joined.slug,
                member=joined.name,
                member_pubkey=parts.identity.keys.pubkey,
                version=parts.version,
                broker_version=None if link is None else link.hello_ack.broker_version,
                connected=is_ready,
                link=describe_link(parts.connector.status, is_ready=is_ready),
                degraded=parts.connector.is_degraded,
                lag_ms=await parts.receiving.lag_ms(),
                uptime_s=(world.clock.monotonic_ms() - parts.started_ms) // 1000,
                outbox=OutboxCounts(
                    pending=counts[OutboxState.PENDING],
                    inflight=counts[OutboxState.INFLIGHT],
                    dead=counts[OutboxState.DEAD],
                ),
                unread=await parts.inbox.unread(),
                relay=relayed,
                queues=queues,
            )
        )

    return [
        Route(
            method="GET",
            path="/v1/dashboard/overview",
            handler=overview,
            summary="How everything is, at a glance.",
            response=Overview,
        )
    ]


async def _count_queues(parts: Parts) -> QueueTotals | None:
    try:
        async with asyncio.timeout(BROKER_S):
            answer: dict[str, Any] = await parts.receiving.link.call("queue.list", {})
    except (MeshError, TimeoutError):
        return None
    queues = answer["queues"]
    return QueueTotals(len(queues), sum(one["ready"] for one in queues), sum(one["leased"] for one in queues))
