"""What can be written down, and in which form."""

import pytest

from claudemesh.kernel.errors import CassetteInvalid
from claudemesh.ledger import policy
from claudemesh.ledger.model import Job


@pytest.mark.req("L5")
def test_the_same_value_is_the_same_text() -> None:
    assert policy.render_json({"b": [1, "ä"], "a": None}, "it") == '{"a":null,"b":[1,"ä"]}'
    assert policy.render_json({"a": None, "b": [1, "ä"]}, "it") == '{"a":null,"b":[1,"ä"]}'


@pytest.mark.req("L8")
@pytest.mark.parametrize("value", [float("nan"), float("-inf"), {1}, b"", "\ud800", {"a": 1, 2: 2}])
def test_what_json_has_no_word_for_is_refused(value: object) -> None:
    with pytest.raises(CassetteInvalid, match="it is not JSON") as caught:
        policy.render_json(value, "it")
    assert caught.value.code == "ledger_invalid"


def test_what_others_wrote_down_is_read_or_stays_the_text_that_it_is() -> None:
    assert policy.parse_json("[1]") == [1]
    for text in ("{} x", "[" * 100_000, "1" * 5_000):
        assert policy.parse_json(text) == text


@pytest.mark.req("L8")
def test_jobs_have_their_own_intent_or_that_of_the_message() -> None:
    jobs = [{"steps": [1]}, {"intent": "own", "steps": [{}, None]}]
    assert policy.parse_jobs({"jobs": jobs}) == [Job("unspecified", ["1"]), Job("own", ["{}", "null"])]
    assert policy.parse_jobs({"intent": "all", "jobs": jobs}) == [Job("all", ["1"]), Job("own", ["{}", "null"])]
    assert policy.parse_jobs({"n": 1}) == [Job("unspecified", ['{"n":1}'])]


@pytest.mark.req("L8")
@pytest.mark.parametrize(
    ("ttl", "text"), [(1, "+1.000 seconds"), (0.001, "+0.001 seconds"), (366 * 86_400, "+31622400.000 seconds")]
)
def test_a_time_to_live_is_said_as_sqlite_takes_it(ttl: float, text: str) -> None:
    assert policy.render_ttl(ttl) == text


@pytest.mark.req("L8")
@pytest.mark.parametrize("ttl", [0, -1, 0.0009, 366 * 86_400 + 0.1, float("nan"), "1", None, True])
def test_a_time_to_live_that_is_none_is_refused(ttl: object) -> None:
    with pytest.raises(CassetteInvalid, match="ttl_seconds"):
        policy.render_ttl(ttl)


@pytest.mark.req("L4")
@pytest.mark.parametrize("token", [-1, 2**63, True, 1.0, "1", None])
def test_a_token_that_no_claim_gave_is_refused(token: object) -> None:
    with pytest.raises(CassetteInvalid, match="fencing token"):
        policy.check_token(token)


def test_a_token_of_a_claim_is_taken() -> None:
    assert [policy.check_token(token) for token in (0, 1, 2**63 - 1)] == [0, 1, 2**63 - 1]


@pytest.mark.parametrize("text", ["", None, 1, "a\0", "\ud800"])
def test_a_text_that_is_none_is_refused(text: object) -> None:
    with pytest.raises(CassetteInvalid, match="run_id"):
        policy.check_text(text, "run_id")


@pytest.mark.req("L1")
def test_words_outside_of_their_list_are_refused_in_the_words_that_callers_know() -> None:
    for check, word in (
        (policy.check_source, "source"),
        (policy.check_outcome, "outcome"),
        (policy.check_status, "status"),
    ):
        with pytest.raises(CassetteInvalid, match=f"Invalid {word}: 'x'"):
            check("x")
    assert policy.check_status("LEASED") == "LEASED"
