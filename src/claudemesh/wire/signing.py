"""What a signature is over: named fields, framed by zero bytes, under a purpose that no other signature has.

The purpose keeps a signature made for one thing from being shown as another; the frame keeps two lists of fields
from sharing their bytes. No field may hold a zero byte.
"""

from typing import Final

import msgspec

from claudemesh.wire.frames import Attestation, Hello
from claudemesh.wire.invite import CreateMesh, Invite, Redeem

HELLO: Final = "claudemesh-hello-v1"
WELCOME: Final = "claudemesh-welcome-v1"
ATTESTATION: Final = "claudemesh-attestation-v1"
MESH_CREATE: Final = "claudemesh-mesh-create-v1"
INVITE: Final = "claudemesh-invite-v1"
REDEEM: Final = "claudemesh-redeem-v1"
RESUME: Final = "claudemesh-resume-v1"


def welcome_bytes(challenge: str, nonce: str) -> bytes:
    """Return what the broker signs to show that it is the one that was joined."""
    return _frame(WELCOME, challenge, nonce)


def hello_bytes(nonce: str, hello: Hello) -> bytes:
    """Return what a hello signs: with the session's key if it has one, else with the member's."""
    return _frame(
        HELLO,
        nonce,
        hello.protocol,
        hello.mesh_id,
        hello.member_pubkey,
        hello.instance_id,
        hello.timestamp_ms,
        hello.session_pubkey,
        hello.resume_token,
        "presence" if hello.presence_only else "",
        None if hello.session is None else msgspec.json.encode(hello.session).decode(),
    )


def resume_bytes(payload: str) -> bytes:
    """Return what the broker signs in a resume token."""
    return _frame(RESUME, payload)


def attestation_bytes(attestation: Attestation) -> bytes:
    """Return what the member's key signs for a session key."""
    return _frame(ATTESTATION, attestation.session_pubkey, attestation.parent_member_pubkey, attestation.expires_at)


def create_mesh_bytes(request: CreateMesh) -> bytes:
    return _frame(MESH_CREATE, request.slug, request.member_pubkey, request.name, request.timestamp_ms)


def invite_bytes(invite: Invite) -> bytes:
    """Return what the inviter's key signs: all that the code says."""
    return _frame(
        INVITE,
        invite.broker_url,
        invite.mesh_id,
        invite.slug,
        invite.invite_id,
        invite.uses,
        invite.expires_at,
        invite.broker_key,
        invite.inviter_pubkey,
    )


def redeem_bytes(request: Redeem) -> bytes:
    """Return what the newcomer signs, to show that the key it brings is its own."""
    invite_id, mesh_id = request.invite.invite_id, request.invite.mesh_id
    return _frame(REDEEM, invite_id, mesh_id, request.member_pubkey, request.name, request.timestamp_ms)


def _frame(purpose: str, *fields: str | int | None) -> bytes:
    texts = [purpose, *("" if field is None else str(field) for field in fields)]
    if any("\0" in text for text in texts):
        raise ValueError("a signed field holds a NUL")
    return "\0".join(texts).encode()
