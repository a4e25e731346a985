"""What a hello does to the leases of its key, as a table."""

from itertools import product

import pytest

from claudemesh.broker.model import ConnectionPolicy, Displaced, Meeting
from claudemesh.broker.presence.model import Arrival, Met, ResumeClaim, StandingLease, What
from claudemesh.broker.presence.policy import (
    SEED_BYTES,
    Attach,
    Refused,
    derive_end,
    derive_lease_until,
    derive_seeds,
    judge_attach,
)
from claudemesh.kernel.lease import Lease
from tests.unit.broker.people import identity

NOW, TTL = 1_000_000, 90_000
NEWEST, OLDEST, SHARED = (
    ConnectionPolicy.PREFER_NEWEST,
    ConnectionPolicy.PREFER_OLDEST,
    ConnectionPolicy.ALLOW_CONCURRENT,
)


def lease(
    number: int = 1, instance: str = "same", state: str = "online", *, token: int = 5, until: int | None = None
) -> StandingLease:
    """Return one that has not ended; of one that ran out nobody has noticed it yet."""
    ends = {"online": None, "grace": NOW + 1, "expired": NOW}[state]
    return StandingLease(
        id=number,
        uid=f"lease-{number}",
        instance_id=instance,
        token=token,
        seat=number + 100 if state == "online" else None,
        lease_until=until or ends,
    )


def claim(standing: StandingLease, kind: str = "good") -> ResumeClaim | None:
    return {
        "good": ResumeClaim(standing.uid, standing.token),
        "stale": ResumeClaim(standing.uid, standing.token - 1),
        "none": None,
    }[kind]


def attach(
    standing: list[StandingLease],
    instance: str = "same",
    policy: ConnectionPolicy = NEWEST,
    claimed: ResumeClaim | None = None,
) -> Attach | Refused:
    arrival = Arrival(identity(1, instance=instance, policy=policy), claimed)
    return judge_attach(standing, arrival, uid="fresh", now_ms=NOW, ttl_ms=TTL)


def attached(
    standing: list[StandingLease],
    instance: str = "same",
    policy: ConnectionPolicy = NEWEST,
    claimed: ResumeClaim | None = None,
) -> Attach:
    found = attach(standing, instance, policy, claimed)
    assert isinstance(found, Attach)
    return found


# --- one lease stands ------------------------------------------------------------------------------

# What becomes of it while it lives, by who comes with which token; of one that ran out nothing is left to decide.
GOES_ON, RESUMED, BESIDE, TAKEN_OVER, REFUSED, NEW = "goes on", "resumed", "beside", "taken over", "refused", "new"
LIVING = {
    ("same", "good"): dict.fromkeys(ConnectionPolicy, RESUMED),
    ("same", "stale"): dict.fromkeys(ConnectionPolicy, GOES_ON),
    ("same", "none"): dict.fromkeys(ConnectionPolicy, GOES_ON),
    ("other", "good"): dict.fromkeys(ConnectionPolicy, RESUMED),
    ("other", "stale"): {NEWEST: TAKEN_OVER, OLDEST: REFUSED, SHARED: BESIDE},
    ("other", "none"): {NEWEST: TAKEN_OVER, OLDEST: REFUSED, SHARED: BESIDE},
}
TABLE = [
    (policy, instance, state, token, NEW if state == "expired" else LIVING[instance, token][policy])
    for policy, instance, state, token in product(
        ConnectionPolicy, ("same", "other"), ("online", "grace", "expired"), ("good", "stale", "none")
    )
]


