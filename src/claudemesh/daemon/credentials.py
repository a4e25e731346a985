"""How this daemon proves who it is: with the member's key, or with a session's that the member's key vouches for.

A session's key lives in memory and is gone with the process; its attestation is made anew for every connection, and
never good for longer than a day or than the daemon itself.
"""

import msgspec

from claudemesh.runtime.keys import KeyPair
from claudemesh.wire.frames import ATTESTATION_MAX_MS, Attestation, Hello
from claudemesh.wire.signing import attestation_bytes, hello_bytes


class Credentials:
    def __init__(self, member: KeyPair, ephemeral_ttl_ms: int | None = None) -> None:
        self._member = member
        self._ttl_ms = ephemeral_ttl_ms
        self._session = None if ephemeral_ttl_ms is None else KeyPair.generate()

    @property
    def session_pubkey(self) -> str | None:
        return None if self._session is None else self._session.pubkey

    def sign_hello(self, nonce: str, mesh_id: str, instance_id: str, now_ms: int) -> Hello:
        hello = Hello(
            mesh_id=mesh_id,
            member_pubkey=self._member.pubkey,
            instance_id=instance_id,
            timestamp_ms=now_ms,
            signature="",
            session_pubkey=self.session_pubkey,
            attestation=self._attest(now_ms),
        )
        signer = self._session or self._member
        return msgspec.structs.replace(hello, signature=signer.sign(hello_bytes(nonce, hello)))

    def _attest(self, now_ms: int) -> Attestation | None:
        if self._session is None:
            return None
        attestation = Attestation(
            session_pubkey=self._session.pubkey,
            parent_member_pubkey=self._member.pubkey,
            expires_at=now_ms + min(self._ttl_ms or ATTESTATION_MAX_MS, ATTESTATION_MAX_MS),
            signature="",
        )
        return msgspec.structs.replace(attestation, signature=self._member.sign(attestation_bytes(attestation)))
