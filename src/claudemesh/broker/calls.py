"""The operations of a `call` frame: a table of name, arguments and handler. Any member may call them.

A handler's docstring is its line in the reference, and says where more than membership is asked for. Arguments are
checked against their type before the handler sees them. What a handler raises of ours is the reply's error; what
nobody expected is a bare internal error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from weakref import WeakValueDictionary

import msgspec
from msgspec import Meta

from claudemesh.broker.model import (
    Budgeted,
    Claim,
    ConnectionPolicy,
    DeliveryState,
    Identity,
    MessageReceipt,
    RecipientReceipt,
    Role,
    Sender,
)
from claudemesh.broker.policy import QUEUE_LEASE_MS
from claudemesh.broker.ports import (
    AcceptStore,
    DeliveryStore,
    DirectoryStore,
    PresenceStore,
    ReceiptStore,
    TopicStore,
    WorkStore,
)
from claudemesh.broker.presence.herald import Herald
from claudemesh.broker.presence.model import Because, Settled
from claudemesh.broker.presence.peers import render_peers
from claudemesh.broker.service import AcceptService
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.clock import DAY_MS, Clock
from claudemesh.kernel.errors import Forbidden, InvalidRequest, MeshError, NotFound
from claudemesh.kernel.ids import parse_client_message_id
from claudemesh.wire import problem
from claudemesh.wire.frames import Call, Reply
from claudemesh.wire.names import ABOUT_LENGTH_MAX, SENDS_PER_WINDOW_MAX, parse_topic

IDS_MAX: Final = 1_000
REPLAY_COUNT: Final = 256
REPLAY_BYTES: Final = 1024 * 1024
LEASE_MS_MIN: Final = 1_000
LEASE_MS_MAX: Final = DAY_MS
NO_NUL: Final = r"^[^\x00]*$"  # which not every store would keep

Id = Annotated[str, Meta(max_length=128, pattern=NO_NUL)]
Ids = Annotated[list[Id], Meta(max_length=IDS_MAX)]
LeaseMs = Annotated[int, Meta(ge=LEASE_MS_MIN, le=LEASE_MS_MAX)]
Token = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Args(msgspec.Struct, frozen=True):
    """No arguments. A newer daemon may say more than is understood here."""


class PeersArgs(Args, frozen=True):
    """Those who are present; or everybody."""

    everybody: bool = msgspec.field(name="all", default=False)


class PresenceArgs(Args, frozen=True):
    after: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None


class EndArgs(Args, frozen=True):
    """Of the caller's own connection; or of a session of the caller's, in all its instances or in one."""

    session_pubkey: Id | None = None
    instance_id: Id | None = None


class Named(Args, frozen=True):
    name: str


class WorkArgs(Named, frozen=True):
    lease_ms: LeaseMs = QUEUE_LEASE_MS


class ClaimArgs(Named, frozen=True):
    id: Id
    token: Token


class AckArgs(ClaimArgs, frozen=True):
    handed_over: bool = False


class RenewArgs(ClaimArgs, frozen=True):
    lease_ms: LeaseMs = QUEUE_LEASE_MS


class ReceiptArgs(Args, frozen=True):
    """The sender's own messages, by its ids or the broker's."""

    ids: Ids = []
    broker_message_ids: Ids = []


class ReadArgs(Args, frozen=True):
    broker_message_ids: Ids


class ReplayArgs(Args, frozen=True):
    after_history_id: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ResolveArgs(Args, frozen=True):
    pubkeys: Ids


class RetireArgs(Args, frozen=True):
    """An id, and the fingerprint of the request that is given up under it."""

    client_message_id: str
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class MemberArgs(Args, frozen=True):
    """A member, by its name or its key."""

    member: Id


class RoleArgs(MemberArgs, frozen=True):
    role: Role


class ProfileArgs(Args, frozen=True):
    about: Annotated[str, Meta(max_length=ABOUT_LENGTH_MAX, pattern=NO_NUL)]


class MeshArgs(Args, frozen=True):
    """What is not said stays."""

    connections: ConnectionPolicy | None = None
    sends_per_window: Annotated[int, Meta(ge=1, le=SENDS_PER_WINDOW_MAX)] | None = None


class TraceArgs(Args, frozen=True):
    id: Id


Json = dict[str, Any]
Handler = Callable[[Identity, Any], Awaitable[Json | None]]


@dataclass(frozen=True, slots=True)
class Operation:
    """What stands behind a name.

    A heavy one reads much: of one member they run one after the other, so that the readers are there for all. One
    that governs changes what others may do: it is for a member's own key, and has to be carried out to its end.
    """

    args: type[Args]
    handler: Handler
    is_heavy: bool = False
    governs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPorts:
    accepts: AcceptStore
    deliveries: DeliveryStore
    receipts: ReceiptStore
    directory: DirectoryStore
    topics: TopicStore
    work: WorkStore
    presence: PresenceStore


class Calls:
    def __init__(
        self, ports: CallPorts, service: AcceptService, board: Switchboard, herald: Herald, clock: Clock
    ) -> None:
        self._ports = ports
        self._herald = herald
        self._service = service
        self._board = board
        self._clock = clock
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()  # by member, while in use
        self.operations: Mapping[str, Operation] = {
            "ping": Operation(Args, self._ping),
            "directory": Operation(Args, self._directory),
            "peers": Operation(PeersArgs, self._peers, is_heavy=True),
            "presence": Operation(PresenceArgs, self._presence, is_heavy=True),
            "presence.end": Operation(EndArgs, self._presence_end),
            "profile": Operation(ProfileArgs, self._profile),
            "member.revoke": Operation(MemberArgs, self._member_revoke, governs=True),
            "member.role": Operation(RoleArgs, self._member_role, governs=True),
            "mesh.set": Operation(MeshArgs, self._mesh_set, governs=True),
            "topic.create": Operation(Named, self._topic_create),
            "topic.list": Operation(Args, self._topic_list),
            "topic.subscribe": Operation(Named, self._topic_subscribe),
            "topic.unsubscribe": Operation(Named, self._topic_unsubscribe),
            "queue.create": Operation(Named, self._queue_create),
            "queue.list": Operation(Args, self._queue_list),
            "queue.work": Operation(WorkArgs, self._queue_work),
            "queue.ack": Operation(AckArgs, self._queue_ack),
            "queue.nack": Operation(ClaimArgs, self._queue_nack),
            "queue.renew": Operation(RenewArgs, self._queue_renew),
            "receipts": Operation(ReceiptArgs, self._receipts, is_heavy=True),
            "read": Operation(ReadArgs, self._read),
            "resolve": Operation(ResolveArgs, self._resolve),
            "replay": Operation(ReplayArgs, self._replay, is_heavy=True),
            "retire": Operation(RetireArgs, self._retire),
            "trace": Operation(TraceArgs, self._trace, is_heavy=True),
        }

    async def answer(self, identity: Identity, call: Call) -> Reply:
        try:
            return Reply(call.n, await self._run(identity, call))
        except MeshError as error:
            return Reply(call.n, error=dict(problem.render(error)))
        except Exception:  # noqa: BLE001  a mistake of ours must not leave a caller without an answer
            return Reply(call.n, error=dict(problem.render(MeshError())))

    def governs(self, op: str) -> bool:
        operation = self.operations.get(op)
        return operation is not None and operation.governs

    async def _run(self, identity: Identity, call: Call) -> Json | None:
        operation = self.operations.get(call.op)
        if operation is None:
            raise NotFound("there is no such operation")
        try:
            args = msgspec.convert(call.args, operation.args)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"the arguments of {call.op}: {error}") from error
        if operation.governs and identity.session_pubkey is not None:
            raise Forbidden("a session does not govern: its member's own daemon does")
        if not operation.is_heavy:
            return await operation.handler(identity, args)
        async with self._turns.setdefault(identity.member.id, asyncio.Lock()):
            return await operation.handler(identity, args)

    # --- who is there ------------------------------------------------------------------------------

    async def _ping(self, _identity: Identity, _args: Args) -> Json:
        """Say what time it is here."""
        return {"server_time_ms": self._clock.wall_ms()}

    async def _directory(self, identity: Identity, _args: Args) -> Json:
        """List the members of the mesh, with their keys."""
        members = await self._ports.directory.members(identity.mesh.id)
        return {
            "members": [
                {
                    "member_id": member.uid,
                    "pubkey": member.pubkey,
                    "name": member.name,
                    "role": member.role,
                    "joined_at": member.joined_at,
                }
                for member in members
            ]
        }

    async def _resolve(self, identity: Identity, args: ResolveArgs) -> Json:
        """Say which keys lead to a member: its own, one it had before, or a session's."""
        return {"known": await self._ports.directory.known_keys(identity.mesh.id, args.pubkeys)}

    async def _peers(self, identity: Identity, args: PeersArgs) -> Json:
        """List the members whose lease stands; or all of them, and whether what is sent now would be seen."""
        mesh_id = identity.mesh.id
        members = await self._ports.directory.members(mesh_id)
        present = await self._ports.presence.present(mesh_id)
        backlogs = await self._ports.deliveries.backlogs(mesh_id) if args.everybody else None
        return {"peers": render_peers(members, present, backlogs)}

    async def _presence(self, identity: Identity, args: PresenceArgs) -> Json:
        """Say who came and went after a number, a page of it; without one, what the number is now."""
        return await self._herald.missed(identity.mesh.id, args.after)

    async def _presence_end(self, identity: Identity, args: EndArgs) -> Json:
        """Go at once, without a time of grace. A session ends its own presence, a member any of its own."""
        key = identity.session_pubkey if args.session_pubkey is None else args.session_pubkey
        if identity.session_pubkey is not None and key != identity.session_pubkey:
            raise Forbidden("a session ends its own presence, and no other")
        instance = identity.instance_id if key == identity.session_pubkey else args.instance_id
        settled = await self._ports.presence.end(identity.sender, key, Because.GOODBYE, instance)
        self._herald.tell(settled)
        return {"left": bool(settled.events)}

    async def _profile(self, identity: Identity, args: ProfileArgs) -> Json:
        """Keep what the caller says of itself."""
        await self._ports.directory.set_about(identity.sender, args.about)
        return {"about": args.about}

    # --- who may be there --------------------------------------------------------------------------

    async def _member_revoke(self, identity: Identity, args: MemberArgs) -> Json:
        """End a membership. For owners and admins, an owner's for owners only; anybody ends its own."""
        member = await self._ports.directory.revoke(identity.sender, args.member, self._clock.wall_ms())
        try:
            settled = await self._ports.presence.end_all(Sender(member.mesh_id, member.id), Because.REVOKED)
        except MeshError:  # it is revoked all the same, and its leases run out
            settled = Settled()
        self._board.revoke(member, identity)  # without a pause from here: who revokes itself is still answered
        self._herald.tell(settled)
        return {"name": member.name, "pubkey": member.pubkey, "revoked_at": member.revoked_at}

    async def _member_role(self, identity: Identity, args: RoleArgs) -> Json:
        """Give a member a role. For owners and admins, an owner's for owners only; anybody steps down."""
        member = await self._ports.directory.set_role(identity.sender, args.member, args.role)
        return {"name": member.name, "pubkey": member.pubkey, "role": member.role}

    async def _mesh_set(self, identity: Identity, args: MeshArgs) -> Json:
        """Change what the mesh goes by. For owners and admins."""
        mesh = await self._ports.directory.set_mesh(identity.sender, args.connections, args.sends_per_window)
        budget = Budgeted(mesh.id, mesh.sends_per_window)
        self._service.set_budget(budget)
        self._board.publish(budget)
        return {"slug": mesh.slug, "connections": mesh.policy, "sends_per_window": mesh.sends_per_window}

    # --- topics ------------------------------------------------------------------------------------

    async def _topic_create(self, identity: Identity, args: Named) -> Json:
        """Make a topic, or say that it is there."""
        name = parse_topic(args.name)
        is_new = await self._ports.topics.create_topic(identity.sender, name, self._clock.wall_ms())
        return {"name": name, "created": is_new}

    async def _topic_list(self, identity: Identity, _args: Args) -> Json:
        """List the topics of the mesh, and whether the caller is subscribed."""
        topics = await self._ports.topics.topics(identity.sender)
        return {
            "topics": [
                {
                    "name": topic.name,
                    "created_at": topic.created_at,
                    "subscribers": topic.subscribers,
                    "subscribed": topic.is_subscribed,
                }
                for topic in topics
            ]
        }

    async def _topic_subscribe(self, identity: Identity, args: Named) -> Json:
        """Deliver what is posted from now on."""
        after = await self._ports.topics.subscribe(identity.sender, parse_topic(args.name))
        return {"name": args.name, "after_history_id": after}

    async def _topic_unsubscribe(self, identity: Identity, args: Named) -> Json:
        """Deliver nothing more that is posted."""
        name = parse_topic(args.name)
        was_subscribed = await self._ports.topics.unsubscribe(identity.sender, name, self._clock.wall_ms())
        return {"name": name, "was_subscribed": was_subscribed}

    # --- queues ------------------------------------------------------------------------------------

    async def _queue_create(self, identity: Identity, args: Named) -> Json:
        """Make a work queue, or say that it is there."""
        name = parse_topic(args.name)
        is_new = await self._ports.work.create_queue(identity.sender, name, self._clock.wall_ms())
        return {"name": name, "created": is_new}

    async def _queue_list(self, identity: Identity, _args: Args) -> Json:
        """List the queues of the mesh, with how much is ready and leased."""
        return {"queues": msgspec.to_builtins(await self._ports.work.queues(identity.sender))}

    async def _queue_work(self, identity: Identity, args: WorkArgs) -> Json | None:
        """Lease the oldest message that is ready; null if there is none."""
        now = self._clock.wall_ms()
        work = await self._ports.work.work(identity.sender, parse_topic(args.name), args.lease_ms, now)
        if work is None:
            return None
        self._board.hint(work.sender_id, [work.client_message_id])
        return {
            "client_message_id": work.client_message_id,
            "broker_message_id": work.broker_message_id,
            "history_id": work.history_id,
            "from": work.sender_pubkey,
            "from_name": work.sender_name,
            "body": work.body,
            "meta": msgspec.json.decode(work.meta) if work.meta else None,
            "reply_to_id": work.reply_to or None,
            "accepted_at": work.accepted_at,
            "lease_token": work.lease_token,
            "lease_ttl_ms": work.lease_ttl_ms,
            "lease_expires_at": now + work.lease_ttl_ms,
            "returns": work.returns,
        }

    async def _queue_ack(self, identity: Identity, args: AckArgs) -> Json:
        """Say that the work is done, or that a ledger has it (`handed_over`). For the holder of the lease."""
        claim, now = _claim(identity, args), self._clock.wall_ms()
        acked = await self._ports.work.ack(claim, now, handed_over=args.handed_over)
        if acked.state is DeliveryState.ACTED:  # else the receipt says what it said before
            self._board.hint(acked.moved.sender_id, [acked.moved.client_message_id])
        return {"id": args.id, "state": acked.state}

    async def _queue_nack(self, identity: Identity, args: ClaimArgs) -> Json:
        """Give the work back. For the holder of the lease."""
        await self._ports.work.nack(_claim(identity, args), self._clock.wall_ms())
        return {"id": args.id}

    async def _queue_renew(self, identity: Identity, args: RenewArgs) -> Json:
        """Ask for more time. For the holder of the lease."""
        left_ms = await self._ports.work.renew(_claim(identity, args), args.lease_ms)
        return {"id": args.id, "lease_ttl_ms": left_ms, "lease_expires_at": self._clock.wall_ms() + left_ms}

    # --- what became of it -------------------------------------------------------------------------

    async def _receipts(self, identity: Identity, args: ReceiptArgs) -> Json:
        """Say how far messages came. For their sender: others' ids are passed over."""
        found = await self._ports.receipts.receipts(identity.sender, args.ids, args.broker_message_ids)
        return {"items": [render_receipt(receipt) for receipt in found]}

    async def _read(self, identity: Identity, args: ReadArgs) -> Json:
        """Mark messages as read. For their recipient: others' ids are passed over."""
        now = self._clock.wall_ms()
        moved = await self._ports.deliveries.mark_read(identity.sender, args.broker_message_ids, now)
        self._board.hint_all(moved)
        return {"marked": len(moved)}

    async def _replay(self, identity: Identity, args: ReplayArgs) -> Json:
        """Return a page of what the caller's inbox has acknowledged, for an inbox that was lost."""
        page = await self._ports.deliveries.replay(
            identity.sender, args.after_history_id, REPLAY_COUNT, REPLAY_BYTES
        )
        items = [msgspec.Raw(parcel.payload) for parcel in page]
        return {"items": items, "upto_history_id": page[-1].history_id if page else None}

    async def _retire(self, identity: Identity, args: RetireArgs) -> Json:
        """Close an id of the caller's: say whether this very request was accepted; it never will be any more."""
        now, id_ = self._clock.wall_ms(), parse_client_message_id(args.client_message_id)
        accept = await self._ports.accepts.retire(identity.sender, id_, now, self._service.expires_at(now))
        if accept is None:
            return {"accepted": False}
        # What was accepted does not change, so a second look is as good as one.
        stands = (await self._ports.accepts.standing(identity.member.id, [id_]))[id_]
        if stands.fingerprint.hex() != args.fingerprint:
            return {"accepted": False, "taken": True}  # another request has the id: this one never arrived
        return {
            "accepted": True,
            "broker_message_id": accept.broker_message_id,
            "history_id": accept.history_id,
            "history_available": accept.history_available,
        }

    async def _trace(self, identity: Identity, args: TraceArgs) -> Json:
        """Say how far one message came, by either id. For who sent or received it; of a queue's for everybody."""
        own = await self._ports.receipts.receipts(identity.sender, [args.id], [args.id])
        receipt = own[0] if own else await self._ports.receipts.trace(identity.sender, args.id)
        if receipt is None:
            raise NotFound("no message of yours goes by this id")
        return render_receipt(receipt)


def _claim(identity: Identity, args: ClaimArgs) -> Claim:
    return Claim(identity.sender, parse_topic(args.name), args.id, args.token)


# --- receipts on the wire: the word for a dead letter there is `dead` --------------------------------


def render_receipt(receipt: MessageReceipt) -> Json:
    return {
        "client_message_id": receipt.client_message_id,
        "broker_message_id": receipt.broker_message_id,
        "history_id": receipt.history_id,
        "kind": receipt.kind,
        "ref": receipt.ref,
        "accepted_at": receipt.accepted_at,
        "history_available": receipt.history_available,
        "state": render_state(receipt.state),
        "at": receipt.at,
        "counts": render_counts(receipt.counts),
        "recipients": [_render_recipient(recipient) for recipient in receipt.recipients],
    }


def render_state(state: str) -> str:
    return "dead" if state == DeliveryState.DEAD_LETTER else str(state)


def render_counts(counts: Mapping[str, int] | Mapping[DeliveryState, int]) -> dict[str, int]:
    return {render_state(state): count for state, count in counts.items()}


def _render_recipient(recipient: RecipientReceipt) -> Json:
    rendered: Json = msgspec.to_builtins(recipient)
    return {**rendered, "state": render_state(recipient.state)}
