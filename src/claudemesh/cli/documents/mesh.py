"""What is printed of meshes, their members, peers and topics."""

from typing import Literal

import msgspec

from claudemesh.cli.documents.printed import Printed, lines, one
from claudemesh.daemon.http.control import (
    Appointed,
    Made,
    MeshTerms,
    Peers,
    Revoked,
    Subscribed,
    Topics,
    Unsubscribed,
)
from claudemesh.daemon.http.inbox import ShownMessage
from claudemesh.daemon.identity import Joined


class Invited(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever has the code can join; `expires_at` is in milliseconds since 1970."""

    code: str
    slug: str
    invite_id: str
    uses: int
    expires_at: int
    broker_url: str


class JoinedMesh(Joined, frozen=True, kw_only=True):
    daemon: Literal["running", "stopped"]


class DamagedMesh(msgspec.Struct, frozen=True, kw_only=True):
    """One whose membership cannot be read."""

    slug: str
    detail: str


class Meshes(msgspec.Struct, frozen=True):
    meshes: list[JoinedMesh]
    damaged: list[DamagedMesh]


class Left(msgspec.Struct, frozen=True):
    """`told_broker` is false if the broker still counts you as a member."""

    slug: str
    left: bool
    told_broker: bool
    kept_at: str


PRINTED: dict[str, Printed] = {
    "claudemesh mesh create": one(Joined),
    "claudemesh mesh invite": one(Invited),
    "claudemesh mesh join": one(Joined),
    "claudemesh mesh list": one(Meshes),
    "claudemesh mesh set": one(MeshTerms),
    "claudemesh mesh leave": one(Left),
    "claudemesh member revoke": one(Revoked),
    "claudemesh member role": one(Appointed),
    "claudemesh peer list": one(Peers),
    "claudemesh topic create": one(Made),
    "claudemesh topic list": one(Topics),
    "claudemesh topic join": one(Subscribed),
    "claudemesh topic leave": one(Unsubscribed),
    "claudemesh topic tail": lines(ShownMessage),
}
