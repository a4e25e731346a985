"""When to try again."""

import pytest

from claudemesh.kernel.retry import derive_backoff_ms

ALMOST_ONE = 1 - 2**-53


@pytest.mark.req("F5")
def test_the_ceiling_doubles_from_half_a_second_to_a_minute() -> None:
    ceilings = [derive_backoff_ms(attempts, ALMOST_ONE) for attempts in range(1, 11)]
    assert ceilings == [499, 999, 1999, 3999, 7999, 15999, 31999, 59999, 59999, 59999]
    assert derive_backoff_ms(10**9, ALMOST_ONE) == 59_999


@pytest.mark.req("F5")
def test_the_wait_is_spread_over_the_whole_range_below_the_ceiling() -> None:
    assert [derive_backoff_ms(8, jitter) for jitter in (0, 0.25, 0.5, 0.75)] == [0, 15_000, 30_000, 45_000]


@pytest.mark.req("F5")
def test_a_retry_after_is_waited_out_and_the_jitter_comes_on_top() -> None:
    assert derive_backoff_ms(1, 0, retry_after_ms=90_000) == 90_000
    assert derive_backoff_ms(1, 0.5, retry_after_ms=90_000) == 90_250
    assert derive_backoff_ms(1, 0.5, retry_after_ms=-5) == 250


@pytest.mark.parametrize(("attempts", "jitter"), [(0, 0.5), (-1, 0.5), (1, 1.0), (1, -0.1), (1, float("nan"))])
def test_nonsense_is_refused(attempts: int, jitter: float) -> None:
    with pytest.raises(ValueError, match=r"nothing has failed|jitter"):
        derive_backoff_ms(attempts, jitter)
