"""What happens in a daemon, for logs, metrics and event streams. Published after the commit it tells of."""

from dataclasses import dataclass
from typing import ClassVar

from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.runtime.observe import Level


@dataclass(frozen=True, slots=True)
class SendJudged:
    """A send was answered: `status` is the word of the answer, or the code of the error."""

    name: ClassVar[str] = "daemon.send_judged"
    level: ClassVar[Level] = "debug"
    status: str
    stood: bool  # the answer came from a row that was there


@dataclass(frozen=True, slots=True)
class RowSettled:
    name: ClassVar[str] = "daemon.row_settled"
    level: ClassVar[Level] = "debug"
    client_message_id: str
    event: OutboxEvent
    last_error: str | None
    history_available: bool = True


@dataclass(frozen=True, slots=True)
class RowDied:
    """A row will not be sent: an operator decides what becomes of it."""

    name: ClassVar[str] = "daemon.row_died"
    level: ClassVar[Level] = "warning"
    client_message_id: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class MessageReceived:
    name: ClassVar[str] = "daemon.message_received"
    level: ClassVar[Level] = "debug"
    seq: int
    broker_message_id: str
    sender_pubkey: str


@dataclass(frozen=True, slots=True)
class ReceiptMoved:
    """A hint of the broker: an own message has come further."""

    name: ClassVar[str] = "daemon.receipt_moved"
    level: ClassVar[Level] = "debug"
    client_message_id: str
    state: str


@dataclass(frozen=True, slots=True)
class PeerSeen:
    """Somebody joined or left, as the broker told it: `what` is its word for it."""

    name: ClassVar[str] = "daemon.peer_seen"
    what: str
    peer: str
    pubkey: str


@dataclass(frozen=True, slots=True)
class BrokerConnected:
    name: ClassVar[str] = "daemon.broker_connected"
    broker_url: str
    broker_version: str


@dataclass(frozen=True, slots=True)
class BrokerDisconnected:
    name: ClassVar[str] = "daemon.broker_disconnected"
    reason: str
    retry_in_ms: int | None


@dataclass(frozen=True, slots=True)
class ConnectingFailed:
    """One more try that did not come to a connection."""

    name: ClassVar[str] = "daemon.connecting_failed"
    reason: str
    retry_in_ms: int | None


@dataclass(frozen=True, slots=True)
class NegotiationRefused:
    name: ClassVar[str] = "daemon.negotiation_refused"
    level: ClassVar[Level] = "error"
    close_code: int
    feature: str
    reason: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something an operator should know and nobody has to act on at once."""

    name: ClassVar[str] = "daemon.warned"
    level: ClassVar[Level] = "warning"
    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class InboundRefused:
    """The broker sent something that is none of our frames."""

    name: ClassVar[str] = "daemon.inbound_refused"
    level: ClassVar[Level] = "error"
    reason: str


@dataclass(frozen=True, slots=True)
class CloneSuspected:
    """The state directory was made on another host: two daemons may be speaking with one key."""

    name: ClassVar[str] = "daemon.clone_suspected"
    level: ClassVar[Level] = "warning"
    policy: str


@dataclass(frozen=True, slots=True)
class InboxSetAside:
    name: ClassVar[str] = "daemon.inbox_set_aside"
    level: ClassVar[Level] = "error"
    moved_to: str


@dataclass(frozen=True, slots=True)
class DaemonStarted:
    name: ClassVar[str] = "daemon.started"
    mesh: str
    member: str
    version: str


@dataclass(frozen=True, slots=True)
class DaemonStopped:
    name: ClassVar[str] = "daemon.stopped"
    exit_code: int
