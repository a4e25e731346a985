"""How often to ask, when to hang up, and how long a lease outlives that."""

import pytest

from claudemesh.kernel.rhythm import PINGS_A_SILENCE, TICK_MS_MAX, TICK_MS_MIN, Rhythm, derive_rhythm

CONTRACT = Rhythm(lease_ttl_ms=90_000, ping_interval_ms=30_000, stale_pong_ms=75_000)


@pytest.mark.req("P1", "P7")
def test_the_times_are_those_of_the_contract_unless_one_is_told_others() -> None:
    assert Rhythm() == CONTRACT == derive_rhythm(90_000, 30_000, 75_000)


@pytest.mark.req("P7")
@pytest.mark.parametrize(
    ("told", "rhythm"),
    [
        ((6_000, 2_000, 5_000), Rhythm(6_000, 2_000, 5_000)),
        ((90_000, 30_000, 500_000), Rhythm(90_000, 30_000, 90_000)),
        ((2_000, 30_000, 75_000), Rhythm(2_000, 1_000, 2_000)),
        ((90_000, 80_000, 75_000), Rhythm(90_000, 37_500, 75_000)),
        ((1, 1, 1), Rhythm(1, 1, 1)),
    ],
    ids=["as told", "beyond the lease", "only the lease is short", "asked too seldom", "the least"],
)
def test_a_silent_connection_ends_with_its_lease_at_the_latest_and_is_asked_before(
    told: tuple[int, int, int], rhythm: Rhythm
) -> None:
    assert derive_rhythm(*told) == rhythm


@pytest.mark.req("P7")
@pytest.mark.parametrize(
    ("interval_ms", "tick_ms"),
    [(30_000, TICK_MS_MAX), (2_000, 200), (100, TICK_MS_MIN), (1, TICK_MS_MIN)],
)
def test_one_looks_often_enough_to_be_right_within_an_interval_and_not_all_the_time(
    interval_ms: int, tick_ms: int
) -> None:
    assert Rhythm(ping_interval_ms=interval_ms).tick_ms == tick_ms


@pytest.mark.parametrize("lease_ms", [2_000, 6_000, 90_000])
def test_whatever_is_told_enough_pings_go_out_before_the_end(lease_ms: int) -> None:
    for interval_ms in (1, 999, 30_000, 10**9):
        for stale_ms in (2, 75_000, 10**9):
            rhythm = derive_rhythm(lease_ms, interval_ms, stale_ms)
            assert rhythm.ping_interval_ms * PINGS_A_SILENCE <= rhythm.stale_pong_ms <= rhythm.lease_ttl_ms
