"""When a member's word for a session's key is good: one rule for the daemon that is given one and for the broker.

Whoever judges brings its clock's time and its way to check a signature; here is only the rule.
"""

from collections.abc import Callable
from typing import Final

from claudemesh.wire.frames import ATTESTATION_MAX_MS, CLOCK_SKEW_MAX_MS, Attestation
from claudemesh.wire.signing import attestation_bytes

BAD_ATTESTATION: Final = "bad_attestation"
ATTESTATION_EXPIRED: Final = "attestation_expired"

Verify = Callable[[str, bytes, str], bool]  # a public key, what was signed, and the signature


def judge_attestation(
    attestation: Attestation | None, member_pubkey: str, session_pubkey: str | None, now_ms: int, verify: Verify
) -> str | None:
    """Return what is wrong with it in one word, or None. Where no session speaks, there is to be none.

    The keys have to be keys: what is signed is framed, and a NUL in them would raise.
    """
    if attestation is None:
        return None if session_pubkey is None else BAD_ATTESTATION
    names = (attestation.session_pubkey, attestation.parent_member_pubkey)
    if names != (session_pubkey, member_pubkey) or session_pubkey == member_pubkey:
        return BAD_ATTESTATION
    if not verify(member_pubkey, attestation_bytes(attestation), attestation.signature):
        return BAD_ATTESTATION
    if not now_ms < attestation.expires_at <= now_ms + ATTESTATION_MAX_MS + CLOCK_SKEW_MAX_MS:
        return ATTESTATION_EXPIRED
    return None
