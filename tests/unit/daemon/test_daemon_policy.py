"""How the daemon reads a broker's answer, and what a name that changed its owner means for a retry."""

import pytest

from claudemesh.daemon.model import Destination, SendAsked, StandingRow, Submission
from claudemesh.daemon.policy import answer_standing, fingerprint, mark
from claudemesh.daemon.terms import OutboxLimits, Terms, parse
from claudemesh.kernel.errors import IdempotencyConflict, MaxAgeAboveWindow
from claudemesh.kernel.fingerprint import Kind
from claudemesh.kernel.ids import ClientMessageId
from claudemesh.kernel.outbox import OutboxEvent, OutboxState
from claudemesh.outbox.reading import SERVER_ERRORS_MAX, read_outcome

K1, K2 = Destination(Kind.DM, "1" * 64), Destination(Kind.DM, "2" * 64)


def a_submission(to: str, destination: Destination, body: str = "x") -> Submission:
    asked = SendAsked(client_message_id=ClientMessageId("m1"), to=to, body=body)
    return Submission(
        row_id="new",
        asked=asked,
        destination=destination,
        fingerprint=fingerprint(asked, destination),
        payload=b"",
        enqueued_at=0,
    )


def standing(submission: Submission, state: OutboxState = OutboxState.PENDING) -> StandingRow:
    return StandingRow(
        row_id="old",
        state=state,
        fingerprint=submission.fingerprint,
        to_asked=submission.asked.to,
        destination=submission.destination,
        broker_message_id=None,
        history_id=None,
        last_error=None,
    )


@pytest.mark.req("D2")
def test_a_retry_by_the_same_name_means_whom_its_first_try_meant() -> None:
    first, retry = a_submission("bob", K1), a_submission("bob", K2)
    assert answer_standing(standing(first), retry).status == "queued"


@pytest.mark.req("D2")
def test_another_name_is_looked_up_anew() -> None:
    first = a_submission("bob", K1)
    assert answer_standing(standing(first), a_submission(K1.ref, K1)).status == "queued"
    with pytest.raises(IdempotencyConflict):
        answer_standing(standing(first), a_submission("bobby", K2))


@pytest.mark.req("D4")
def test_a_conflict_shows_the_fingerprint_that_was_presented() -> None:
    other = a_submission("bob", K1, "other")
    with pytest.raises(IdempotencyConflict) as caught:
        answer_standing(standing(a_submission("bob", K1)), other)
    assert caught.value.fingerprint_prefix == other.fingerprint[:8].hex()


@pytest.mark.req("D7")
@pytest.mark.parametrize(
    ("status", "event"),
    [
        (201, OutboxEvent.ACCEPTED),
        (200, OutboxEvent.ACCEPTED),
        (None, OutboxEvent.FAILED),
        (408, OutboxEvent.FAILED),
        (425, OutboxEvent.FAILED),
        (429, OutboxEvent.FAILED),
        (503, OutboxEvent.FAILED),
        (400, OutboxEvent.REFUSED),
        (404, OutboxEvent.REFUSED),
        (409, OutboxEvent.REFUSED),
    ],
)
def test_an_answer_is_final_only_if_it_says_so(status: int | None, event: OutboxEvent) -> None:
    assert read_outcome(status, "code", 0, others_pass=True).event is event


@pytest.mark.req("D7")
def test_a_row_the_broker_keeps_failing_at_dies_only_while_others_pass() -> None:
    last = SERVER_ERRORS_MAX - 1
    assert read_outcome(500, None, last, others_pass=True).event is OutboxEvent.REFUSED
    assert read_outcome(500, None, last, others_pass=True).last_error == "attempts_exhausted"
    assert read_outcome(500, None, last, others_pass=False).event is OutboxEvent.FAILED
    assert read_outcome(429, None, last, others_pass=True).event is OutboxEvent.FAILED
    assert read_outcome(None, None, last, others_pass=True).event is OutboxEvent.FAILED


def test_a_destination_says_what_it_is() -> None:
    assert mark("#news") == Destination(Kind.TOPIC, "news")
    assert mark("queue:builds") == Destination(Kind.QUEUE, "builds")
    assert mark("bob") is None


@pytest.mark.req("D8")
def test_terms_give_an_age_and_refuse_one_that_is_not_safe() -> None:
    assert Terms().max_age(OutboxLimits()).hours == 144, "before any broker was met"
    assert Terms(mode="permanent", window_days=0).max_age(OutboxLimits()).hours == 168
    assert Terms(window_days=365).max_age(OutboxLimits()).hours == 7884
    with pytest.raises(MaxAgeAboveWindow):
        Terms().max_age(OutboxLimits(max_age_hours_override=145))


def test_terms_that_cannot_be_read_are_as_if_never_agreed() -> None:
    assert parse("nonsense") == parse(None) == Terms()
