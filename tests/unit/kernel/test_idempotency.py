"""Keys, which answers are kept, and what a second request meets."""

import pytest

from claudemesh.kernel.admission import FRESH, Busy, Conflict, Fresh, Replay
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.idempotency import MarkState, StandingMark, is_kept, judge_begin, parse_key, render_key
from claudemesh.kernel.lease import Lease
from claudemesh.kernel.write_errors import BadIdempotencyKey

pytestmark = pytest.mark.req("R1")

MINE, OTHER = Fingerprint(b"m" * 32), Fingerprint(b"o" * 32)
LEASE_END, EXPIRY = 500, 10_000


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("k", "k"),
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ('"8e03978e-40d5"', "8e03978e-40d5"),
        ("a,b;c=d", "a,b;c=d"),
        ("back\\slash", "back\\slash"),
        (r'"say \"hi\" \\"', None),
        (r'"say\"hi\"\\"', 'say"hi"\\'),
        ("x" * 255, "x" * 255),
        (f'"{"x" * 255}"', "x" * 255),
        ("x" * 256, None),
        (f'"{"x" * 256}"', None),
        ("", None),
        ('""', None),
        ('"', None),
        ('"open', None),
        ('close"', None),
        ('a"b', None),
        ('"a"b"', None),
        ('"a", "b"', None),
        ('"a";p=1', None),
        (r'"a\n"', None),
        ("two words", None),
        ("tab\t", None),
        ("nul\0", None),
        ("line\n", None),
        ("é", None),
        ("\x7f", None),
    ],
)
def test_a_key_is_visible_ascii_quoted_or_bare(value: str, key: str | None) -> None:
    if key is None:
        with pytest.raises(BadIdempotencyKey):
            parse_key(value)
    else:
        assert parse_key(value) == key


def test_successes_and_settled_refusals_are_kept_and_nothing_else() -> None:
    refusals = {status for status in range(400, 500) if not is_kept(status)}
    assert refusals == {401, 403, 408, 409, 412, 425, 429}
    assert all(is_kept(status) for status in range(200, 300))
    assert not any(is_kept(status) for status in (*range(100, 200), *range(300, 400), *range(500, 600)))


def standing(state: MarkState, fingerprint: Fingerprint = MINE) -> StandingMark:
    return StandingMark(state, fingerprint, Lease("worker", 1, LEASE_END), EXPIRY)


@pytest.mark.parametrize(
    ("state", "fingerprint", "now_ms", "lease_now_ms", "verdict"),
    [
        (MarkState.IN_PROGRESS, MINE, 0, LEASE_END - 1, Busy),
        (MarkState.IN_PROGRESS, MINE, 0, LEASE_END, Fresh),
        (MarkState.IN_PROGRESS, MINE, EXPIRY, LEASE_END - 1, Busy),
        (MarkState.IN_PROGRESS, OTHER, 0, LEASE_END, Conflict),
        (MarkState.IN_PROGRESS, OTHER, EXPIRY, LEASE_END, Fresh),
        (MarkState.SETTLED, MINE, EXPIRY - 1, LEASE_END, Replay),
        (MarkState.SETTLED, MINE, EXPIRY, 0, Fresh),
        (MarkState.SETTLED, OTHER, 0, LEASE_END, Conflict),
        (MarkState.STATUS_ONLY, MINE, 0, LEASE_END, Conflict),
        (MarkState.STATUS_ONLY, OTHER, 0, LEASE_END, Conflict),
    ],
)
def test_who_may_begin(
    state: MarkState, fingerprint: Fingerprint, now_ms: int, lease_now_ms: int, verdict: type
) -> None:
    assert isinstance(judge_begin(standing(state, fingerprint), MINE, now_ms, lease_now_ms), verdict)


def test_under_a_key_that_nobody_used_one_begins() -> None:
    assert judge_begin(None, MINE, 0, 0) == FRESH


@pytest.mark.parametrize("key", ["k", "back\\slash", 'a"b', '"x"', '\\"', '"', "x#1"])
def test_a_key_is_the_same_key_after_it_was_passed_on(key: str) -> None:
    assert parse_key(render_key(key)) == key
