"""Who is it? A hello proves that its sender holds a member's key, now, on this very connection.

What is signed holds the connection's nonce (no hello is good twice), the mesh and its purpose (none is good
elsewhere). The order: form, signature, the resume token if there is one, the rest of the proof, then the store; a
stranger learns nothing of who is a member. A token that is good stands for the rest of the proof, if the lease that
it names can still be taken up; what is not good about it is never told: then the rest of the proof has to be.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from claudemesh.broker.model import Identity
from claudemesh.broker.ports import DirectoryStore
from claudemesh.broker.presence.model import Arrival
from claudemesh.broker.presence.tokens import Resumable, ResumeTokens
from claudemesh.kernel.clock import Clock
from claudemesh.runtime.clock import steady
from claudemesh.runtime.keys import is_pubkey, verify
from claudemesh.wire.attestation import ATTESTATION_EXPIRED, judge_attestation
from claudemesh.wire.frames import (
    CLOCK_SKEW_MAX_MS,
    CLOSE_BAD_FRAME,
    CLOSE_UNAUTHENTICATED,
    PROTOCOL,
    REASON_REVOKED,
    SESSION_BYTES_MAX,
    Hello,
)
from claudemesh.wire.signing import hello_bytes

INSTANCE_ID_LENGTH_MAX: Final = 128


class HelloRefused(Exception):
    """`reason` is one word of a closed list; `data` is what helps an honest caller."""

    def __init__(self, reason: str, close_code: int = CLOSE_UNAUTHENTICATED, **data: Any) -> None:  # noqa: ANN401
        super().__init__(reason)
        self.reason = reason
        self.close_code = close_code
        self.data = data


@dataclass(frozen=True, slots=True)
class Proven:
    """Who speaks, and for how long its member vouches for it.

    `unproven` is what is wrong with the proof but for the token: without a resume it is refused.
    """

    arrival: Arrival
    unproven: HelloRefused | None
    expires_in_ms: int | None


class Doorkeeper:
    def __init__(self, directory: DirectoryStore, tokens: ResumeTokens, clock: Clock) -> None:
        self._directory = directory
        self._tokens = tokens
        self._clock = clock
        self._steady_ms = steady(clock)

    async def verify(self, hello: Hello, nonce: str) -> Proven:
        """Return who speaks, or raise HelloRefused."""
        _check_form(hello)
        _check_signature(hello, nonce)
        now = self._now_ms(hello)
        resumable = await self._judge_token(hello)
        unproven = self._judge_proof(hello, now)
        if unproven is not None and resumable is None:
            raise unproven
        mesh = await self._directory.mesh(hello.mesh_id)
        member = None if mesh is None else await self._directory.member(mesh.id, hello.member_pubkey)
        if mesh is None or member is None:
            raise HelloRefused("unknown_member")
        if member.revoked_at is not None:
            raise HelloRefused(REASON_REVOKED)
        expires_at = resumable.expires_at if resumable is not None else None
        if unproven is None and hello.attestation is not None:
            expires_at = hello.attestation.expires_at
        identity = Identity(
            mesh,
            member,
            hello.instance_id,
            hello.session_pubkey,
            expires_at,
            hello.presence_only,
            {} if hello.session is None else msgspec.to_builtins(hello.session),
        )
        claim = None if resumable is None else resumable.claim
        expires_in_ms = None if expires_at is None else expires_at - now
        return Proven(Arrival(identity, claim, must_resume=unproven is not None), unproven, expires_in_ms)

    async def _judge_token(self, hello: Hello) -> Resumable | None:
        if hello.resume_token is None:
            return None
        return await self._tokens.judge(hello.resume_token, hello.mesh_id, hello.member_pubkey, _signer(hello))

    def _now_ms(self, hello: Hello) -> int:
        """Return the wall clock's time or our own, whichever is nearer to the caller's.

        So a wall clock that was set while we run keeps nobody out, nor does one that was wrong at our start.
        """
        instants = (self._clock.wall_ms(), self._steady_ms())
        return min(instants, key=lambda instant: abs(hello.timestamp_ms - instant))

    def _judge_proof(self, hello: Hello, now_ms: int) -> HelloRefused | None:
        if abs(hello.timestamp_ms - now_ms) > CLOCK_SKEW_MAX_MS:
            return HelloRefused("clock_skew", server_time_ms=self._clock.wall_ms())
        wrong = judge_attestation(hello.attestation, hello.member_pubkey, hello.session_pubkey, now_ms, verify)
        if wrong is None:
            return None
        return HelloRefused(wrong, **({"server_time_ms": now_ms} if wrong == ATTESTATION_EXPIRED else {}))


def _check_form(hello: Hello) -> None:
    texts = (hello.mesh_id, hello.instance_id, hello.resume_token or "")
    if any("\0" in text for text in texts) or not 1 <= len(hello.instance_id) <= INSTANCE_ID_LENGTH_MAX:
        raise HelloRefused("bad_frame", CLOSE_BAD_FRAME)
    if hello.session_pubkey is None and (hello.presence_only or hello.session is not None):
        raise HelloRefused("bad_frame", CLOSE_BAD_FRAME)
    if hello.session is not None and len(msgspec.json.encode(hello.session)) > SESSION_BYTES_MAX:
        raise HelloRefused("bad_frame", CLOSE_BAD_FRAME)
    if hello.protocol != PROTOCOL:
        raise HelloRefused("unsupported_protocol", protocol=PROTOCOL)


def _check_signature(hello: Hello, nonce: str) -> None:
    key = _signer(hello)
    if not is_pubkey(key) or not is_pubkey(hello.member_pubkey):  # before they are framed: no NUL in them
        raise HelloRefused("bad_signature")
    if not verify(key, hello_bytes(nonce, hello), hello.signature):
        raise HelloRefused("bad_signature")


def _signer(hello: Hello) -> str:
    return hello.member_pubkey if hello.session_pubkey is None else hello.session_pubkey
