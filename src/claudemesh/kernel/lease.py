"""IDEA 3. The lease: one owner at a time, for a time, under a token that only grows.

A worker that was paused past its lease still believes it holds it. The token is what stops it: every grant raises
it by one, every write carries it, and a write with an older token is refused, deletes and clean-ups included.

`judge` is the whole rule. A store says the same sentence again in SQL, where it is atomic. A lease is live while
`now_ms < expires_at_ms`.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never


@dataclass(frozen=True, slots=True)
class Lease:
    """What stands. A vacant lease keeps the last token, so that the next grant is greater."""

    owner: str | None
    token: int
    expires_at_ms: int

    def is_live(self, now_ms: int) -> bool:
        return self.owner is not None and now_ms < self.expires_at_ms


NEVER_HELD: Final = Lease(owner=None, token=0, expires_at_ms=0)

# --- what can be asked -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acquire:
    owner: str
    ttl_ms: int

    def __post_init__(self) -> None:
        _check_ttl(self.ttl_ms)


@dataclass(frozen=True, slots=True)
class Reclaim:
    """The owner has proven anew who it is: what still acts for it under the old token is fenced from now on."""

    owner: str
    ttl_ms: int

    def __post_init__(self) -> None:
        _check_ttl(self.ttl_ms)


@dataclass(frozen=True, slots=True)
class Renew:
    owner: str
    token: int
    ttl_ms: int

    def __post_init__(self) -> None:
        _check_ttl(self.ttl_ms)


@dataclass(frozen=True, slots=True)
class Release:
    owner: str
    token: int


@dataclass(frozen=True, slots=True)
class Fence:
    """May this owner write under this token, now?"""

    owner: str
    token: int


Request = Acquire | Reclaim | Renew | Release | Fence

# --- what is answered ------------------------------------------------------------------------------


class LostBecause(StrEnum):
    NOT_OWNER = "not_owner"
    STALE_TOKEN = "stale_token"  # noqa: S105  a reason, not a password
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Granted:
    """`lease` is what stands from now on; for a Fence it is what stood already."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Held:
    by: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Lost:
    because: LostBecause


Verdict = Granted | Held | Lost


def judge(standing: Lease, request: Request, now_ms: int) -> Verdict:
    """Decide one request against what stands. Total: every lease, request and instant has an answer."""
    match request:
        case Acquire():
            return _acquire(standing, request, now_ms)
        case Reclaim():
            return _reclaim(standing, request, now_ms)
        case Renew() | Release() | Fence():
            refusal = _refusal(standing, request.owner, request.token, now_ms)
            return Lost(refusal) if refusal else Granted(_apply(standing, request, now_ms))
        case _:
            assert_never(request)


def _acquire(standing: Lease, request: Acquire, now_ms: int) -> Granted | Held:
    if standing.owner is not None and standing.is_live(now_ms):
        # Also for its own owner: two threads of one worker are two claimers. One that returns renews or reclaims.
        return Held(by=standing.owner, until_ms=standing.expires_at_ms)
    return Granted(Lease(request.owner, standing.token + 1, now_ms + request.ttl_ms))


def _reclaim(standing: Lease, request: Reclaim, now_ms: int) -> Granted | Held:
    if not standing.is_live(now_ms):
        return _acquire(standing, Acquire(request.owner, request.ttl_ms), now_ms)
    if standing.owner is not None and standing.owner != request.owner:
        return Held(by=standing.owner, until_ms=standing.expires_at_ms)
    return Granted(Lease(request.owner, standing.token + 1, max(standing.expires_at_ms, now_ms + request.ttl_ms)))


def _refusal(standing: Lease, owner: str, token: int, now_ms: int) -> LostBecause | None:
    if token != standing.token:
        return LostBecause.STALE_TOKEN
    if owner != standing.owner:
        return LostBecause.NOT_OWNER
    if not standing.is_live(now_ms):
        return LostBecause.EXPIRED
    return None


def _apply(standing: Lease, request: Renew | Release | Fence, now_ms: int) -> Lease:
    match request:
        case Renew():
            # A renewal never takes time away that was granted before.
            return replace(standing, expires_at_ms=max(standing.expires_at_ms, now_ms + request.ttl_ms))
        case Release():
            return replace(standing, owner=None, expires_at_ms=now_ms)
        case Fence():
            return standing
        case _:
            assert_never(request)


def _check_ttl(ttl_ms: int) -> None:
    if ttl_ms <= 0:
        raise ValueError(f"a lease of {ttl_ms} ms is no lease")
