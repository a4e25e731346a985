"""One owner at a time, for a time, under a token that only grows."""

import pytest

from claudemesh.kernel.lease import (
    NEVER_HELD,
    Acquire,
    Fence,
    Granted,
    Held,
    Lease,
    Lost,
    LostBecause,
    Reclaim,
    Release,
    Renew,
    judge,
)

ANA = Lease(owner="ana", token=3, expires_at_ms=1_000)


def test_what_was_never_held_is_granted_under_token_one() -> None:
    assert judge(NEVER_HELD, Acquire("ana", 500), 100) == Granted(Lease("ana", 1, 600))


def test_a_live_lease_names_its_holder_and_its_end() -> None:
    assert judge(ANA, Acquire("ben", 500), 999) == Held("ana", 1_000)


def test_a_live_lease_is_not_granted_again_to_its_own_owner() -> None:
    assert judge(ANA, Acquire("ana", 500), 999) == Held("ana", 1_000)


def test_at_its_last_instant_a_lease_is_over() -> None:
    assert judge(ANA, Acquire("ben", 500), 1_000) == Granted(Lease("ben", 4, 1_500))
    assert judge(ANA, Fence("ana", 3), 1_000) == Lost(LostBecause.EXPIRED)
    assert judge(ANA, Fence("ana", 3), 999) == Granted(ANA)


def test_a_renewal_adds_time_and_keeps_owner_and_token() -> None:
    assert judge(ANA, Renew("ana", 3, 5_000), 900) == Granted(Lease("ana", 3, 5_900))


def test_a_renewal_never_takes_time_away() -> None:
    assert judge(ANA, Renew("ana", 3, 1), 900) == Granted(ANA)


def test_a_released_lease_is_free_at_once_and_the_next_token_is_greater() -> None:
    released = judge(ANA, Release("ana", 3), 500)
    assert released == Granted(Lease(None, 3, 500))
    assert judge(released.lease, Acquire("ben", 10), 500) == Granted(Lease("ben", 4, 510))


@pytest.mark.req("P2")
def test_an_owner_that_proves_itself_anew_goes_on_under_a_greater_token_and_fences_what_acted_before() -> None:
    reclaimed = judge(ANA, Reclaim("ana", 5_000), 900)
    assert reclaimed == Granted(Lease("ana", 4, 5_900))
    assert judge(reclaimed.lease, Fence("ana", 3), 900) == Lost(LostBecause.STALE_TOKEN)
    assert judge(ANA, Reclaim("ana", 1), 900) == Granted(Lease("ana", 4, 1_000)), "no time is taken away"


def test_nobody_else_reclaims_a_lease_that_lives() -> None:
    assert judge(ANA, Reclaim("ben", 5_000), 999) == Held("ana", 1_000)


@pytest.mark.parametrize("owner", ["ana", "ben"])
@pytest.mark.parametrize(
    "standing", [ANA, Lease(None, 3, 1_000), Lease(None, 3, 9_999)], ids=["over", "free", "free-long"]
)
def test_what_nobody_holds_any_more_is_reclaimed_as_it_is_acquired(owner: str, standing: Lease) -> None:
    assert judge(standing, Reclaim(owner, 500), 1_000) == Granted(Lease(owner, 4, 1_500))
    assert judge(standing, Reclaim(owner, 500), 1_000) == judge(standing, Acquire(owner, 500), 1_000)


@pytest.mark.parametrize("ask", [lambda o, t: Renew(o, t, 10), Release, Fence], ids=["renew", "release", "fence"])
@pytest.mark.parametrize(
    ("owner", "token", "now_ms", "because"),
    [
        ("ana", 2, 500, LostBecause.STALE_TOKEN),
        ("ana", 4, 500, LostBecause.STALE_TOKEN),
        ("ben", 3, 500, LostBecause.NOT_OWNER),
        ("ana", 3, 1_000, LostBecause.EXPIRED),
        ("ben", 2, 2_000, LostBecause.STALE_TOKEN),
    ],
)
def test_whoever_lost_the_lease_learns_why(ask: object, owner: str, token: int, now_ms: int, because: str) -> None:
    assert judge(ANA, ask(owner, token), now_ms) == Lost(because)


@pytest.mark.parametrize("ttl_ms", [0, -1])
def test_a_lease_without_a_length_cannot_even_be_asked_for(ttl_ms: int) -> None:
    with pytest.raises(ValueError, match="no lease"):
        Acquire("ben", ttl_ms)
    with pytest.raises(ValueError, match="no lease"):
        Reclaim("ana", ttl_ms)
    with pytest.raises(ValueError, match="no lease"):
        Renew("ana", 3, ttl_ms)
