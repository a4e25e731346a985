"""Topics, queues and peers: what only the broker can answer, so online only. The daemon passes it on."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.parts import Parts
from claudemesh.kernel.errors import BrokerUnreachable, DestinationNotFound, InvalidRequest, LeaseLost, NotFound
from claudemesh.wire.instants import render_instant
from claudemesh.wire.names import TOPIC_PATTERN

Name = Annotated[str, msgspec.Meta(pattern=f"^(?:{TOPIC_PATTERN})$", description="Of a topic or a queue.")]


class TopicBody(msgspec.Struct, frozen=True):
    topic: Name


class QueueBody(msgspec.Struct, frozen=True):
    queue: Name


class LeaseBody(msgspec.Struct, frozen=True):
    """Whose work it is: the message, and the token that its lease was given with."""

    queue: Name
    id: str
    token: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class PeersQuery(msgspec.Struct, frozen=True):
    everyone: bool = msgspec.field(name="all", default=False)


Handler = Callable[[Request], Awaitable[Response]]


def control_routes(parts: Parts) -> list[Route]:
    receiving = parts.receiving

    async def call(op: str, args: dict[str, Any]) -> Response:
        return json_response(_dated(await receiving.link.call(op, args)))

    def on_topic(op: str) -> Handler:
        async def handle(request: Request) -> Response:
            return await call(op, {"name": request.body.topic})

        return handle

    def on_queue(op: str) -> Handler:
        async def handle(request: Request) -> Response:
            args = msgspec.to_builtins(request.body)
            return await call(op, args | {"name": args.pop("queue")})

        return handle

    async def topics(_: Request) -> Response:
        return await call("topic.list", {})

    async def peers(request: Request) -> Response:
        try:
            return await call("peers", {"all": request.query.everyone})
        except BrokerUnreachable:  # who was there when we last heard, and that we cannot tell more
            known = [
                {"name": member.name, "pubkey": member.pubkey, "role": member.role, "status": "unknown"}
                for member in receiving.directory.members
            ]
            return json_response({"peers": known})

    return [
        _post("/v1/topic/create", on_topic("topic.create"), TopicBody, "Make a topic, or find it made."),
        _post("/v1/topic/subscribe", on_topic("topic.subscribe"), TopicBody, "Get a topic's messages from now on."),
        _post("/v1/topic/unsubscribe", on_topic("topic.unsubscribe"), TopicBody, "Get them no more."),
        _get("/v1/topic/list", topics, "The topics of the mesh."),
        _post("/v1/queue/create", on_queue("queue.create"), QueueBody, "Make a work queue, or find it made."),
        _post("/v1/queue/work", on_queue("queue.work"), QueueBody, "Lease the next message, or null."),
        _post("/v1/queue/ack", on_queue("queue.ack"), LeaseBody, "The work is done."),
        _post("/v1/queue/nack", on_queue("queue.nack"), LeaseBody, "Give the work back."),
        _post("/v1/queue/renew", on_queue("queue.renew"), LeaseBody, "Hold the lease longer."),
        _get("/v1/peers", peers, "Who is in the mesh, and who of them is connected.", PeersQuery),
    ]


def _post(path: str, handler: Handler, body: type[msgspec.Struct], summary: str) -> Route:
    return Route(
        method="POST",
        path=path,
        handler=handler,
        summary=summary,
        request=body,
        response=Any,
        errors=(InvalidRequest, BrokerUnreachable, DestinationNotFound, LeaseLost, NotFound),
    )


def _get(path: str, handler: Handler, summary: str, query: type[msgspec.Struct] | None = None) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        query=query,
        response=Any,
        errors=(BrokerUnreachable, InvalidRequest),
    )


def _dated(answer: Any) -> Any:  # noqa: ANN401  JSON in, JSON out
    """Write instants as everywhere on this surface; on the wire they are numbers."""
    if isinstance(answer, list):
        return [_dated(element) for element in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        name: render_instant(value) if name.endswith("_at") and isinstance(value, int) else _dated(value)
        for name, value in answer.items()
    }