@pytest.mark.req("P2", "P3", "P4", "N4")
@pytest.mark.parametrize(("policy", "instance", "state", "token", "outcome"), TABLE)
def test_what_a_hello_does_to_the_one_lease_of_its_key(
    policy: ConnectionPolicy, instance: str, state: str, token: str, outcome: str
) -> None:
    standing = lease(1, "same", state)
    found = attach([standing], instance, policy, claim(standing, token))
    if outcome == REFUSED:
        assert found == Refused("same")
        return
    assert isinstance(found, Attach)
    goes_on = outcome in (GOES_ON, RESUMED)
    is_online = state == "online"
    assert found == Attach(
        lease=Lease(standing.uid if goes_on else "fresh", standing.token + 1 if goes_on else 1, NOW + TTL),
        goes_on=standing if goes_on else None,
        what=(
            (What.SWAPPED if is_online else What.ONLINE)
            if goes_on
            else {NEW: What.JOINED, BESIDE: What.BEGUN, TAKEN_OVER: What.BEGUN}[outcome]
        ),
        resumed=outcome == RESUMED,
        expired=[standing] if outcome == NEW else [],
        superseded=[standing] if outcome == TAKEN_OVER else [],
        displaced=[
            Displaced(101, Meeting.REPLACED if goes_on else Meeting.SUPERSEDED)
            for _ in range(is_online and outcome != BESIDE)
        ],
        met={
            NEW: [],
            BESIDE: [Met("same", Meeting.SHARED)],
            TAKEN_OVER: [Met("same", Meeting.SUPERSEDED)],
        }.get(outcome, [Met("same", Meeting.REPLACED)] if is_online else []),
    )


@pytest.mark.req("P2", "P5")
@pytest.mark.parametrize("policy", [*ConnectionPolicy])
@pytest.mark.parametrize("claimed", [None, ResumeClaim("lease-1", 5)])
def test_who_has_no_lease_joins(policy: ConnectionPolicy, claimed: ResumeClaim | None) -> None:
    found = attached([], "same", policy, claimed)
    assert (found.what, found.lease, found.resumed) == (What.JOINED, Lease("fresh", 1, NOW + TTL), False)
    assert (found.goes_on, found.expired, found.superseded, found.displaced) == (None, [], [], [])


@pytest.mark.req("P3")
@pytest.mark.parametrize(("left_ms", "what"), [(1, What.ONLINE), (0, What.JOINED), (-1, What.JOINED)])
def test_a_lease_ends_at_its_instant_and_not_after(left_ms: int, what: What) -> None:
    assert attached([lease(state="grace", until=NOW + left_ms)]).what is what


@pytest.mark.req("P6")
@pytest.mark.parametrize(
    "claimed", [ResumeClaim("lease-2", 5), ResumeClaim("lease-1", 4), ResumeClaim("lease-1", 6), ResumeClaim("", 5)]
)
def test_a_claim_to_another_lease_or_another_of_its_sockets_resumes_nothing(claimed: ResumeClaim) -> None:
    found = attached([lease(state="grace")], "same", NEWEST, claimed)
    assert (found.resumed, found.what) == (False, What.ONLINE)
    assert attach([lease(state="grace")], "other", OLDEST, claimed) == Refused("same")


@pytest.mark.req("P6")
def test_a_token_is_good_once() -> None:
    standing = lease(state="grace")
    resumed = attached([standing], claimed=claim(standing))
    assert resumed.resumed
    after = lease(token=resumed.lease.token)
    again = attached([after], claimed=claim(standing))
    assert (again.resumed, again.goes_on) == (False, after)


# --- several stand ---------------------------------------------------------------------------------


@pytest.mark.req("N4")
def test_where_several_are_allowed_each_instance_goes_on_with_its_own_and_the_others_stay() -> None:
    standing = [lease(1, "a"), lease(2, "b", "grace"), lease(3, "c")]
    found = attached(standing, "b", SHARED)
    assert (found.goes_on, found.what) == (standing[1], What.ONLINE)
    assert (found.superseded, found.expired, found.displaced) == ([], [], [])
    new = attached(standing, "d", SHARED)
    assert (new.goes_on, new.what, new.superseded, new.displaced) == (None, What.BEGUN, [], [])


