"""What a program is given: values, parsed from a daemon's answers. Nothing here asks anybody.

Messages, receipts and work have methods that ask; those are added where the asking is done (`mesh`, `async_mesh`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

from claudemesh.kernel.errors import DependencyError, MeshError

Json = dict[str, Any]
Priority = Literal["now", "next", "low"]
State = Literal["accepted", "delivered", "read", "acted"]

TIMEOUT_S: Final = 30.0
STATES: Final = ("queued", "accepted", "delivered", "read", "acted")  # each includes those before it

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


# --- what is sent ----------------------------------------------------------------------------------


class ReplyOptions(TypedDict, total=False):
    """What may be said of any message that is sent, by name: how it alerts, what travels along, its id."""

    priority: Priority | None
    meta: Mapping[str, Any] | None
    id: str | None
    mentions: Sequence[str]


class SendOptions(ReplyOptions, total=False):
    """As ReplyOptions, and which message it answers: a broker message id."""

    reply_to: str | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to send, for `send_many`. Without an `id` it gets one before the first try."""

    to: str
    message: str
    _: KW_ONLY
    priority: Priority | None = None
    meta: Mapping[str, Any] | None = None
    reply_to: str | None = None
    id: str | None = None
    mentions: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class SendReceipt:
    """What a daemon said when it had made a send durable, and how far the message has come as far as is known.

    `status` (queued, inflight or accepted) and `duplicate` (the id stood before) are of that answer, and stay.
    `state` is the last known of queued, accepted, delivered, read, acted, dead and aborted.
    """

    client_message_id: str
    status: str
    duplicate: bool = False
    broker_message_id: str | None = None
    history_id: int | None = None
    state: str = "queued"

    def note(self, life: "Trace") -> None:
        """Take over what a trace tells."""
        self.state = life.state
        self.broker_message_id = life.broker_message_id or self.broker_message_id

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Take over the state that an error tells of, too."""
        try:
            yield
        except MeshError as error:
            self.state = str(error.extras.get("state", self.state))
            raise


# --- what became of it -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    state: str
    at: datetime | None
    evidence: str
    recipient: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The life of one message, each step with what it rests on."""

    client_message_id: str
    broker_message_id: str | None
    direction: str  # sent or received
    state: str
    steps: tuple[Step, ...]
    counts: Mapping[str, int] = field(hash=False)  # recipients by state
    is_current: bool  # whether the broker was asked just now


