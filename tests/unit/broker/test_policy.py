"""The rules of the broker that need no store."""

import pytest

from claudemesh.broker.model import ConnectionPolicy, DeliveryState, RecipientReceipt
from claudemesh.broker.policy import (
    Meeting,
    derive_message_state,
    is_attempt,
    judge_meeting,
    judge_size,
    present,
)
from claudemesh.kernel.errors import InvalidRequest, PayloadTooLarge
from claudemesh.kernel.fingerprint import Kind, SendRequest


@pytest.mark.req("N4")
@pytest.mark.parametrize(
    ("policy", "new_instance", "is_resume", "meeting"),
    [
        ("prefer_newest", "same", False, Meeting.REPLACED),
        ("prefer_oldest", "same", False, Meeting.REPLACED),
        ("allow_concurrent", "same", False, Meeting.REPLACED),
        ("prefer_newest", "other", False, Meeting.SUPERSEDED),
        ("prefer_oldest", "other", False, Meeting.REFUSED),
        ("allow_concurrent", "other", False, Meeting.SHARED),
        ("prefer_oldest", "other", True, Meeting.REPLACED),
    ],
)
def test_what_becomes_of_the_connection_that_stands(
    policy: str,
    new_instance: str,
    is_resume: bool,  # noqa: FBT001  a column of the table
    meeting: Meeting,
) -> None:
    assert judge_meeting(ConnectionPolicy(policy), "same", new_instance, is_resume=is_resume) is meeting


@pytest.mark.req("Q6")
@pytest.mark.parametrize(
    ("states", "least"),
    [
        ([], "accepted"),
        (["acted", "read"], "read"),
        (["delivered", "acted"], "delivered"),
        (["dead_letter", "delivered"], "dead_letter"),
        (["dead_letter", "accepted"], "accepted"),
    ],
)
def test_a_message_is_as_far_as_its_least_advanced_recipient(states: list[str], least: str) -> None:
    recipients = [RecipientReceipt(name="n", pubkey="k", state=DeliveryState(state)) for state in states]
    assert derive_message_state(recipients) == least


@pytest.mark.req("Q1")
def test_an_attempt_counts_only_when_the_socket_lived_on() -> None:
    assert not is_attempt(pushed_at_ms=1_000, last_life_ms=500)
    assert not is_attempt(pushed_at_ms=1_000, last_life_ms=30_999)
    assert is_attempt(pushed_at_ms=1_000, last_life_ms=31_000)


@pytest.mark.parametrize(
    "changes",
    [
        {"meta": {"mentions": "bob"}},
        {"meta": {"mentions": [1]}},
        {"meta": {"mentions": ["m"] * 257}},
        {"meta": {"n": float("nan")}},
        {"meta": {"n": 2**60}},
        {"body": "a\0b"},
        {"body": "\ud800"},
        {"ref": "\0"},
    ],
)
def test_what_no_store_could_hold_is_no_message(changes: dict[str, object]) -> None:
    fields = {"kind": Kind.DM, "ref": "k", "body": "b"} | changes
    with pytest.raises(InvalidRequest):
        present("id", SendRequest(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("sender_seq", [-1, 2**63])
def test_a_sequence_number_beyond_the_stores_is_refused(sender_seq: int) -> None:
    with pytest.raises(InvalidRequest):
        present("id", SendRequest(kind=Kind.DM, ref="k", body="b"), sender_seq=sender_seq)


def test_the_size_of_a_message_is_that_of_its_body_in_utf8() -> None:
    message = present("id", SendRequest(kind=Kind.DM, ref="k", body="é" * 10))
    assert judge_size(message, 20) is None
    assert isinstance(judge_size(message, 19), PayloadTooLarge)
    with pytest.raises(InvalidRequest):
        present("id", SendRequest(kind=Kind.DM, ref="k", body="b", reply_to="r" * 129))


def test_the_same_mention_twice_is_one() -> None:
    meta: dict[str, object] = {"mentions": ["bob", "ann", "bob"]}
    message = present("id", SendRequest(kind=Kind.DM, ref="k", body="b", meta=meta))  # type: ignore[arg-type]
    assert message.mentions == ("bob", "ann")
