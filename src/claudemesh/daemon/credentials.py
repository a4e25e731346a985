"""How this daemon proves who it is: with the member's key, or with a session's that the member's key vouches for.

A session's key lives in memory and is gone with the process; its attestation is made anew for every connection, and
never good for longer than a day or than the daemon itself.
"""

from dataclasses import dataclass

import msgspec

from claudemesh.runtime.keys import KeyPair
from claudemesh.wire.frames import ATTESTATION_MAX_MS, Attestation, Hello, SessionInfo
from claudemesh.wire.signing import attestation_bytes, hello_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What a hello is about: this very connection, and when and as whom it is opened."""

    nonce: str
    mesh_id: str
    instance_id: str
    now_ms: int  # by the clock that is nearer to the broker's
    resume_token: str | None = None


class Credentials:
    """Of the daemon itself: what speaks for the whole member, or of an ephemeral one for its session."""

    def __init__(self, member: KeyPair, ephemeral_ttl_ms: int | None = None) -> None:
        self._member = member
        self._ttl_ms = ephemeral_ttl_ms
        self._session = None if ephemeral_ttl_ms is None else KeyPair.generate()

    @property
    def session_pubkey(self) -> str | None:
        return None if self._session is None else self._session.pubkey

    @property
    def renew_after_ms(self) -> int | None:
        """How long a connection may stand before what vouches for it has to be made anew; None: for ever."""
        is_long = self._ttl_ms is not None and self._ttl_ms > ATTESTATION_MAX_MS
        return ATTESTATION_MAX_MS * 3 // 4 if is_long else None

    def sign_hello(self, about: Introduction) -> Hello:
        if self._session is None:
            return sign(_hello(about, self._member.pubkey), about.nonce, self._member)
        expires_at = about.now_ms + min(self._ttl_ms or ATTESTATION_MAX_MS, ATTESTATION_MAX_MS)
        attestation = attest(self._member, self._session.pubkey, expires_at)
        hello = _hello(about, self._member.pubkey, attestation)
        return sign(hello, about.nonce, self._session)


def sign_presence(about: Introduction, session: KeyPair, attestation: Attestation, info: SessionInfo) -> Hello:
    """Return the hello of a registered session, which shows that it is there and does nothing else."""
    hello = _hello(about, attestation.parent_member_pubkey, attestation)
    return sign(msgspec.structs.replace(hello, presence_only=True, session=info), about.nonce, session)


def attest(member: KeyPair, session_pubkey: str, expires_at: int) -> Attestation:
    """Return the member's word that a session's key speaks for it."""
    attestation = Attestation(
        session_pubkey=session_pubkey,
        parent_member_pubkey=member.pubkey,
        expires_at=expires_at,
        signature="",
    )
    return msgspec.structs.replace(attestation, signature=member.sign(attestation_bytes(attestation)))


def sign(hello: Hello, nonce: str, signer: KeyPair) -> Hello:
    return msgspec.structs.replace(hello, signature=signer.sign(hello_bytes(nonce, hello)))


def _hello(about: Introduction, member_pubkey: str, attestation: Attestation | None = None) -> Hello:
    return Hello(
        mesh_id=about.mesh_id,
        member_pubkey=member_pubkey,
        instance_id=about.instance_id,
        timestamp_ms=about.now_ms,
        signature="",
        session_pubkey=None if attestation is None else attestation.session_pubkey,
        attestation=attestation,
        resume_token=about.resume_token,
    )
