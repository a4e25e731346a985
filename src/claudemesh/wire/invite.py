"""How a mesh is made and joined: what crosses HTTP, and the code that carries an invitation.

A code is base64url of the invite as JSON. It is made without asking the broker: the inviter signs it. Its inviter's
role, its uses and its expiry are judged when it is redeemed.
"""

import base64
from typing import Annotated

import msgspec
from msgspec import Meta

from claudemesh.kernel.errors import InvalidRequest

CODE_LENGTH_MAX = 4096
INVITE_ID_LENGTH_MAX = 128


class CreateMesh(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /v1/meshes`. Asked again by the same key it answers as it did."""

    slug: str
    member_pubkey: str
    name: str
    timestamp_ms: int
    signature: str


class Invite(msgspec.Struct, frozen=True, kw_only=True):
    broker_url: str
    mesh_id: str
    slug: str
    invite_id: Annotated[str, Meta(max_length=INVITE_ID_LENGTH_MAX)]
    uses: int
    expires_at: int  # wall ms
    broker_key: str
    inviter_pubkey: str
    signature: str = ""


class Redeem(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /v1/invites/redeem`. Asked again by the same key it answers as it did."""

    invite: Invite
    member_pubkey: str
    name: str
    timestamp_ms: int
    signature: str


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to both: who the caller now is, and to whom it talks."""

    mesh_id: str
    slug: str
    member_id: str
    name: str
    role: str
    broker_key: str


def render_code(invite: Invite) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(invite)).rstrip(b"=").decode()


def parse_code(code: str) -> Invite:
    """Read a code; its signature and its dates are for the broker to judge."""
    text = code.strip()[: CODE_LENGTH_MAX + 1]  # beyond it nothing is ours: cut, it decodes to nothing
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=Invite)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidRequest("this is not an invite code, or a part of it is missing") from error
