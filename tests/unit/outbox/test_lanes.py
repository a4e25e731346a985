"""Which destinations may be sent to: one batch out for each, and a wait that holds back only its own."""

import pytest

from claudemesh.daemon.model import Destination
from claudemesh.kernel.fingerprint import Kind
from claudemesh.outbox.lanes import Lanes

A, B = Destination(Kind.DM, "a"), Destination(Kind.TOPIC, "b")


@pytest.fixture
def lanes() -> Lanes:
    lanes = Lanes()
    lanes.note(A)
    lanes.note(B)
    return lanes


@pytest.mark.req("D7")
def test_a_lane_that_is_out_is_not_taken_again_until_it_is_answered(lanes: Lanes) -> None:
    assert lanes.take(0, 10) == [A, B]
    lanes.note(A)
    assert lanes.take(0, 10) == []
    lanes.release(A, has_more=False)
    assert lanes.take(0, 10) == [A], "what was noted while it was out is still to be sent"


@pytest.mark.req("D7")
def test_a_lane_that_has_to_wait_holds_back_only_itself(lanes: Lanes) -> None:
    lanes.take(0, 10)
    lanes.release(A, has_more=True, not_before_ms=500)
    lanes.release(B, has_more=True)
    assert lanes.take(100, 10) == [B]
    assert lanes.next_wake_ms() == 500
    assert lanes.take(499, 10) == []
    assert lanes.take(500, 10) == [A]


@pytest.mark.req("D7")
def test_a_lane_that_is_noted_to_wait_waits_also_if_it_was_there(lanes: Lanes) -> None:
    lanes.note(A, 500)
    lanes.note(A)
    assert lanes.take(499, 10) == [B]
    assert lanes.take(500, 10) == [A]


def test_lanes_take_turns(lanes: Lanes) -> None:
    assert lanes.take(0, 1) == [A]
    lanes.release(A, has_more=True)
    assert lanes.take(0, 1) == [B]
    lanes.release(B, has_more=True)
    assert lanes.take(0, 1) == [A]


def test_a_lane_with_nothing_more_is_forgotten(lanes: Lanes) -> None:
    lanes.take(0, 10)
    lanes.release(A, has_more=False)
    lanes.release(B, has_more=False)
    assert len(lanes) == 0
    assert lanes.next_wake_ms() is None


def test_what_comes_for_a_lane_that_waits_does_not_end_the_wait(lanes: Lanes) -> None:
    lanes.take(0, 10)
    lanes.release(A, has_more=True, not_before_ms=500)
    lanes.note(A)
    assert A not in lanes.take(0, 10)


@pytest.mark.req("R7")
def test_nobody_waits_for_the_clock_once_it_is_said_to_be_time(lanes: Lanes) -> None:
    lanes.take(0, 10)
    lanes.release(A, has_more=True, not_before_ms=900)
    lanes.hurry()
    assert lanes.next_wake_ms() == 0
    assert lanes.take(0, 10) == [A], "and B is still out"
