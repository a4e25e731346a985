"""Who is it? A hello proves that its sender holds a member's key, now, on this very connection.

What is signed holds the connection's nonce (no hello is good twice), the mesh and its purpose (none is good
elsewhere). The order: form, signature, clock, then the store; a stranger learns nothing of who is a member.
"""

from typing import Any, Final

from claudemesh.broker.model import Identity, Member
from claudemesh.broker.policy import CLOCK_SKEW_MAX_MS
from claudemesh.broker.ports import DirectoryStore
from claudemesh.kernel.clock import Clock
from claudemesh.runtime.keys import is_pubkey, verify
from claudemesh.wire.frames import (
    ATTESTATION_MAX_MS,
    CLOSE_BAD_FRAME,
    CLOSE_UNAUTHENTICATED,
    PROTOCOL,
    REASON_REVOKED,
    Hello,
)
from claudemesh.wire.signing import attestation_bytes, hello_bytes

INSTANCE_ID_LENGTH_MAX: Final = 128


class HelloRefused(Exception):
    """`reason` is one word of a closed list; `data` is what helps an honest caller."""

    def __init__(self, reason: str, close_code: int = CLOSE_UNAUTHENTICATED, **data: Any) -> None:  # noqa: ANN401
        super().__init__(reason)
        self.reason = reason
        self.close_code = close_code
        self.data = data


async def verify_hello(hello: Hello, nonce: str, directory: DirectoryStore, clock: Clock) -> Identity:
    """Return who speaks, or raise HelloRefused."""
    now = clock.wall_ms()
    _check_form(hello)
    _check_signature(hello, nonce)
    if abs(hello.timestamp_ms - now) > CLOCK_SKEW_MAX_MS:
        raise HelloRefused("clock_skew", server_time_ms=now)
    _check_attestation(hello, now)
    mesh = await directory.mesh(hello.mesh_id)
    member = None if mesh is None else await directory.member(mesh.id, hello.member_pubkey)
    if mesh is None or member is None:
        raise HelloRefused("unknown_member")
    if member.revoked_at is not None:
        raise HelloRefused(REASON_REVOKED)
    expires_at = None if hello.attestation is None else hello.attestation.expires_at
    identity = Identity(mesh, member, hello.instance_id, hello.session_pubkey, expires_at)
    await _remember_session(identity, member, directory, now)
    return identity


def _check_form(hello: Hello) -> None:
    texts = (hello.mesh_id, hello.instance_id, hello.resume_token or "")
    if any("\0" in text for text in texts) or not 1 <= len(hello.instance_id) <= INSTANCE_ID_LENGTH_MAX:
        raise HelloRefused("bad_frame", CLOSE_BAD_FRAME)
    if hello.protocol != PROTOCOL:
        raise HelloRefused("unsupported_protocol", protocol=PROTOCOL)


def _check_signature(hello: Hello, nonce: str) -> None:
    key = hello.session_pubkey if hello.session_pubkey is not None else hello.member_pubkey
    if not is_pubkey(key) or not is_pubkey(hello.member_pubkey):  # before they are framed: no NUL in them
        raise HelloRefused("bad_signature")
    if not verify(key, hello_bytes(nonce, hello), hello.signature):
        raise HelloRefused("bad_signature")


def _check_attestation(hello: Hello, now_ms: int) -> None:
    attestation = hello.attestation
    if attestation is None and hello.session_pubkey is None:
        return
    is_about_this = (
        attestation is not None
        and attestation.session_pubkey == hello.session_pubkey
        and attestation.parent_member_pubkey == hello.member_pubkey
        and attestation.session_pubkey != hello.member_pubkey
    )
    if attestation is None or not is_about_this:
        raise HelloRefused("bad_attestation")
    if not verify(hello.member_pubkey, attestation_bytes(attestation), attestation.signature):
        raise HelloRefused("bad_attestation")
    if not now_ms < attestation.expires_at <= now_ms + ATTESTATION_MAX_MS + CLOCK_SKEW_MAX_MS:
        raise HelloRefused("attestation_expired", server_time_ms=now_ms)


async def _remember_session(identity: Identity, member: Member, directory: DirectoryStore, now_ms: int) -> None:
    key = identity.session_pubkey
    if key is not None and not await directory.remember_session(identity.sender, key, now_ms):
        raise HelloRefused("bad_attestation", member=member.uid)
