"""What a proven hello does to the leases of its key, and what of it others are told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from claudemesh.broker.model import Displaced, Meeting
from claudemesh.broker.policy import INSTANCES_MAX, judge_meeting
from claudemesh.broker.presence.model import Arrival, Met, ResumeClaim, StandingLease, What
from claudemesh.kernel.errors import IntegrityError
from claudemesh.kernel.lease import NEVER_HELD, Acquire, Granted, Lease, Reclaim, judge

SEED_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """What a hello comes to.

    `goes_on` is the lease that it takes over, None for a new one; `lease` is what stands from now on. `expired` had
    run out before and nobody had noticed: they end first. `superseded` end because of it. `displaced` are the
    connections that have to go; `met` is whom it met, also those who were away.
    """

    lease: Lease
    goes_on: StandingLease | None
    what: What
    resumed: bool
    expired: list[StandingLease]
    superseded: list[StandingLease]
    displaced: list[Displaced]
    met: list[Met]


@dataclass(frozen=True, slots=True)
class Refused:
    """Another instance stands, and the mesh prefers the oldest; or as many as may stand side by side."""

    instance_id: str


def judge_attach(
    standing: Sequence[StandingLease], arrival: Arrival, *, uid: str, now_ms: int, ttl_ms: int
) -> Attach | Refused:
    """Judge a hello against all leases of its key that have not ended; `uid` is for a new one.

    A lease in grace keeps its place: who was there first is not replaced because its network failed for a moment.
    """
    identity, claim = arrival.identity, arrival.claim
    live = [one for one in standing if one.as_lease(now_ms, ttl_ms).is_live(now_ms)]
    resumed = next((one for one in live if claim is not None and _is_claimed(one, claim)), None)
    mine = resumed or next((one for one in live if one.instance_id == identity.instance_id), None)
    others = [
        (one, judge_meeting(identity.mesh.policy, one.instance_id, identity.instance_id))
        for one in live
        if one is not mine
    ]
    oldest = next((one for one, meeting in others if meeting is Meeting.REFUSED), None)
    if mine is None and oldest is not None:
        return Refused(oldest.instance_id)
    shared = [one for one, meeting in others if meeting is Meeting.SHARED]
    if mine is None and len(shared) >= INSTANCES_MAX:
        return Refused(shared[0].instance_id)
    going = [(one, meeting) for one, meeting in others if meeting in (Meeting.SUPERSEDED, Meeting.REPLACED)]
    displaced = [*going, *([] if mine is None else [(mine, Meeting.REPLACED)])]
    met = [*others, *((one, why) for one, why in displaced if one is mine and one.seat is not None)]
    return Attach(
        lease=_grant(mine, uid, now_ms, ttl_ms),
        goes_on=mine,
        what=_what(mine, is_there=bool(live)),
        resumed=resumed is not None,
        expired=[one for one in standing if one not in live],
        superseded=[one for one, _ in going],
        displaced=[Displaced(one.seat, why) for one, why in displaced if one.seat is not None],
        met=[Met(one.instance_id, why) for one, why in met],
    )


def is_left_to_member(attach: Attach, arrival: Arrival) -> bool:
    """Say whether a session gets nothing itself from now on: what names it is its member's, as if it had ended."""
    goes_on = attach.goes_on
    return goes_on is not None and not goes_on.is_presence_only and arrival.identity.is_presence_only


def derive_end(*, is_still_there: bool) -> What:
    """Return what the end of a lease is to others: a departure, unless another lease of its key stands."""
    return What.ENDED if is_still_there else What.LEFT


def derive_lease_until(now_ms: int, silent_ms: int, ttl_ms: int) -> int:
    """Return until when a lease stands whose socket is gone: a lease's time after the last sign of life."""
    return now_ms - silent_ms + ttl_ms


def derive_seeds(kept: bytes, fresh: bytes, *, rotates: bool) -> list[bytes]:
    """Return the seeds of the keys of resume tokens, given those that are kept, one after the other.

    The fresh one is the first if there is none, or if it is to take over; then the one before it stays good, so
    that tokens that are under way are not void.
    """
    seeds = [kept[at : at + SEED_BYTES] for at in range(0, len(kept), SEED_BYTES)]
    return [fresh, *seeds[:1]] if rotates or not seeds else seeds


def _is_claimed(standing: StandingLease, claim: ResumeClaim) -> bool:
    return (standing.uid, standing.token) == (claim.presence_uid, claim.token)


def _grant(mine: StandingLease | None, uid: str, now_ms: int, ttl_ms: int) -> Lease:
    if mine is None:
        verdict = judge(NEVER_HELD, Acquire(uid, ttl_ms), now_ms)
    else:
        verdict = judge(mine.as_lease(now_ms, ttl_ms), Reclaim(mine.uid, ttl_ms), now_ms)
    if not isinstance(verdict, Granted):
        raise IntegrityError("a lease was not granted to its own holder")
    return verdict.lease


def _what(mine: StandingLease | None, *, is_there: bool) -> What:
    if mine is None:
        return What.BEGUN if is_there else What.JOINED
    return What.ONLINE if mine.seat is None else What.SWAPPED
