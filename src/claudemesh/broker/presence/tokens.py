"""Resume tokens: `mesh-resume.v1.<payload>.<signature>`, by which whoever was cut off takes its lease up again.

A token says whose lease it is (`sub`, the session's key or the member's; `mem`, the member's), in which mesh
(`mid`), since when and until when it is good (`iat`, `exp`), which lease and which of its sockets it was given out
with (`jti`), until when the member vouches for the session (`att`), and which key signed it (`kid`). It is good
once: whoever takes the lease up raises the number of its socket, and no token with an older one matches. So nothing
is stored for it. And it is good only in the hands of its owner: the hello that carries it is signed over it, by the
key that it names.

Times are of a clock that goes on from the broker's start: setting the wall clock voids nothing and revives nothing.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from claudemesh.broker.presence.model import ResumeClaim
from claudemesh.kernel.clock import Clock
from claudemesh.runtime.clock import steady
from claudemesh.runtime.keys import KeyPair, verify
from claudemesh.wire.signing import resume_bytes

PREFIX: Final = "mesh-resume.v1."
TOKEN_CHARS_MAX: Final = 1_024
SKEW_MS: Final = 5_000  # by which the clocks of two brokers may differ
RELOAD_AFTER_MS: Final = 1_000  # how often, at most, to see whether another broker has a new key

Load = Callable[[], Awaitable[Sequence[bytes]]]  # the seeds of the keys, the one in force first


class _Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    sub: str
    mem: str
    mid: str
    exp: int
    iat: int
    jti: str
    kid: str
    att: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whom a token is for."""

    mesh_uid: str
    member_pubkey: str
    key: str  # the session's, or the member's own
    expires_at: int | None  # of the member's word for the session


@dataclass(frozen=True, slots=True)
class Resumable:
    """What a token that is good allows: to take that lease up, and for how long the session is vouched for."""

    claim: ResumeClaim
    expires_at: int | None


class ResumeTokens:
    def __init__(self, load: Load, seeds: Sequence[bytes], clock: Clock, ttl_ms: int) -> None:
        self._load = load
        self._clock = clock
        self._now_ms = steady(clock)
        self._ttl_ms = ttl_ms
        self._loaded_ms = clock.monotonic_ms()
        self._use(seeds)

    def issue(self, holder: Holder, claim: ResumeClaim) -> str:
        now = self._now_ms()
        payload = _Payload(
            sub=holder.key,
            mem=holder.member_pubkey,
            mid=holder.mesh_uid,
            exp=now + self._ttl_ms,
            iat=now,
            jti=f"{claim.presence_uid}.{claim.token}",
            kid=_kid(self._signer),
            att=holder.expires_at,
        )
        text = _encode(msgspec.json.encode(payload))
        return f"{PREFIX}{text}.{_encode(bytes.fromhex(self._signer.sign(resume_bytes(text))))}"

    async def judge(self, token: str, mesh_uid: str, member_pubkey: str, key: str) -> Resumable | None:
        """Return what the token allows the holder of this key, a member's or its session's; None if nothing."""
        parsed = _parse(token)
        if parsed is None:
            return None
        text, signature, payload = parsed
        signer = await self._signer_of(payload.kid)
        if signer is None or not verify(signer, resume_bytes(text), signature):
            return None
        now = self._now_ms()
        holder = (payload.mid, payload.mem, payload.sub)
        if holder != (mesh_uid, member_pubkey, key) or not payload.iat - SKEW_MS <= now < payload.exp:
            return None
        if payload.exp - payload.iat > self._ttl_ms or (payload.att is not None and payload.att <= now):
            return None
        uid, _, number = payload.jti.rpartition(".")
        return Resumable(ResumeClaim(uid, int(number)), payload.att) if number.isdecimal() else None

    async def reload(self) -> None:
        """Go by the keys as the store has them now: they may have been rotated."""
        self._loaded_ms = self._clock.monotonic_ms()
        self._use(await self._load())

    def _use(self, seeds: Sequence[bytes]) -> None:
        pairs = [KeyPair(seed) for seed in seeds]
        self._signer = pairs[0]
        self._by_kid = {_kid(pair): pair.pubkey for pair in pairs}

    async def _signer_of(self, kid: str) -> str | None:
        is_due = self._clock.monotonic_ms() - self._loaded_ms >= RELOAD_AFTER_MS
        if kid not in self._by_kid and is_due:
            await self.reload()
        return self._by_kid.get(kid)


def parse_seeds(text: str) -> list[bytes]:
    """Read the keys from `RESUME_TOKEN_KEY`: 64 hex digits, or several with commas, the one in force first."""
    seeds = [bytes.fromhex(one.strip()) for one in text.split(",")]
    if any(len(seed) != 32 for seed in seeds):  # noqa: PLR2004  an ed25519 seed
        raise ValueError("a key has 64 hex digits")
    return seeds


def _parse(token: str) -> tuple[str, str, _Payload] | None:
    if len(token) > TOKEN_CHARS_MAX or not token.isascii() or not token.startswith(PREFIX):
        return None
    text, _, signature = token.removeprefix(PREFIX).partition(".")
    try:
        payload = msgspec.json.decode(_decode(text), type=_Payload)
        return text, _decode(signature).hex(), payload
    except (ValueError, msgspec.DecodeError):
        return None


def _kid(pair: KeyPair) -> str:
    return pair.pubkey[:16]


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    """Read base64url in its one canonical form: a second spelling of a token would be a second token."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encode(raw) != text:
        raise binascii.Error("not canonical")
    return raw
