"""What callers ask of a store's writer, where both stores take it as one item."""

from dataclasses import dataclass

from claudemesh.broker.model import Claim, ConnectionPolicy, Newcomer, Role, Sender


@dataclass(frozen=True, slots=True)
class Join:
    mesh_id: int
    newcomer: Newcomer
    invite_id: str
    inviter: str
    uses_max: int


@dataclass(frozen=True, slots=True)
class MemberChange:
    actor: Sender
    key_or_name: str
    role: Role | None  # None: revoke
    now_ms: int


@dataclass(frozen=True, slots=True)
class MeshChange:
    actor: Sender
    policy: ConnectionPolicy | None
    sends_per_window: int | None


@dataclass(frozen=True, slots=True)
class TopicAsk:
    """To create a topic, to subscribe to it or to leave it."""

    sender: Sender
    name: str
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class CreateQueue:
    sender: Sender
    name: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class TakeWork:
    sender: Sender
    queue: str
    lease_ttl_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class SettleWork:
    claim: Claim
    now_ms: int = 0
    lease_ttl_ms: int = 0
    handed_over: bool = False
