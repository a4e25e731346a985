"""Topics, queues, members and peers: what only the broker can answer, so online only. The daemon passes it on."""

from typing import Annotated, Any, Final, Literal

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Handler, Route
from claudemesh.daemon.http.parts import Parts
from claudemesh.kernel.errors import (
    BrokerUnreachable,
    DestinationNotFound,
    Forbidden,
    InvalidRequest,
    LeaseLost,
    NotFound,
)
from claudemesh.wire.frames import PRESENCE_END
from claudemesh.wire.instants import render_instant
from claudemesh.wire.names import ABOUT_LENGTH_MAX, SENDS_PER_WINDOW_MAX, TOPIC_PATTERN, Policy

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


class AckBody(LeaseBody, frozen=True, omit_defaults=True):
    """`handed_over`: a ledger has it. It is acted once this member replies to it, or acks it without this."""

    handed_over: bool = False


class MemberBody(msgspec.Struct, frozen=True):
    """A member, by its name or its public key."""

    member: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class RoleBody(MemberBody, frozen=True):
    role: Literal["owner", "admin", "member"]


class ProfileBody(msgspec.Struct, frozen=True):
    """What this member says of itself; the others see it among the peers."""

    about: Annotated[str, msgspec.Meta(max_length=ABOUT_LENGTH_MAX)]


class MeshBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is not said stays."""

    connections: Policy | None = None
    sends_per_window: Annotated[int, msgspec.Meta(ge=1, le=SENDS_PER_WINDOW_MAX)] | None = None


class NoArguments(msgspec.Struct, frozen=True):
    """An empty object."""


class PeersQuery(msgspec.Struct, frozen=True):
    everyone: bool = msgspec.field(name="all", default=False)


# What the broker answers, for the document: it is passed on as it came, and a newer broker may say more.


class PeerSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of a member's processes, as it says itself; `transport` and what follows only with `all`."""

    session_pubkey: str
    display_name: str = ""
    role: str = ""
    cwd: str = ""
    groups: list[str] = []
    topics: list[str] = []
    mcp_servers: list[str] = []
    since: str | None = None
    transport: Literal["online", "offline"] | None = None  # whether a socket carries its lease just now
    lease_left_ms: int | None = None
    instance_id: str | None = None


class ShownPeer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member; `transport` and what follows only with `all`.

    `reach` says what becomes of a message that is sent now: it is there at once, when its daemon returns within the
    lease, or it waits.
    """

    name: str
    pubkey: str
    role: str
    status: Literal["online", "offline", "unknown"]  # unknown: the broker is away, and these are whom we knew
    about: str = ""
    member_id: str | None = None
    sessions: list[PeerSession] = []
    transport: Literal["online", "offline", "away"] | None = None
    lease_left_ms: int | None = None
    waiting: int | None = None
    unread: int | None = None
    last_read_at: str | None = None
    reach: Literal["now", "on_return", "waits"] | None = None


class Peers(msgspec.Struct, frozen=True):
    peers: list[ShownPeer]


class ShownTopic(msgspec.Struct, frozen=True):
    name: str
    created_at: str
    subscribers: int
    subscribed: bool


class Topics(msgspec.Struct, frozen=True):
    topics: list[ShownTopic]


class Made(msgspec.Struct, frozen=True):
    """A topic or a queue; `created` is false if it was there."""

    name: str
    created: bool


class Subscribed(msgspec.Struct, frozen=True):
    """What is posted after this place in the history arrives from now on."""

    name: str
    after_history_id: int


class Unsubscribed(msgspec.Struct, frozen=True):
    name: str
    was_subscribed: bool


class ShownQueue(msgspec.Struct, frozen=True):
    """`ready` waits for a worker, `leased` is with one."""

    name: str
    created_at: str
    ready: int
    leased: int


class Queues(msgspec.Struct, frozen=True):
    queues: list[ShownQueue]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    lease_ttl_ms: int
    lease_expires_at: str


class Work(Lease, frozen=True, kw_only=True):
    client_message_id: str
    broker_message_id: str
    sender: str = msgspec.field(name="from")
    from_name: str
    body: str
    meta: dict[str, Any] | None
    reply_to_id: str | None
    lease_token: int


class Renewed(Lease, frozen=True, kw_only=True):
    id: str


class Settled(msgspec.Struct, frozen=True):
    """`state` is how far the message is now: `acted`, or `delivered` if it was handed over to a ledger."""

    id: str
    state: str


class GivenBack(msgspec.Struct, frozen=True):
    id: str


class Revoked(msgspec.Struct, frozen=True):
    name: str
    pubkey: str
    revoked_at: str


class Appointed(msgspec.Struct, frozen=True):
    name: str
    pubkey: str
    role: Literal["owner", "admin", "member"]


class MeshTerms(msgspec.Struct, frozen=True):
    """What the mesh goes by now; without a budget of its own it has the broker's."""

    slug: str
    connections: Policy
    sends_per_window: int | None


class Profile(msgspec.Struct, frozen=True):
    about: str


class Departed(msgspec.Struct, frozen=True):
    """Whether the others saw it leave; false if it had left before."""

    left: bool


