"""What happens in a daemon, for logs, metrics and event streams. Published after the commit it tells of."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from claudemesh.daemon.model import ClaimedRow, Settlement
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.runtime.observe import Level, Observer


@dataclass(frozen=True, slots=True)
class SendJudged:
    """A send was answered: `status` is the word of the answer, or the code of the error."""

    name: ClassVar[str] = "daemon.send_judged"
    level: ClassVar[Level] = "debug"
    status: str
    stood: bool  # the answer came from a row that was there


class RowsSettled(msgspec.Struct, frozen=True):
    """What became of rows that were answered together; one event for all that the same became of."""

    name: ClassVar[str] = "daemon.rows_settled"
    level: ClassVar[Level] = "debug"
    event: OutboxEvent
    client_message_ids: list[str]


class SendEnded(msgspec.Struct, frozen=True):
    """The sender is done with a row: the broker has it, or it will not be sent. Made only if somebody traces."""

    name: ClassVar[str] = "daemon.send_ended"
    level: ClassVar[Level] = "debug"
    client_message_id: str
    destination: str
    event: OutboxEvent
    reason: str | None
    attempts: int
    enqueued_at: int
    ended_at: int


@dataclass(frozen=True, slots=True)
class HistoryPruned:
    """The broker had the message, and keeps it no more."""

    name: ClassVar[str] = "daemon.history_pruned"
    level: ClassVar[Level] = "warning"
    client_message_id: str


@dataclass(frozen=True, slots=True)
class RowDied:
    """A row will not be sent: an operator decides what becomes of it."""

    name: ClassVar[str] = "daemon.row_died"
    level: ClassVar[Level] = "warning"
    client_message_id: str
    reason: str | None


class MessageReceived(msgspec.Struct, frozen=True):
    """A message that was new is in the inbox."""

    name: ClassVar[str] = "daemon.message_received"
    level: ClassVar[Level] = "debug"
    seq: int
    client_message_id: str
    broker_message_id: str
    sender_pubkey: str
    accepted_at: int
    received_at: int


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
class SessionRegistered:
    """A process of this host is shown to the others from now on."""

    name: ClassVar[str] = "daemon.session_registered"
    session_pubkey: str
    pid: int


@dataclass(frozen=True, slots=True)
class SessionMoved:
    """A session's own connection: `status` is how it is now."""

    name: ClassVar[str] = "daemon.session_moved"
    level: ClassVar[Level] = "debug"
    session_pubkey: str
    status: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """`because`: it was told to, or its process is gone. `told`: whether the broker knows already."""

    name: ClassVar[str] = "daemon.session_ended"
    session_pubkey: str
    because: str
    told: bool


@dataclass(frozen=True, slots=True)
class SessionAlerted:
    """A session is back, and so many messages that named it are unread."""

    name: ClassVar[str] = "daemon.session_alerted"
    session_pubkey: str
    unread: int


@dataclass(frozen=True, slots=True)
class BrokerConnected:
    """`resumed`: the lease of the connection before went on."""

    name: ClassVar[str] = "daemon.broker_connected"
    broker_url: str
    broker_version: str
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class BrokerDisconnected:
    """The connection that stood is over; `retry_in_ms` is empty if none is tried again."""

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
    """The broker's terms cannot be agreed to, and nothing is sent until they can."""

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
    """The broker sent something that is none of our frames, or an item that nobody can store."""

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
    """The inbox was damaged, and was put aside; the broker delivers anew what was not acknowledged."""

    name: ClassVar[str] = "daemon.inbox_set_aside"
    level: ClassVar[Level] = "error"
    moved_to: str


@dataclass(frozen=True, slots=True)
class DaemonStarted:
    """The daemon answers."""

    name: ClassVar[str] = "daemon.started"
    mesh: str
    member: str
    version: str


@dataclass(frozen=True, slots=True)
class DaemonStopped:
    """The daemon has stopped."""

    name: ClassVar[str] = "daemon.stopped"
    exit_code: int


def tell_settled(observer: Observer, settled: Iterable[tuple[ClaimedRow, Settlement]]) -> None:
    """Tell what became of these rows."""
    ids: defaultdict[OutboxEvent, list[str]] = defaultdict(list)
    is_traced = observer.hears(SendEnded)
    for row, settlement in settled:
        ids[settlement.event].append(row.client_message_id)
        if settlement.event in (OutboxEvent.REFUSED, OutboxEvent.EXPIRED):
            observer.publish(RowDied(row.client_message_id, settlement.last_error))
        if is_traced and settlement.event is not OutboxEvent.FAILED:
            observer.publish(_ended(row, settlement))
    for event, client_message_ids in ids.items():
        observer.publish(RowsSettled(event, client_message_ids))


def _ended(row: ClaimedRow, settlement: Settlement) -> SendEnded:
    return SendEnded(
        client_message_id=row.client_message_id,
        destination=row.destination.text,
        event=settlement.event,
        reason=settlement.last_error,
        attempts=row.attempts + settlement.attempted,
        enqueued_at=row.enqueued_at,
        ended_at=settlement.at,
    )