# --- what arrives ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    from_: str  # the sender's public key
    from_name: str
    body: str
    meta: Mapping[str, Any] = field(hash=False)
    topic: str | None
    priority: str
    client_message_id: str
    broker_message_id: str
    history_id: int
    reply_to_id: str | None
    accepted_at: datetime
    received_at: datetime
    read_at: datetime | None
    to_session: str | None = None  # the key of the session that was meant, if one was
    cursor: str  # where to go on: `messages(after=…)`, `events(after=…)`

    def draft_reply(self, message: str, **options: Unpack[ReplyOptions]) -> Draft:
        to = self.from_ if self.topic is None else f"#{self.topic}"
        return Draft(to, message, reply_to=self.broker_message_id, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedEvent:
    """Something that happened. `id` is where to go on: `events(after=…)`."""

    id: str
    type: str
    at: datetime
    data: Mapping[str, Any] = field(hash=False)


@dataclass(slots=True, kw_only=True, eq=False)
class LeasedWork:
    """A message of a queue, ours until its lease ends. `is_settled` once acked, handed over or given back."""

    queue: str
    from_: str
    from_name: str
    body: str
    meta: Mapping[str, Any]
    client_message_id: str
    broker_message_id: str
    reply_to_id: str | None
    lease_token: int
    lease_expires_at: datetime
    is_settled: bool = False

    @property
    def claim(self) -> tuple[str, str, int]:
        return self.queue, self.broker_message_id, self.lease_token

    def draft_reply(self, message: str, **options: Unpack[ReplyOptions]) -> Draft:
        return Draft(self.from_, message, reply_to=self.broker_message_id, **options)

    @staticmethod
    def explain_kept(failed: MeshError) -> str:
        return f"and the work was not given back ({failed}): it comes back when its lease ends"


# --- who and what is there -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSession:
    """A process of a member, as it says itself."""

    session_pubkey: str
    display_name: str
    since: datetime | None
    more: Mapping[str, Any] = field(repr=False, compare=False)  # the answer as it came


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A member. `reach` is told with `all`: a message sent now is seen `now`, `on_return`, or it `waits`."""

    name: str
    pubkey: str
    status: str
    sessions: tuple[PeerSession, ...] = ()
    reach: str | None = None
    unread: int | None = None
    last_read_at: datetime | None = None
    more: Mapping[str, Any] = field(repr=False, compare=False)  # the answer as it came


@dataclass(slots=True, kw_only=True, eq=False)
class RegisteredSession:
    """A process that the others see as a session. `status` and `unread` are of the time it was registered."""

    session_pubkey: str
    presence_id: str | None  # None: the broker has not heard of it yet
    status: str
    unread: int = 0  # messages that named it, and that nobody has read yet
    token: str = field(repr=False)
    is_closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    subscribers: int
    is_subscribed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    mesh: str
    member: str
    member_pubkey: str
    is_connected: bool  # to the broker; the daemon accepts and keeps without it
    is_degraded: bool
    queue_depth: int
    inflight: int
    lag_ms: int
    uptime_s: int
    daemon_version: str
    broker_version: str | None
    more: Mapping[str, Any] = field(repr=False, compare=False)


# --- parsing ---------------------------------------------------------------------------------------


@contextmanager
def reading(what: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DependencyError(f"this SDK does not understand the daemon's {what}: {error!r}") from error


def parse_time(value: object) -> datetime:
    """Read an instant as the daemon writes it, RFC 3339, or as the broker does, in ms."""
    if isinstance(value, int):
        return _EPOCH + timedelta(milliseconds=value)
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not an instant")
    return datetime.fromisoformat(value)


def parse_receipt(make: Callable[..., T], answer: Json) -> T:
    with reading("answer to a send"):
        status: str = answer["status"]
        return make(
            client_message_id=answer["client_message_id"],
            status=status,
            duplicate=answer.get("duplicate", False),
            broker_message_id=answer.get("broker_message_id"),
            history_id=answer.get("history_id"),
            state="accepted" if status == "accepted" else "queued",
        )


def parse_trace(answer: Json) -> Trace:
    with reading("trace"):
        return Trace(
            client_message_id=answer["client_message_id"],
            broker_message_id=answer.get("broker_message_id"),
            direction=answer.get("direction", "sent"),
            state=answer["state"],
            steps=tuple(
                Step(step["state"], _time_or_none(step.get("at")), step["evidence"], step.get("recipient"))
                for step in answer["steps"]
            ),
            counts=answer.get("counts") or {},
            is_current=answer.get("is_current", True),
        )


def parse_message(make: Callable[..., T], answer: Json) -> T:
    with reading("message"):
        return make(
            from_=answer["from"],
            from_name=answer["from_name"],
            body=answer["body"],
            meta=answer.get("meta") or {},
            topic=answer.get("topic"),
            priority=answer.get("priority", "next"),
            client_message_id=answer["client_message_id"],
            broker_message_id=answer["broker_message_id"],
            history_id=answer["history_id"],
            reply_to_id=answer.get("reply_to_id"),
            accepted_at=parse_time(answer["accepted_at"]),
            received_at=parse_time(answer["received_at"]),
            read_at=_time_or_none(answer.get("read_at")),
            to_session=answer.get("to_session"),
            cursor=answer["cursor"],
        )


def parse_event(make: Callable[..., T], event_id: str, kind: str, data: Json) -> T:
    with reading("event"):
        at = parse_time(data["received_at"] if kind == "message" else data["at"])
        return make(id=event_id, type=kind, at=at, data=data)


def parse_work(make: Callable[..., T], queue: str, answer: Json) -> T:
    with reading("leased message"):
        return make(
            queue=queue,
            from_=answer["from"],
            from_name=answer.get("from_name", ""),
            body=answer["body"],
            meta=answer.get("meta") or {},
            client_message_id=answer["client_message_id"],
            broker_message_id=answer["broker_message_id"],
            reply_to_id=answer.get("reply_to_id"),
            lease_token=answer["lease_token"],
            lease_expires_at=parse_time(answer["lease_expires_at"]),
        )


def parse_renewal(answer: Json) -> datetime:
    with reading("renewed lease"):
        return parse_time(answer["lease_expires_at"])


def parse_peers(answer: Json) -> list[Peer]:
    with reading("list of peers"):
        return [
            Peer(
                name=peer["name"],
                pubkey=peer["pubkey"],
                status=peer["status"],
                sessions=tuple(_peer_session(one) for one in peer.get("sessions") or ()),
                reach=peer.get("reach"),
                unread=peer.get("unread"),
                last_read_at=_time_or_none(peer.get("last_read_at")),
                more=peer,
            )
            for peer in answer["peers"]
        ]


def _peer_session(answer: Json) -> PeerSession:
    return PeerSession(
        session_pubkey=answer["session_pubkey"],
        display_name=answer.get("display_name") or "",
        since=_time_or_none(answer.get("since")),
        more=answer,
    )


def parse_session(make: Callable[..., T], token: str, answer: Json) -> T:
    with reading("answer to a registration"):
        return make(
            session_pubkey=answer["session_pubkey"],
            presence_id=answer.get("presence_id"),
            status=answer["status"],
            unread=answer.get("unread", 0),
            token=token,
        )


def parse_topics(answer: Json) -> list[TopicInfo]:
    with reading("list of topics"):
        return [
            TopicInfo(name=topic["name"], subscribers=topic["subscribers"], is_subscribed=topic["subscribed"])
            for topic in answer["topics"]
        ]


def parse_health(answer: Json) -> Health:
    with reading("health"):
        return Health(
            mesh=answer["mesh"],
            member=answer["member"],
            member_pubkey=answer["member_pubkey"],
            is_connected=answer["connected"],
            is_degraded=answer["degraded"],
            queue_depth=answer["queue_depth"],
            inflight=answer["inflight"],
            lag_ms=answer["lag_ms"],
            uptime_s=answer["uptime_s"],
            daemon_version=answer["daemon_version"],
            broker_version=answer.get("broker_version"),
            more=answer,
        )


def _time_or_none(value: object) -> datetime | None:
    return None if value is None else parse_time(value)
