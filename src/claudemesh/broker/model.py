"""The values of the broker.

Meshes and members have two ids: a number of the store's own, small because every delivery row carries it, and the
`uid`, a ULID, which is what the wire calls mesh_id and member_id. Numbers never leave the broker.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.fingerprint import Fingerprint, Kind, Priority

NO_RECIPIENT: Final = 0  # of the one delivery row of a queue's message, which belongs to whoever leases it


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class DedupeState(StrEnum):
    """What an id that was used stands for."""

    ACCEPTED = "accepted"
    RETIRED = "retired"  # its sender gave it up before it was accepted


class DeliveryState(StrEnum):
    """How far a message came at one recipient; the later ones include the earlier."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"  # the recipient's inbox holds it; of a queue's message: it is leased, or handed over
    READ = "read"
    ACTED = "acted"  # a reply refers to it; of a queue's message: its worker acked it, or replied later
    DEAD_LETTER = "dead_letter"


class ConnectionPolicy(StrEnum):
    """What a second instance under a member's key means."""

    PREFER_NEWEST = "prefer_newest"
    PREFER_OLDEST = "prefer_oldest"
    ALLOW_CONCURRENT = "allow_concurrent"


# --- who -------------------------------------------------------------------------------------------


class Mesh(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    uid: str
    slug: str
    policy: ConnectionPolicy = ConnectionPolicy.PREFER_NEWEST
    sends_per_window: int | None = None  # None: the broker's own default


class Member(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    uid: str
    mesh_id: int
    pubkey: str
    name: str
    role: Role
    about: str = ""  # what it says of itself
    joined_at: int
    revoked_at: int | None = None


class Newcomer(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants to become a member. `name_folded` is what must be unique in the mesh."""

    uid: str
    pubkey: str
    name: str
    name_folded: str
    now_ms: int

    def become_member(self, id_: int, mesh_id: int, role: Role) -> Member:
        return Member(
            id=id_,
            uid=self.uid,
            mesh_id=mesh_id,
            pubkey=self.pubkey,
            name=self.name,
            role=role,
            joined_at=self.now_ms,
        )


class Identity(msgspec.Struct, frozen=True):
    """Who speaks on a connection, as proven by its hello."""

    mesh: Mesh
    member: Member
    instance_id: str
    session_pubkey: str | None = None
    expires_at: int | None = None  # wall ms: until when its member vouches for the session
    is_presence_only: bool = False  # it shows that a session is there, and gets nothing
    info: dict[str, Any] = {}  # what the session says of itself

    @property
    def sender(self) -> "Sender":
        return Sender(self.mesh.id, self.member.id)


class Sender(msgspec.Struct, frozen=True):
    """A member as the stores know it."""

    mesh_id: int
    member_id: int


# --- a message on its way in -----------------------------------------------------------------------


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message as it was received, with the fingerprint that the broker computed itself."""

    client_message_id: str
    kind: Kind
    ref: str
    body: str
    fingerprint: Fingerprint
    reply_to: str = ""
    priority: Priority = Priority.NEXT
    meta: str = ""  # as JSON; empty for none
    mentions: tuple[str, ...] = ()
    encoding: str = "plain"
    sender_seq: int | None = None  # reserved

    @property
    def destination(self) -> tuple[Kind, str]:
        return self.kind, self.ref


class Batch(msgspec.Struct, frozen=True):
    """Messages of one sender, in the order in which they are to be applied."""

    sender: Sender
    messages: tuple[Message, ...]
    now_ms: int
    expires_at: int | None  # of their dedupe rows; None for never


class StandingMessage(msgspec.Struct, frozen=True):
    """What a dedupe row says."""

    state: DedupeState
    fingerprint: Fingerprint
    broker_message_id: str | None
    history_id: int | None
    history_available: bool
    first_seen_at: int


class Moved(msgspec.Struct, frozen=True):
    """A message of some sender came further: what the sender may be told."""

    sender_id: int
    client_message_id: str


class Accepted(msgspec.Struct, frozen=True):
    """Committed. `recipients` now have a delivery waiting; `answered` is the message that this one replied to."""

    broker_message_id: str
    history_id: int
    recipients: tuple[int, ...] = ()
    answered: Moved | None = None
    to_session: str | None = None


class Fresh(msgspec.Struct, frozen=True):
    """What was committed just now, with all that its recipients are told: it need not be looked up."""

    author: Member
    message: Message
    accepted: Accepted
    accepted_at: int


class Duplicate(msgspec.Struct, frozen=True):
    """The same request was accepted before."""

    broker_message_id: str
    history_id: int
    history_available: bool
    first_seen_at: int


AcceptOutcome = Accepted | Duplicate | MeshError

# --- a message on its way out ----------------------------------------------------------------------


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message as its recipient gets it; the same for all recipients."""

    history_id: int
    broker_message_id: str
    client_message_id: str
    sender_id: str  # the sender's uid
    sender_pubkey: str
    sender_name: str
    kind: Kind
    ref: str
    body: str
    accepted_at: int
    reply_to: str
    priority: Priority
    meta: str
    encoding: str
    to_session: str | None


class Parcel(msgspec.Struct, frozen=True):
    """A delivery, rendered once for all its recipients. `sender_id` is the store's number, for the way back."""

    history_id: int
    sender_id: int
    client_message_id: str
    payload: bytes
    to_session: str | None = None


class Page(msgspec.Struct, frozen=True):
    """A part of what waits. Everything open up to `upto` was looked at; what of it is another's is not here."""

    parcels: list[Parcel]
    upto: int


class Backlog(msgspec.Struct, frozen=True):
    """What waits for a member. `unread` is held by its inbox, and counted up to a bound."""

    waiting: int = 0
    unread: int = 0
    last_read_at: int | None = None


# --- who gets it -----------------------------------------------------------------------------------


class Meeting(StrEnum):
    """What becomes of the connection that stands when another comes under the same key."""

    REPLACED = "replaced"  # the same instance came back: the old socket is a leftover
    SUPERSEDED = "superseded"  # another instance took over
    REFUSED = "refused"  # it stays, and the new one goes
    SHARED = "shared"  # both stay; the newer one gets the deliveries


class Seat(msgspec.Struct, frozen=True):
    """The right to what waits for a key: a member's own, or that of one of its sessions.

    A lease on all its deliveries: of several seats of a key the one with the greatest token holds it, whichever
    broker gave it, and it ends with its broker.
    """

    sender: Sender
    session_pubkey: str | None
    token: int


class Displaced(msgspec.Struct, frozen=True):
    """A connection, of whichever broker, that has to go, since a newer one came under its key."""

    token: int
    meeting: Meeting


class Beat(msgspec.Struct, frozen=True):
    """What a broker learns when it says that it lives."""

    is_keeper: bool  # it is the one that sweeps and checks
    is_forgotten: bool = False  # it was silent for too long: its seats are gone, and all its connections have to be
    bereft: list[int] = []  # members who lost seats with a broker that died


# --- what brokers tell each other, as hints only ---------------------------------------------------


class Woken(msgspec.Struct, frozen=True, tag="woken"):
    """There may be something to deliver to these members."""

    members: list[int]


class Hinted(msgspec.Struct, frozen=True, tag="hinted"):
    """Something moved for these messages of a member's own."""

    member: int
    client_message_ids: list[str]


class Rewound(msgspec.Struct, frozen=True, tag="rewound"):
    """Sessions of these members are gone: what named them is the members' now."""

    members: list[int]


class Unseated(msgspec.Struct, frozen=True, tag="unseated"):
    """The connection with this seat has to go."""

    token: int
    meeting: Meeting


class Dismissed(msgspec.Struct, frozen=True, tag="dismissed"):
    """The connections with these seats have no lease any more, and have to go."""

    tokens: list[int]


class Announced(msgspec.Struct, frozen=True, tag="announced"):
    """Something happened in a mesh that everybody who is connected is told."""

    mesh: int
    event: str
    data: dict[str, Any]


class Expelled(msgspec.Struct, frozen=True, tag="expelled"):
    """A member was revoked: its connections end."""

    member: int


class Budgeted(msgspec.Struct, frozen=True, tag="budgeted"):
    """A mesh goes by another budget from now on."""

    mesh: int
    sends_per_window: int | None


Bulletin = Woken | Hinted | Rewound | Unseated | Dismissed | Announced | Expelled | Budgeted

# --- work queues -----------------------------------------------------------------------------------


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One leased message of a queue. `sender_id` is the store's number."""

    sender_id: int
    broker_message_id: str
    client_message_id: str
    history_id: int
    sender_pubkey: str
    sender_name: str
    body: str
    meta: str
    reply_to: str
    accepted_at: int
    lease_token: int
    lease_ttl_ms: int  # what is left of it: the worker counts from now, on its own clock
    returns: int  # how often it came back before


class Claim(msgspec.Struct, frozen=True):
    """What a worker says it holds."""

    sender: Sender
    queue: str
    broker_message_id: str
    token: int


class Acked(msgspec.Struct, frozen=True):
    """What an ack came to: nobody will lease the message again. It is acted now, or handed over and delivered."""

    moved: Moved
    state: DeliveryState


# --- receipts --------------------------------------------------------------------------------------


class RecipientReceipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a message came at one recipient, and when. A queue's message has no name until it is leased."""

    name: str | None
    pubkey: str | None
    state: DeliveryState
    delivered_at: int | None = None
    read_at: int | None = None
    acted_at: int | None = None
    dead_at: int | None = None
    dead_reason: str | None = None
    attempts: int = 0
    handed_over: bool = False  # of a queue's message: a ledger has it, and its worker has not answered yet


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt without its recipients: what a hint says."""

    client_message_id: str
    broker_message_id: str
    state: DeliveryState
    at: int
    counts: dict[DeliveryState, int]


class MessageReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one message: the least advanced recipient, how many are where, and each by itself."""

    client_message_id: str
    broker_message_id: str
    history_id: int
    kind: Kind | None  # None, as the ref, when it is no longer kept
    ref: str | None
    accepted_at: int
    history_available: bool
    state: DeliveryState
    at: int
    counts: dict[str, int]
    recipients: list[RecipientReceipt]


# --- topics and queues -----------------------------------------------------------------------------


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    created_at: int
    subscribers: int
    is_subscribed: bool


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    created_at: int
    ready: int
    leased: int


# --- upkeep ----------------------------------------------------------------------------------------


class Violation(msgspec.Struct, frozen=True):
    """One id whose rows do not agree, and which of them are missing."""

    client_message_id: str | None
    sender: str | None  # the member's uid
    missing: list[str]


class SweepPage(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a mesh's oldest messages is looked at, and what of it goes.

    What somebody still waits for becomes a dead letter first, and goes once it was one before `buried_before_ms`.
    """

    mesh_id: int
    after_history_id: int
    before_ms: int
    buried_before_ms: int
    now_ms: int
    limit: int


class PlanPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages of a mesh that a plan says are too old: history ids and broker message ids. As `SweepPage`."""

    mesh_id: int
    planned: list[tuple[int, str]]
    before_ms: int
    buried_before_ms: int
    now_ms: int


class PlanSwept(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the messages of such a page: each is counted once."""

    deleted: int = 0
    refused: int = 0  # it is not too old, or it is another message
    gone: int = 0  # it is not there, or no more
    buried: int = 0  # somebody waited for it: it is a dead letter, and goes when it was one for long enough


class Swept(msgspec.Struct, frozen=True):
    """What one page of the retention sweep did, and where the next one goes on."""

    messages: int
    dead_letters: int
    after_history_id: int
    is_done: bool