_ON_THE_WIRE: Final = {"topic": "name", "queue": "name"}
_INSTANTS: Final = frozenset({
    "accepted_at",
    "created_at",
    "last_read_at",
    "lease_expires_at",
    "revoked_at",
    "since",
})  # fmt: skip


def control_routes(parts: Parts) -> list[Route]:
    receiving = parts.receiving

    async def call(op: str, args: dict[str, Any]) -> Response:
        answer: dict[str, Any] | None = await receiving.link.call(op, args)
        return json_response(answer and _dated(answer))

    def passed_on(op: str) -> Handler:
        async def handle(request: Request) -> Response:
            args = msgspec.to_builtins(request.body)
            return await call(op, {_ON_THE_WIRE.get(name, name): value for name, value in args.items()})

        return handle

    async def topics(_: Request) -> Response:
        answer: dict[str, Any] = await receiving.link.call("topic.list", {})
        return json_response(answer | {"topics": [_dated(topic) for topic in answer["topics"]]})

    async def queues(_: Request) -> Response:
        answer: dict[str, Any] = await receiving.link.call("queue.list", {})
        return json_response(answer | {"queues": [_dated(queue) for queue in answer["queues"]]})

    async def peers(request: Request) -> Response:
        try:
            answer: dict[str, Any] = await receiving.link.call("peers", {"all": request.query.everyone})
            return json_response(answer | {"peers": [_shown_peer(peer) for peer in answer["peers"]]})
        except BrokerUnreachable:  # who was there when we last heard, and that we cannot tell more
            known = [
                {
                    "name": member.name,
                    "pubkey": member.pubkey,
                    "role": member.role,
                    "status": "unknown",
                    "sessions": [],
                }
                for member in receiving.directory.members
            ]
            return json_response({"peers": known})

    async def end_presence(_: Request) -> Response:
        await parts.sessions.end_all()
        return await call(PRESENCE_END, {})

    return [
        _post("/v1/topic/create", passed_on("topic.create"), TopicBody, "Make a topic, or find it made.", Made),
        _post(
            "/v1/topic/subscribe",
            passed_on("topic.subscribe"),
            TopicBody,
            "Get a topic's messages from now on.",
            Subscribed,
        ),
        _post(
            "/v1/topic/unsubscribe", passed_on("topic.unsubscribe"), TopicBody, "Get them no more.", Unsubscribed
        ),
        _get("/v1/topic/list", topics, "The topics of the mesh.", Topics),
        _get("/v1/queue/list", queues, "The work queues of the mesh.", Queues),
        _post(
            "/v1/queue/create", passed_on("queue.create"), QueueBody, "Make a work queue, or find it made.", Made
        ),
        _post(
            "/v1/queue/work", passed_on("queue.work"), QueueBody, "Lease the next message, or null.", Work | None
        ),
        _post("/v1/queue/ack", passed_on("queue.ack"), AckBody, "The work is done, or a ledger has it.", Settled),
        _post("/v1/queue/nack", passed_on("queue.nack"), LeaseBody, "Give the work back.", GivenBack),
        _post("/v1/queue/renew", passed_on("queue.renew"), LeaseBody, "Hold the lease longer.", Renewed),
        _post(
            "/v1/member/revoke",
            passed_on("member.revoke"),
            MemberBody,
            "End a membership, also one's own.",
            Revoked,
        ),
        _post(
            "/v1/member/role",
            passed_on("member.role"),
            RoleBody,
            "Make a member an owner, an admin, or neither.",
            Appointed,
        ),
        _post("/v1/mesh/set", passed_on("mesh.set"), MeshBody, "Change what the mesh goes by.", MeshTerms),
        _post("/v1/profile", passed_on("profile"), ProfileBody, "Tell the others about this member.", Profile),
        _get("/v1/peers", peers, "Who is there, each with its sessions; with `all`, everybody.", Peers, PeersQuery),
        Route(
            method="POST",
            path="/v1/presence/end",
            handler=end_presence,
            summary="Leave at once in the eyes of the others, with all sessions, as `mesh leave` does before it "
            "stops the daemon: one that goes on connects again, and that is a return.",
            request=NoArguments,
            response=Departed,
            errors=(BrokerUnreachable,),
        ),
    ]


def _post(path: str, handler: Handler, body: type[msgspec.Struct], summary: str, answer: object) -> Route:
    return Route(
        method="POST",
        path=path,
        handler=handler,
        summary=summary,
        request=body,
        response=answer,
        errors=(InvalidRequest, BrokerUnreachable, DestinationNotFound, Forbidden, LeaseLost, NotFound),
    )


def _get(
    path: str, handler: Handler, summary: str, answer: object, query: type[msgspec.Struct] | None = None
) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        query=query,
        response=answer,
        errors=(BrokerUnreachable, InvalidRequest),
    )


def _shown_peer(peer: dict[str, Any]) -> dict[str, Any]:
    return _dated(peer) | {"sessions": [_dated(session) for session in peer.get("sessions", ())]}


def _dated(answer: dict[str, Any]) -> dict[str, Any]:
    """Write our own instants as everywhere on this surface; on the wire they are numbers. `meta` is the user's."""
    ours = {name: answer[name] for name in _INSTANTS & answer.keys()}
    return answer | {name: render_instant(at) for name, at in ours.items() if isinstance(at, int)}
