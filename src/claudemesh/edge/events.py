"""What happens at a relay, for logs and metrics. Paths are the policy's, ids are ours; bodies and keys stay out."""

from dataclasses import dataclass
from typing import ClassVar

from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.runtime.observe import Level


@dataclass(frozen=True, slots=True)
class RelayStarted:
    """The relay listens."""

    name: ClassVar[str] = "edge.relay_started"
    upstream: str
    version: str


@dataclass(frozen=True, slots=True)
class RelayStopped:
    """The relay has stopped."""

    name: ClassVar[str] = "edge.relay_stopped"
    exit_code: int


@dataclass(frozen=True, slots=True)
class UpstreamLost:
    """The upstream does not answer any more: writes are queued from now on."""

    name: ClassVar[str] = "edge.upstream_lost"
    level: ClassVar[Level] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class UpstreamReached:
    """The upstream answers again: what waits is replayed."""

    name: ClassVar[str] = "edge.upstream_reached"


@dataclass(frozen=True, slots=True)
class UpstreamRefusedUs:
    """The relay's own credential is not taken: nothing is replayed until it is."""

    name: ClassVar[str] = "edge.upstream_refused_us"
    level: ClassVar[Level] = "error"
    status: int


@dataclass(frozen=True, slots=True)
class EnvelopeQueued:
    """A write waits in the outbox, and its caller was told so."""

    name: ClassVar[str] = "edge.envelope_queued"
    level: ClassVar[Level] = "debug"  # a line for each would cost more than the envelope
    outbox_id: str
    route: str


@dataclass(frozen=True, slots=True)
class EnvelopeSettled:
    """A try of an envelope was answered, or given up: `outcome` is what became of it."""

    name: ClassVar[str] = "edge.envelope_settled"
    level: ClassVar[Level] = "debug"
    seq: int
    outcome: OutboxEvent
    error: str | None


@dataclass(frozen=True, slots=True)
class EnvelopeStopped:
    """It will not be sent again by itself: an operator decides."""

    name: ClassVar[str] = "edge.envelope_stopped"
    level: ClassVar[Level] = "warning"
    seq: int
    outcome: OutboxEvent
    error: str | None


@dataclass(frozen=True, slots=True)
class EnvelopeDecided:
    """An operator decided."""

    name: ClassVar[str] = "edge.envelope_decided"
    outbox_id: str
    decision: str
    by: str


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """A write could neither go nor wait, and its caller was told so."""

    name: ClassVar[str] = "edge.write_refused"
    level: ClassVar[Level] = "warning"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """All that waited since the upstream went away is settled, or waits for an operator."""

    name: ClassVar[str] = "edge.recovered"
    outage_id: str
    outage_s: int
    acked: int
    conflicts: int
    dead: int
    cancelled: int
    coalesced: int


@dataclass(frozen=True, slots=True)
class OutboxUnusable:
    """Its file is damaged: nothing can be queued until it was recovered; what is online goes on."""

    name: ClassVar[str] = "edge.outbox_unusable"
    level: ClassVar[Level] = "error"
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something an operator should know and nobody has to act on at once."""

    name: ClassVar[str] = "edge.warned"
    level: ClassVar[Level] = "warning"
    code: str
    detail: str
