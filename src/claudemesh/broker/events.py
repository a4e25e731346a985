"""What happens in a broker, for logs and metrics. Published after the commit it tells of."""

from dataclasses import dataclass
from typing import ClassVar, Self

from claudemesh.broker.policy import Phase
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.observe import Level


@dataclass(frozen=True, slots=True)
class BatchAccepted:
    """One frame of messages was answered: how many ended in which phase."""

    name: ClassVar[str] = "broker.batch_accepted"
    level: ClassVar[Level] = "debug"
    by_phase: dict[Phase, int]
    accepted: int
    duplicates: int
    mismatches: int
    rate_limited: int
    consumed_then_refused: int


@dataclass(frozen=True, slots=True)
class FingerprintDrifted:
    """A daemon and this broker compute different fingerprints for the same request."""

    name: ClassVar[str] = "broker.fingerprint_drifted"
    level: ClassVar[Level] = "warning"
    member: str
    client_message_id: str
    broker_fingerprint_prefix: str


@dataclass(frozen=True, slots=True)
class LimiterFailed:
    """Messages were put off, since nobody could say what is left of their sender's budget."""

    name: ClassVar[str] = "broker.limiter_failed"
    level: ClassVar[Level] = "warning"
    detail: str
    messages: int


@dataclass(frozen=True, slots=True)
class BrokerStarted:
    """The broker listens."""

    name: ClassVar[str] = "broker.started"
    url: str
    version: str


@dataclass(frozen=True, slots=True)
class EpochBegan:
    """The database is another one than before, or an older one: what was accepted last may be missing in it."""

    name: ClassVar[str] = "broker.epoch_began"
    level: ClassVar[Level] = "error"
    epoch: int


@dataclass(frozen=True, slots=True)
class BrokerStopped:
    """The broker has stopped."""

    name: ClassVar[str] = "broker.stopped"


@dataclass(frozen=True, slots=True)
class MemberConnected:
    """A member's daemon, or one of its sessions, was let in."""

    name: ClassVar[str] = "broker.member_connected"
    mesh: str
    member: str
    instance_id: str
    is_session: bool


@dataclass(frozen=True, slots=True)
class MemberDisconnected:
    """Its connection is over: `code` is that of the WebSocket, `reason` our own word if we ended it."""

    name: ClassVar[str] = "broker.member_disconnected"
    mesh: str
    member: str
    instance_id: str
    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class MembershipEnded:
    """A member was revoked, by another or by itself."""

    name: ClassVar[str] = "broker.membership_ended"
    level: ClassVar[Level] = "warning"
    mesh: str
    member: str
    by: str


@dataclass(frozen=True, slots=True)
class ConnectionsMet:
    """Two connections came under one key; `outcome` says what became of the older one."""

    name: ClassVar[str] = "broker.connections_met"
    level: ClassVar[Level] = "warning"
    mesh: str
    member: str
    standing_instance: str
    new_instance: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """A connection ended before or at its hello. The reason is one of a few words, never what the caller sent."""

    name: ClassVar[str] = "broker.connection_refused"
    level: ClassVar[Level] = "warning"
    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """Messages that could not be delivered were put aside for good; an operator decides."""

    name: ClassVar[str] = "broker.dead_lettered"
    level: ClassVar[Level] = "warning"
    mesh: str
    member: str
    history_ids: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Swept:
    """Retention deleted so many messages, dead letters and ids."""

    name: ClassVar[str] = "broker.swept"
    messages: int
    dead_letters: int
    ids: int


@dataclass(frozen=True, slots=True)
class OrphansChecked:
    """The orphan check ran; anything but 0 is a bug."""

    name: ClassVar[str] = "broker.orphans_checked"
    violations: int


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """Something that runs now and then failed; it will be tried again."""

    name: ClassVar[str] = "broker.task_failed"
    level: ClassVar[Level] = "error"
    task: str
    error: str
    detail: str = ""

    @classmethod
    def of(cls, task: str, error: Exception) -> Self:
        """Say what failed; of an error of ours also why, since its text is made to be read."""
        return cls(task, type(error).__name__, error.detail if isinstance(error, MeshError) else "")


@dataclass(frozen=True, slots=True)
class BulletinPassed:
    """Brokers of one store told each other something: `told` or `heard`."""

    name: ClassVar[str] = "broker.bulletin_passed"
    level: ClassVar[Level] = "debug"
    direction: str


@dataclass(frozen=True, slots=True)
class KeeperChanged:
    """Of all brokers on its store, this one began to sweep and check it, or no longer does."""

    name: ClassVar[str] = "broker.keeper_changed"
    is_keeper: bool


@dataclass(frozen=True, slots=True)
class SeatsLost:
    """Connections here are no longer entitled to what waits for them, and have to begin anew.

    All of them, if the broker was silent for so long that others took it for dead.
    """

    name: ClassVar[str] = "broker.seats_lost"
    level: ClassVar[Level] = "warning"
    connections: int


@dataclass(frozen=True, slots=True)
class StoodStill:
    """The process did not run for a while: stopped, suspended or starved. Nobody's lease is shorter for it."""

    name: ClassVar[str] = "broker.stood_still"
    level: ClassVar[Level] = "warning"
    ms: int


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """Somebody came or went, as others are told: `peer_joined` or `peer_left`."""

    name: ClassVar[str] = "broker.peer_changed"
    what: str
    member: str
    is_session: bool
