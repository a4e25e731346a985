"""Everything that the oracle keeps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from claudemesh.broker.model import (
    NO_RECIPIENT,
    Bulletin,
    DeliveryState,
    Member,
    Mesh,
    Message,
    Sender,
    StandingMessage,
)
from claudemesh.broker.presence.model import PresenceEvent, StandingLease
from claudemesh.kernel.errors import Revoked
from claudemesh.kernel.lease import NEVER_HELD, Lease


@dataclass
class Slip:
    """How far a message came at one recipient."""

    delivered_at: int | None = None
    read_at: int | None = None
    acted_at: int | None = None
    dead_at: int | None = None
    dead_reason: str | None = None
    attempts: int = 0

    @property
    def is_open(self) -> bool:
        return self.delivered_at is None and self.dead_at is None

    @property
    def state(self) -> DeliveryState:
        if self.dead_at is not None:
            return DeliveryState.DEAD_LETTER
        if self.delivered_at is None:
            return DeliveryState.ACCEPTED
        if self.acted_at is not None:
            return DeliveryState.ACTED
        return DeliveryState.DELIVERED if self.read_at is None else DeliveryState.READ

    def bury(self, now_ms: int, reason: str) -> None:
        self.dead_at, self.dead_reason = now_ms, reason


@dataclass
class Job:
    """What becomes of a queue's message."""

    lease: Lease = NEVER_HELD
    returns: int = 0
    is_settled: bool = False  # nobody will lease it again
    is_acked: bool = False  # as done or handed over: its slip says which


@dataclass
class Kept:
    """A message that is kept, with all that belongs to it."""

    mesh_id: int
    history_id: int
    broker_message_id: str
    sender_id: int
    message: Message
    accepted_at: int
    to_session: str | None
    slips: dict[int, Slip]  # by recipient; of a queue's message the one of nobody
    job: Job | None = None

    @property
    def worked(self) -> tuple[Slip, Job]:
        assert self.job is not None, "it is not a queue's"
        return self.slips[NO_RECIPIENT], self.job


@dataclass
class Used:
    """An id that was used."""

    mesh_id: int
    standing: StandingMessage
    expires_at: int | None


@dataclass(frozen=True)
class Chair:
    """A seat that was given."""

    token: int
    broker: int
    sender: Sender
    session_pubkey: str | None
    is_presence_only: bool


@dataclass
class Stay:
    """A lease."""

    uid: str
    sender: Sender
    session_pubkey: str | None
    began_at: int
    instance_id: str = ""
    is_presence_only: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    token: int = 0
    seat: int | None = None
    broker: int | None = None  # that gave the seat
    until: int | None = None  # only without one
    ended_at: int | None = None

    @property
    def key(self) -> tuple[Sender, str | None]:
        return self.sender, self.session_pubkey

    def as_standing(self) -> StandingLease:
        return StandingLease(
            id=id(self),
            uid=self.uid,
            instance_id=self.instance_id,
            is_presence_only=self.is_presence_only,
            token=self.token,
            seat=self.seat,
            lease_until=self.until,
        )


@dataclass
class TopicBook:
    created_at: int
    subscribers: dict[int, int] = field(default_factory=dict)  # member -> the last history id before


@dataclass
class World:
    # who
    meshes: dict[int, Mesh] = field(default_factory=dict)
    made: dict[tuple[str, str], int] = field(default_factory=dict)  # slug and key of its maker -> mesh
    members: dict[int, Member] = field(default_factory=dict)
    names: dict[tuple[int, str], int] = field(default_factory=dict)  # mesh and folded name -> member
    keys: dict[tuple[int, str], int] = field(default_factory=dict)  # mesh and key -> member
    session_keys: set[tuple[int, str]] = field(default_factory=set)
    invited: dict[tuple[int, str], int] = field(default_factory=dict)  # mesh and invite -> how many came by it
    # where to
    topics: dict[tuple[int, str], TopicBook] = field(default_factory=dict)
    queues: dict[tuple[int, str], int] = field(default_factory=dict)  # mesh and name -> when it was made
    # what
    last: dict[int, int] = field(default_factory=dict)  # mesh -> its last history id
    used: dict[tuple[int, str], Used] = field(default_factory=dict)  # sender and client message id
    kept: dict[tuple[int, int], Kept] = field(default_factory=dict)  # mesh and history id
    read_at: dict[int, int] = field(default_factory=dict)  # member -> when it last marked something as read
    # who is there
    stays: list[Stay] = field(default_factory=list)  # in the order in which they began
    comings: list[PresenceEvent] = field(default_factory=list)  # and goings, of all meshes
    seqs: dict[int, int] = field(default_factory=dict)  # mesh -> the number of the last of them
    # the brokers
    seed: bytes | None = None
    resume_seeds: list[bytes] = field(default_factory=list)
    epoch: int = 0
    chairs: list[Chair] = field(default_factory=list)  # the newest last
    tokens: int = 0
    brokers: dict[int, int] = field(default_factory=dict)  # broker -> until when it is taken for alive
    brokers_ever: int = 0
    listeners: dict[int, tuple[Callable[[Bulletin], None], Callable[[], None]]] = field(default_factory=dict)
    lease_now: Callable[[], int] = lambda: 0  # ms during which a broker ran
    wall_now: Callable[[], int] = lambda: 0
    lease_kept: int = 0  # where that stood when a broker last said that it lives

    def check_in_force(self, sender: Sender) -> None:
        """Raise Revoked for whoever is no member of the mesh, or no more."""
        member = self.members.get(sender.member_id)
        if member is None or member.mesh_id != sender.mesh_id or member.revoked_at is not None:
            raise Revoked

    def open_stays(self) -> list[Stay]:
        """Return the leases that have not ended."""
        return [stay for stay in self.stays if stay.ended_at is None]

    def of_mesh(self, mesh_id: int) -> list[Kept]:
        """Return what is kept of a mesh, in the order of its history."""
        return [self.kept[key] for key in sorted(self.kept) if key[0] == mesh_id]

    def find(self, broker_message_id: str) -> Kept | None:
        return next((one for one in self.kept.values() if one.broker_message_id == broker_message_id), None)

    def to(self, recipient: Sender) -> Iterator[tuple[Kept, Slip]]:
        """Yield what was sent to a member, in the order of history."""
        for one in self.of_mesh(recipient.mesh_id):
            if recipient.member_id in one.slips:
                yield one, one.slips[recipient.member_id]
