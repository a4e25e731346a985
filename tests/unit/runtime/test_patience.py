"""Waiting with a bound."""

from claudemesh.runtime.patience import wait_until


def test_an_attempt_is_repeated_until_it_succeeds() -> None:
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), within_s=30)


def test_an_attempt_that_never_succeeds_ends_in_time_and_was_made_at_least_once() -> None:
    tried: list[int] = []
    assert not wait_until(lambda: bool(tried.append(1)), within_s=0)
    assert tried == [1]
