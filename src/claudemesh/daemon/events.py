"""What happens in a daemon, for logs, metrics and event streams. Published after the commit it tells of."""

from dataclasses import dataclass
from typing import ClassVar

from claudemesh.runtime.observe import Level


@dataclass(frozen=True, slots=True)
class SendJudged:
    """A send was answered: `status` is the word of the answer, or the code of the error."""

    name: ClassVar[str] = "daemon.send_judged"
    level: ClassVar[Level] = "debug"
    status: str
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class RowSettled:
    name: ClassVar[str] = "daemon.row_settled"
    level: ClassVar[Level] = "debug"
    client_message_id: str
    status: str
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
