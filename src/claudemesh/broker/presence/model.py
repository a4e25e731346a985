"""The values of presence.

A lease belongs to a key: a member's own, or that of one of its sessions; where a mesh allows several instances of a
key at once, each has one. While a socket carries it, it stands, kept by the beat of that socket's broker. When none
does, it stands until `lease_until`, by the store's own clock.
"""

from enum import StrEnum
from typing import Any

import msgspec

from claudemesh.broker.model import Displaced, Identity, Meeting, Seat
from claudemesh.kernel.lease import Lease


class What(StrEnum):
    """What happened to a lease. The first two are announced: they are what others see of a key."""

    JOINED = "joined"  # the first lease of its key
    LEFT = "left"  # the last one of its key ended
    BEGUN = "begun"  # one more of a key that is there already
    ENDED = "ended"  # one of a key that is still there
    OFFLINE = "offline"  # its socket is gone: its time of grace begins
    ONLINE = "online"  # a socket carries it again, in time
    SWAPPED = "swapped"  # another socket carries it now


ANNOUNCED = frozenset({What.JOINED, What.LEFT})


class Because(StrEnum):
    """Why a lease is without a socket, or ended."""

    CLOSED = "closed"
    STALE = "stale"  # its socket showed no life, and was terminated
    BROKER_GONE = "broker_gone"
    EXPIRED = "expired"
    GOODBYE = "goodbye"  # its holder said that it goes
    REVOKED = "revoked"
    SUPERSEDED = "superseded"  # another instance of its key took over


class StandingLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that has not ended, as a row says it. It may have run out all the same, with nobody noticing yet."""

    id: int
    uid: str  # the wire's presenceId
    instance_id: str
    token: int
    seat: int | None  # of the connection that carries it
    lease_until: int | None  # only without one
    is_presence_only: bool = False

    def as_lease(self, now_ms: int, ttl_ms: int) -> Lease:
        return Lease(self.uid, self.token, now_ms + ttl_ms if self.lease_until is None else self.lease_until)


class ResumeClaim(msgspec.Struct, frozen=True):
    """What a resume token says: which lease it resumes, and with which of its sockets it was given out."""

    presence_uid: str
    token: int


class Met(msgspec.Struct, frozen=True):
    """Another instance, or the same one again, that a hello met under its key, and what came of it."""

    instance_id: str
    meeting: Meeting


class Arrival(msgspec.Struct, frozen=True):
    """A hello that wants a seat. `must_resume`: its proof is not enough by itself, and its claim has to hold."""

    identity: Identity
    claim: ResumeClaim | None = None
    must_resume: bool = False


class Departure(msgspec.Struct, frozen=True):
    """A connection that is gone: its seat, how long before it last showed life, and how it ended."""

    seat: int
    silent_ms: int = 0
    because: Because = Because.CLOSED


class PresenceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody came or went. `seq` is gapless in its mesh: whoever has seen n knows what it missed."""

    mesh_id: int
    seq: int
    what: What
    at: int  # wall ms
    member_id: int
    member_uid: str
    name: str
    pubkey: str
    session_pubkey: str | None
    presence_uid: str
    because: str | None = None
    display_name: str = ""  # as the session calls itself


class Seated(msgspec.Struct, frozen=True, kw_only=True):
    """A seat, and the lease that it carries."""

    seat: Seat
    presence_uid: str
    lease_token: int
    is_resumed: bool = False
    displaced: list[Displaced] = []
    met: list[Met] = []
    events: list[PresenceEvent] = []
    bereft: list[int] = []  # members whose sessions ended by it


class Settled(msgspec.Struct, frozen=True):
    """What ending leases did: who is to be announced, whose sessions have ended, and what carried them."""

    events: list[PresenceEvent] = []
    members: list[int] = []
    seats: list[int] = []  # of connections that have no lease any more
    is_done: bool = True  # there was no more to end


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that stands, for the list of peers."""

    member_id: int
    session_pubkey: str | None
    presence_uid: str
    instance_id: str
    is_online: bool
    is_presence_only: bool
    lease_left_ms: int  # what would be left if it fell silent now
    since: int
    info: dict[str, Any]
