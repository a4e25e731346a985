"""The session of the server: listened first, registered after, and anew when the daemon was away."""

import os
from pathlib import Path
from typing import Any

import pytest

from claudemesh.daemon.client.http1 import StreamEvent
from claudemesh.kernel.errors import CursorExpired, InvalidRequest, NoDaemon
from claudemesh.mcp.attending import LOOK_MS, RETURN_PAUSE_MAX_MS, Away, Registered, attend, where_it_runs
from claudemesh.runtime.clock import SystemClock
from claudemesh.sdk import asks
from claudemesh.sdk.plans import Course, Emit, Exchange, Hear, Heard, Listen, Pause, Plans, Step
from claudemesh.sdk.sockets import NOTHING

REGISTER = asks.register_session("token", 1, {"display_name": "host"})
KEY = "k" * 64
EVENT = StreamEvent("e.5", "message", '{"a": 1}')


class Home:
    is_here = True


@pytest.fixture
def home() -> Home:
    return Home()


@pytest.fixture
def course(home: Home) -> Course:
    plans = Plans(SystemClock(), lambda: 0.5, lambda: "id", 30_000)
    return Course(attend(plans, REGISTER, lambda: home.is_here))


def emitted(course: Course) -> Any:  # noqa: ANN401  what a plan emits
    step = course.due()
    assert isinstance(step, Emit)
    course.done()
    return step.value


def expect(course: Course, kind: type[Step]) -> Any:  # noqa: ANN401  a step
    step = course.due()
    assert isinstance(step, kind), step
    return step


def register(course: Course) -> None:
    asked = expect(course, Exchange)
    assert b"/v1/sessions/register" in asked.request
    course.done({"session_pubkey": KEY})
    assert emitted(course) == Registered(KEY)


def test_it_listens_before_it_registers_so_that_nothing_is_missed(course: Course) -> None:
    assert expect(course, Listen).after == ""
    course.done()
    register(course)
    expect(course, Hear)
    course.done(Heard([EVENT], "e.5"))
    assert emitted(course) == EVENT


@pytest.mark.req("C3", "P10")
def test_after_the_daemon_was_away_it_is_registered_anew_and_goes_on_where_it_was(course: Course) -> None:
    expect(course, Listen)
    course.done()
    register(course)
    expect(course, Hear)
    course.done(Heard([], "e.9"))
    expect(course, Hear)
    course.done(None)  # the stream is over
    assert expect(course, Pause).ms <= RETURN_PAUSE_MAX_MS
    course.done()
    expect(course, Listen)
    course.failed(NoDaemon())
    assert isinstance(emitted(course), Away)
    expect(course, Pause)
    course.done()
    assert expect(course, Listen).after == "e.9"
    course.done()
    register(course)


def test_a_position_that_is_too_old_is_given_up(course: Course) -> None:
    expect(course, Listen)
    course.done()
    register(course)
    expect(course, Hear)
    course.done(Heard([], "e.9"))
    expect(course, Hear)
    course.done(None)
    expect(course, Pause)
    course.done()
    expect(course, Listen)
    course.failed(CursorExpired())
    expect(course, Pause)
    course.done()
    assert expect(course, Listen).after == ""


def test_a_daemon_that_refuses_the_session_is_still_listened_to(course: Course) -> None:
    expect(course, Listen)
    course.done()
    expect(course, Exchange)
    course.failed(InvalidRequest())
    assert isinstance(emitted(course), Away)
    expect(course, Hear)


@pytest.mark.req("C3", "P10")
def test_it_ends_where_the_homes_mesh_is_no_more_although_the_daemon_is_there(course: Course, home: Home) -> None:
    expect(course, Listen)
    course.done()
    register(course)
    assert expect(course, Hear).within_ms == LOOK_MS  # nothing may ever come
    course.done(NOTHING)
    expect(course, Hear)
    home.is_here = False
    course.done(NOTHING)
    with pytest.raises(StopIteration):
        course.due()


def test_it_ends_where_the_homes_mesh_is_no_more_and_the_daemon_neither(course: Course, home: Home) -> None:
    expect(course, Listen)
    home.is_here = False
    course.failed(NoDaemon())
    assert isinstance(emitted(course), Away)
    expect(course, Pause)
    course.done()
    with pytest.raises(StopIteration):
        course.due()


@pytest.mark.req("C3")
def test_a_daemon_whose_answer_has_no_key_is_still_listened_to(course: Course) -> None:
    expect(course, Listen)
    course.done()
    expect(course, Exchange)
    course.done({})
    assert isinstance(emitted(course), Away)
    expect(course, Hear)


@pytest.mark.req("C3", "P10")
def test_a_folder_that_is_gone_or_has_a_name_of_other_bytes_keeps_no_session_from_being_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = os.fsencode(tmp_path) + b"/odd\xff"
    os.mkdir(odd)  # noqa: PTH102 - of bytes, which Path cannot hold
    monkeypatch.chdir(os.fsdecode(odd))
    assert where_it_runs() == f"{tmp_path}/odd\ufffd"
    os.rmdir(odd)  # noqa: PTH106 - as above
    assert where_it_runs() == ""
