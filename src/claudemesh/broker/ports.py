"""What the broker needs of its stores and its limiter. Batches in, outcomes out, in the words of the domain.

Every write returns after its commit is durable. A call that is made first is applied first, where the calls come
from one task (each submits in its first step).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from claudemesh.broker.model import (
    AcceptOutcome,
    Acked,
    Backlog,
    Batch,
    Beat,
    Bulletin,
    Claim,
    ConnectionPolicy,
    Duplicate,
    Member,
    Mesh,
    MessageReceipt,
    Moved,
    Newcomer,
    Page,
    Parcel,
    PlanPage,
    PlanSwept,
    Progress,
    Queue,
    Role,
    Seat,
    Sender,
    StandingMessage,
    SweepPage,
    Swept,
    Topic,
    Violation,
    Work,
)
from claudemesh.broker.presence.model import Arrival, Because, Departure, PresenceEvent, Present, Seated, Settled


class AlreadyConnected(Exception):
    """The mesh prefers the oldest instance, and one stands: this one."""

    def __init__(self, instance_id: str = "") -> None:
        super().__init__(instance_id)
        self.instance_id = instance_id


class KeyTaken(Exception):
    """The key of the session is somebody else's."""


class NotResumed(Exception):
    """What the hello wanted to resume is over, and nothing else in it proves who speaks."""


class AcceptStore(Protocol):
    async def standing(self, sender_id: int, client_message_ids: Sequence[str]) -> dict[str, StandingMessage]:
        """Return what stands under those of the ids that were used. Sees all that was answered before."""

    async def accept(self, batch: Batch) -> list[AcceptOutcome]:
        """Apply the messages in their order, each with its own outcome, all that are taken in one commit.

        Of one id twice the second sees the first. One that fails unexpectedly fails alone; behind it, and behind
        any other refusal that may pass, messages of the same destination are deferred. History ids are gapless in
        the order of commits.
        """

    async def retire(
        self, sender: Sender, client_message_id: str, now_ms: int, expires_at: int | None
    ) -> Duplicate | None:
        """Return the accept if there was one; else give the id up for ever, and return None."""


class DeliveryStore(Protocol):
    async def page(self, seat: Seat, after_history_id: int, count_max: int, bytes_max: int) -> Page:
        """Return what waits for the seat after that id, in history order; nothing once the seat is another's.

        A session's seat gets what names its key; the member's own all but what names a session that has a seat.
        `upto` is the last id that was looked at, and the given one if there was none. What is committed later has
        a greater id: who goes on from there misses none. At least one is looked at, if any is open.
        """

    def prime(self, mesh_id: int, parcels: Sequence[Parcel]) -> None:
        """Take what was committed just now: its recipients will ask for it, and then it need not be read."""

    async def replay(
        self, recipient: Sender, after_history_id: int, count_max: int, bytes_max: int
    ) -> list[Parcel]:
        """As `page`, of what the recipient's inbox has acknowledged and is still kept: for one that was lost."""

    async def ack(self, recipient: Sender, history_ids: Sequence[int], now_ms: int) -> None:
        """Note that the recipient's inbox holds these. Idempotent; ids of others are passed over."""

    async def count_attempts(self, seat: Seat, history_ids: Sequence[int], now_ms: int) -> list[int]:
        """Count a failed attempt for those still open; return the ids that became dead letters by it.

        Nothing is counted once the seat is another's.
        """

    async def mark_read(self, recipient: Sender, broker_message_ids: Sequence[str], now_ms: int) -> list[Moved]:
        """Note an explicit mark of the reader; return those of the messages that are this recipient's."""

    async def depth(self) -> int:
        """Count the deliveries that wait, of all members."""

    async def backlogs(self, mesh_id: int) -> dict[int, Backlog]:
        """Return of each member of a mesh what waits for it, and when it last marked something as read."""


class ReceiptStore(Protocol):
    async def receipts(
        self, sender: Sender, client_message_ids: Sequence[str], broker_message_ids: Sequence[str]
    ) -> list[MessageReceipt]:
        """Return what is known of this sender's own messages; ids of others are passed over."""

    async def progress(self, sender: Sender, client_message_ids: Sequence[str]) -> list[Progress]:
        """As `receipts`, in short: without the recipients, and only of what has any."""

    async def trace(self, member: Sender, broker_message_id: str) -> MessageReceipt | None:
        """As `receipts`, of one message that the member sent or received; None if it did neither."""


