"""Who may ask, how much at once, and in which form."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claudemesh.asgi.policy import Names, RateLimit, full_bucket, judge_caller, judge_form, take
from claudemesh.kernel.errors import MeshError

LIMIT = RateLimit(per_s=100, burst=1_000)
NAMES = Names.of_loopback(7450)


def code_of(refusal: MeshError | None) -> str | None:
    return refusal.code if refusal else None


# --- how much --------------------------------------------------------------------------------------


@pytest.mark.req("D13")
def test_a_burst_passes_and_the_next_one_waits_for_its_refill() -> None:
    bucket = full_bucket(LIMIT, 0)
    waits = []
    for _ in range(1_001):
        bucket, wait_ms = take(bucket, LIMIT, 0)
        waits.append(wait_ms)
    assert waits == [0] * 1_000 + [10]
    assert take(bucket, LIMIT, 9)[1] == 1
    assert take(bucket, LIMIT, 10)[1] == 0


@pytest.mark.req("D13")
@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 50), st.lists(st.integers(0, 400), max_size=200), st.integers(-500, 500))
def test_never_more_pass_than_the_burst_and_what_time_has_refilled(
    per_s: int, burst: int, steps_ms: list[int], start_ms: int
) -> None:
    limit = RateLimit(per_s, burst)
    bucket, now_ms, passed = full_bucket(limit, start_ms), start_ms, 0
    for step_ms in steps_ms:
        now_ms += step_ms
        bucket, wait_ms = take(bucket, limit, now_ms)
        passed += wait_ms == 0
        assert passed * 1_000 <= burst * 1_000 + (now_ms - start_ms) * per_s
        if wait_ms:
            assert take(bucket, limit, now_ms + wait_ms)[1] == 0
            assert take(bucket, limit, now_ms + wait_ms - 1)[1] > 0


def test_a_clock_that_steps_back_refills_nothing() -> None:
    empty, _ = take(full_bucket(RateLimit(1, 1), 10_000), RateLimit(1, 1), 10_000)
    assert take(empty, RateLimit(1, 1), 5_000)[1] == 1_000


# --- who -------------------------------------------------------------------------------------------


@pytest.mark.req("D15")
@pytest.mark.parametrize("host", [b"127.0.0.1:7450", b"localhost:7450", b"[::1]:7450", b"LocalHost:7450"])
def test_a_loopback_name_with_our_port_is_let_in(host: bytes) -> None:
    assert judge_caller(NAMES, "GET", [host], []) is None


@pytest.mark.req("D15")
@pytest.mark.parametrize(
    "host",
    [
        b"evil.example",
        b"evil.example:7450",
        b"127.0.0.1.evil.example:7450",
        b"localhost.:7450",
        b"localhost",
        b"127.0.0.1",
        b"127.0.0.1:7451",
        b"127.0.0.1:07450",
        b"127.0.0.2:7450",
        b"2130706433:7450",
        b"0.0.0.0:7450",
        b"user@127.0.0.1:7450",
        b"127.0.0.1:7450, evil.example",
        b"",
    ],
)
def test_any_other_host_is_refused(host: bytes) -> None:
    assert code_of(judge_caller(NAMES, "GET", [host], [])) == "bad_host"


@pytest.mark.req("R2")
def test_where_any_name_will_do_no_origin_does() -> None:
    assert judge_caller(None, "GET", [b"hub.example.org"], []) is None
    assert judge_caller(None, "GET", [], []) is None
    for origin in (b"http://127.0.0.1:7450", b"https://hub.example.org", b"null"):
        assert code_of(judge_caller(None, "GET", [b"hub.example.org"], [origin])) == "bad_origin"
    assert code_of(judge_caller(None, "OPTIONS", [b"hub.example.org"], [])) == "forbidden"
    assert code_of(judge_caller(None, "GET", [b"a", b"b"], [])) == "invalid_request"


@pytest.mark.req("D15")
def test_no_host_is_refused_and_two_are_not_chosen_from() -> None:
    assert code_of(judge_caller(NAMES, "GET", [], [])) == "bad_host"
    own = b"127.0.0.1:7450"
    assert code_of(judge_caller(NAMES, "GET", [own, own], [])) == "invalid_request"


@pytest.mark.req("D15")
@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        ([], None),
        ([b"http://127.0.0.1:7450"], None),
        ([b"http://localhost:7450"], None),
        ([b"https://evil.example"], "bad_origin"),
        ([b"null"], "bad_origin"),
        ([b""], "bad_origin"),
        ([b"http://localhost"], "bad_origin"),
        ([b"https://localhost:7450"], "bad_origin"),
        ([b"http://localhost:7451"], "bad_origin"),
        ([b"http://localhost:7450", b"http://localhost:7450"], "bad_origin"),
    ],
)
def test_an_origin_is_absent_or_our_own(origins: list[bytes], expected: str | None) -> None:
    assert code_of(judge_caller(NAMES, "POST", [b"localhost:7450"], origins)) == expected


@pytest.mark.req("D15")
def test_a_preflight_is_refused_even_of_our_own_origin() -> None:
    refusal = judge_caller(NAMES, "OPTIONS", [b"localhost:7450"], [b"http://localhost:7450"])
    assert code_of(refusal) == "forbidden"


# --- in which form ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (b"application/json", None),
        (b"application/json; charset=utf-8", None),
        (b'Application/JSON;charset="UTF-8"', None),
        (b"application/json; charset=utf-16", "json_only"),
        (b"text/plain", "json_only"),
        (b"text/plain; application/json", "json_only"),
        (b"application/x-www-form-urlencoded", "json_only"),
        (b"multipart/form-data; boundary=x", "json_only"),
        (b"application/jsonp", "json_only"),
        (b"", "json_only"),
        (None, "json_only"),
    ],
)
def test_a_body_is_json_and_says_so(content_type: bytes | None, expected: str | None) -> None:
    assert code_of(judge_form(content_type, None)) == expected


@pytest.mark.parametrize(
    ("encoding", "expected"), [(b"identity", None), (b"gzip", "json_only"), (b"", "json_only")]
)
def test_a_body_is_not_compressed(encoding: bytes, expected: str | None) -> None:
    assert code_of(judge_form(b"application/json", encoding)) == expected