@pytest.mark.req("N4")
def test_when_the_policy_became_prefer_newest_all_others_have_to_go() -> None:
    standing = [lease(1, "a"), lease(2, "b", "grace"), lease(3, "c"), lease(4, "d", "expired")]
    found = attached(standing, "c", NEWEST)
    assert (found.goes_on, found.what) == (standing[2], What.SWAPPED)
    assert (found.superseded, found.expired) == (standing[:2], standing[3:])
    assert found.displaced == [
        Displaced(101, Meeting.SUPERSEDED),
        Displaced(103, Meeting.REPLACED),
    ]
    assert attached(standing, "e", NEWEST).displaced == [
        Displaced(101, Meeting.SUPERSEDED),
        Displaced(103, Meeting.SUPERSEDED),
    ]


@pytest.mark.req("N4")
def test_when_the_policy_became_prefer_oldest_those_who_are_there_stay_and_nobody_new_comes() -> None:
    standing = [lease(1, "a"), lease(2, "b", "grace")]
    for number, instance in enumerate(("a", "b")):
        found = attached(standing, instance, OLDEST)
        assert (found.goes_on, found.superseded) == (standing[number], [])
    assert attach(standing, "c", OLDEST) == Refused("a")
    assert attached([lease(1, "a", "expired"), lease(2, "b", "expired")], "c", OLDEST).what is What.JOINED


@pytest.mark.req("N4")
@pytest.mark.parametrize("policy", [*ConnectionPolicy])
def test_who_resumes_another_instances_lease_gives_its_own_up_and_its_own_socket_is_merely_replaced(
    policy: ConnectionPolicy,
) -> None:
    standing = [lease(1, "a", "grace"), lease(2, "b")]
    found = attached(standing, "b", policy, claim(standing[0]))
    assert (found.goes_on, found.resumed, found.what) == (standing[0], True, What.ONLINE)
    assert found.superseded == [standing[1]]
    assert found.displaced == [Displaced(102, Meeting.REPLACED)], "one that was told 4003 would stay away"


@pytest.mark.req("P5")
def test_of_several_that_ran_out_all_end_before_somebody_joins() -> None:
    standing = [lease(1, "a", "expired"), lease(2, "b", "expired")]
    found = attached(standing, "a", SHARED)
    assert (found.what, found.goes_on, found.expired) == (What.JOINED, None, standing)
    one_lives = attached([standing[0], lease(2, "b", "grace")], "a", SHARED)
    assert (one_lives.what, one_lives.expired) == (What.BEGUN, [standing[0]])


# --- the small rules -------------------------------------------------------------------------------


@pytest.mark.req("P5")
def test_the_end_of_a_lease_is_a_departure_unless_another_of_its_key_stands() -> None:
    assert derive_end(is_still_there=False) is What.LEFT
    assert derive_end(is_still_there=True) is What.ENDED


@pytest.mark.req("P1", "P3")
@pytest.mark.parametrize(("silent_ms", "until"), [(0, NOW + TTL), (75_000, NOW + 15_000), (TTL, NOW)])
def test_a_lease_without_its_socket_stands_from_the_last_sign_of_life(silent_ms: int, until: int) -> None:
    assert derive_lease_until(NOW, silent_ms, TTL) == until


@pytest.mark.req("P6")
def test_a_key_of_tokens_is_kept_and_after_a_rotation_the_one_before_it_stays_good() -> None:
    a, b, c = (bytes([number]) * SEED_BYTES for number in range(3))
    assert derive_seeds(b"", a, rotates=False) == [a]
    assert derive_seeds(b"", a, rotates=True) == [a]
    assert derive_seeds(a, b, rotates=False) == [a]
    assert derive_seeds(a, b, rotates=True) == [b, a]
    assert derive_seeds(b + a, c, rotates=False) == [b, a]
    assert derive_seeds(b + a, c, rotates=True) == [c, b]


@pytest.mark.req("N4")
def test_only_so_many_instances_of_a_key_stand_side_by_side() -> None:
    standing = [lease(number, f"i{number}") for number in range(1, 17)]
    assert attach(standing, "one more", SHARED) == Refused("i1")
    assert attached(standing, "i3", SHARED).goes_on == standing[2]
    assert attached(standing[1:], "one more", SHARED).what is What.BEGUN