class DirectoryStore(Protocol):
    async def create_mesh(self, uid: str, slug: str, owner: Newcomer) -> tuple[Mesh, Member]:
        """Make a mesh with its owner; of the same slug and key the one that stands. Raises Revoked."""

    async def join(self, mesh_id: int, newcomer: Newcomer, invite_id: str, inviter: str, uses_max: int) -> Member:
        """Add a member by an invite; a key that is a member already is answered as it stands.

        Raises Revoked if that member was revoked, NameTaken, or InviteRefused if the inviter may not invite (any
        more) or the uses are used up.
        """

    async def mesh(self, uid: str) -> Mesh | None: ...

    async def member(self, mesh_id: int, pubkey: str) -> Member | None:
        """Return the member whose key in force this is, also if it is revoked."""

    async def members(self, mesh_id: int) -> list[Member]: ...

    async def known_keys(self, mesh_id: int, pubkeys: Sequence[str]) -> list[str]:
        """Return those of the keys that lead to a member: in force, retired, or of a session."""

    async def revoke(self, actor: Sender, key_or_name: str, now_ms: int) -> Member:
        """End a membership, another's or one's own; said again it is as it was.

        Its key and its name stay taken, its subscriptions and seats end, what it sent or waits for stays. Raises
        NotFound, Forbidden, or Revoked if the actor itself was.
        """

    async def set_role(self, actor: Sender, key_or_name: str, role: Role) -> Member:
        """Make the member this from now on. Raises NotFound, Forbidden or Revoked."""

    async def set_about(self, sender: Sender, about: str) -> None:
        """Keep what the member says of itself. Raises Revoked."""

    async def set_mesh(self, actor: Sender, policy: ConnectionPolicy | None, sends_per_window: int | None) -> Mesh:
        """Change what is not None. Raises Forbidden or Revoked."""


class TopicStore(Protocol):
    """Every write raises Revoked for a member who was revoked since its hello."""

    async def create_topic(self, sender: Sender, name: str, now_ms: int) -> bool:
        """Make it if there is none; say whether it is new."""

    async def topics(self, sender: Sender) -> list[Topic]: ...

    async def subscribe(self, sender: Sender, name: str) -> int:
        """Deliver from the next message on; return the last history id before. Raises DestinationNotFound."""

    async def unsubscribe(self, sender: Sender, name: str, now_ms: int) -> bool:
        """Say whether there was a subscription. What was delivered before stays. Raises DestinationNotFound."""


class WorkStore(Protocol):
    """Work queues. Leases are judged by the store's own clock: a server's, or one that knows no steps.

    Every write of a member raises Revoked if it was revoked since its hello: its leases run out.
    """

    async def create_queue(self, sender: Sender, name: str, now_ms: int) -> bool: ...

    async def queues(self, sender: Sender) -> list[Queue]: ...

    async def work(self, sender: Sender, queue: str, lease_ttl_ms: int, now_ms: int) -> Work | None:
        """Lease the oldest message that is ready, after taking back what has expired."""

    async def ack(self, claim: Claim, now_ms: int, *, handed_over: bool = False) -> Acked:
        """Note that the work is done, or handed over to a ledger. Raises LeaseLost if the claim does not hold.

        Either way nobody leases it again, and said again it holds again. What is handed over stays delivered, until
        the worker replies to it or acks it as done, at any time; what is done stays done.
        """

    async def nack(self, claim: Claim, now_ms: int) -> None:
        """Give it back; after too many times it is a dead letter. Raises LeaseLost."""

    async def renew(self, claim: Claim, lease_ttl_ms: int) -> int:
        """Return how much of the lease is left now, in ms. Raises LeaseLost."""

    async def expire(self, now_ms: int) -> int:
        """Take back what has expired, in every queue; return how many that was."""


class UpkeepStore(Protocol):
    async def broker_seed(self, fresh: bytes) -> bytes:
        """Return the seed of the broker's key; at the first start it is the fresh one."""

    async def resume_seeds(self, fresh: bytes) -> list[bytes]:
        """Return the seeds of the keys of resume tokens, the one in force first; the fresh one if there is none."""

    async def rotate_resume_seed(self, fresh: bytes) -> list[bytes]:
        """Make the fresh one the one in force; the one before it stays good, and no other."""

    async def check(self) -> list[Violation]:
        """Compare all rows of all accepts with each other; nothing, if every accept is whole."""

    async def begin_epoch(self, now_ms: int) -> int:
        """Pass over history ids that a lost part of the past may have used; return the number of the epoch.

        For a store that was restored from a backup: every mesh goes on `policy.EPOCH_SKIP` further, with its
        messages and with those who come and go.
        """

    async def meshes(self) -> list[int]: ...

    async def sweep_messages(self, page: SweepPage) -> Swept:
        """Delete what of the page was accepted before its instant, leaving tombstones."""

    async def sweep_planned(self, page: PlanPage) -> PlanSwept:
        """Delete those of the page that `sweep_messages` would delete now."""

    async def sweep_ids(self, now_ms: int, limit: int) -> int:
        """Forget ids that have expired and whose message is gone; return how many."""

    async def sweep_events(self, before_ms: int, limit: int) -> int:
        """Forget the oldest events of deliveries, up to one of a message that is kept or of a later instant."""


class SeatStore(Protocol):
    """Which connection gets what waits for a key, over all brokers of one store; and the lease that it carries."""

    async def start(self) -> None:
        """Begin: what was online when this store's last broker ended is in grace from now on, once."""

    async def take(self, arrival: Arrival) -> Seated:
        """Give the connection a seat, newer than all that stand under its key, and its lease (`judge_attach`).

        Seats that have to go for it are gone with this, and returned, whichever broker gave them. From now on the
        key of a session leads to its member. Raises AlreadyConnected, NotResumed, KeyTaken, Revoked, or
        TooManySessions for one more than `policy.SESSIONS_MAX`; then nothing has changed.
        """

    async def leave(self, departures: Collection[Departure]) -> list[int]:
        """Give up these seats, if they stand; return the members whose they were.

        A lease that one of them carries is in grace from now on: for a lease's time after the last sign of life.
        """

    async def standing(self) -> set[int]:
        """Return the tokens of all seats that this broker gave and that still stand."""

    async def beat(self) -> Beat:
        """Say that this broker lives, and take those that did not for dead."""


class PresenceStore(Protocol):
    """Leases that outlive their sockets. Each change is noted in its commit; who comes or goes gets a number."""

    def stand_still(self, ms: int) -> None:
        """Take note that this process did not run for so long: for leases in grace no time has passed.

        A store whose brokers share a clock knows by itself how long none of them looked.
        """

    async def settle(self) -> Settled:
        """End leases that ran out, a page of them: of all brokers of a store exactly one is told of each.

        A lease whose broker is gone gets, once, a whole lease's time from now. For as long as no broker looked, no
        time has passed for a lease in grace.
        """

    async def end(
        self, sender: Sender, session_pubkey: str | None, because: Because, instance_id: str | None = None
    ) -> Settled:
        """End the leases of a key now, or of one instance of it: its holder has said that it goes."""

    async def end_all(self, sender: Sender, because: Because) -> Settled:
        """End all leases of a member now, its own and those of its sessions."""

    async def present(self, mesh_id: int) -> list[Present]:
        """Return the leases of a mesh that stand, in the order in which they began."""

    async def latest(self, mesh_id: int) -> int:
        """Return the number of the last event of a mesh; 0 if there was none."""

    async def events(self, mesh_id: int, after_seq: int, limit: int) -> list[PresenceEvent]:
        """Return who came and went after a number, in order, of what is still kept."""

    async def sweep(self, before_ms: int, limit: int) -> int:
        """Forget what was noted before an instant, and the leases that ended before it; return how many rows."""


class Bus(Protocol):
    """What the brokers of one store tell each other. Hints: some may be lost, and the store is the truth."""

    @property
    def is_alone(self) -> bool:
        """Whether no other broker can ever be on this store."""

    def publish(self, bulletin: Bulletin) -> None:
        """Tell the others, in a moment and together with what else there is; returns at once."""

    def listen(self, heard: Callable[[Bulletin], None], missed: Callable[[], None]) -> None:
        """Call `heard` with what others tell; `missed` when something may have been told that was not heard."""


class Stores(Protocol):
    """All of them over one database."""

    @property
    def accepts(self) -> AcceptStore: ...
    @property
    def deliveries(self) -> DeliveryStore: ...
    @property
    def receipts(self) -> ReceiptStore: ...
    @property
    def directory(self) -> DirectoryStore: ...
    @property
    def topics(self) -> TopicStore: ...
    @property
    def work(self) -> WorkStore: ...
    @property
    def upkeep(self) -> UpkeepStore: ...
    @property
    def seats(self) -> SeatStore: ...
    @property
    def presence(self) -> PresenceStore: ...
    @property
    def bus(self) -> Bus: ...

    async def aclose(self) -> None: ...


class Limiter(Protocol):
    async def consume(
        self, mesh: str, sender: str, client_message_ids: Sequence[str], limit: int
    ) -> list[int | None]:
        """Take one unit for each id, unless it was taken for that id in this window: idempotent, atomic.

        None is a yes; a number is a no, and says in how many ms to ask again. A no takes nothing. Mesh and sender
        go by their ULIDs, which no other broker's store has. Raises LimiterUnavailable.
        """

    async def aclose(self) -> None: ...
