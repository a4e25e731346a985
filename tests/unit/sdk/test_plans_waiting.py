"""How a receipt is waited for, and how what happens is followed: by events, by looking, and within bounds."""

import pytest

from claudemesh.kernel.errors import (
    ConnectionLost,
    CursorExpired,
    DeadlineExceeded,
    InvalidRequest,
    NoDaemon,
    NotFound,
    StateError,
    TooManyStreams,
)
from claudemesh.sdk.plans import AWAY_MAX_MS, OPEN, Emit, Exchange, Hear, Listen, Pause
from tests.unit.sdk.stage import Stage, event, trace


@pytest.fixture
def stage() -> Stage:
    return Stage()


# --- waiting for a message to get somewhere ------------------------------------------------------------


@pytest.mark.req("Q6")
def test_what_is_there_already_is_seen_at_the_first_look_and_no_stream_is_opened(stage: Stage) -> None:
    stage.exchanges = [trace("read")]
    assert stage.run(stage.plans.wait("m1", "delivered", 30_000)).state == "read"
    assert stage.paths() == ["/v1/trace/m1"]
    assert len(stage.steps) == 1


@pytest.mark.req("Q6")
def test_an_event_is_a_reason_to_look_and_never_believed_by_itself(stage: Stage) -> None:
    stage.exchanges = [trace("queued"), trace("queued"), trace("accepted"), trace("delivered")]
    stage.heard.extend(
        [
            [event(1, client_message_id="m1", state="delivered")],
            [event(2, client_message_id="m1", state="delivered")],
        ]
    )
    assert stage.run(stage.plans.wait("m1", "delivered", 30_000)).state == "delivered"
    assert len(stage.of(Hear)) == 2
    assert stage.now_ms == 1_000_000, "no time had to pass"


def test_events_of_other_messages_are_no_reason_to_look(stage: Stage) -> None:
    stage.exchanges = [trace("queued"), trace("queued"), trace("delivered")]
    stage.heard.extend([[event(1, client_message_id="m2")], [], [event(2, "message", client_message_id="m1")]])
    stage.run(stage.plans.wait("m1", "delivered", 30_000))
    assert len(stage.of(Exchange)) == 3
    assert len(stage.of(Hear)) == 4, "three that said nothing of it, and one that was silent until it was time"


@pytest.mark.parametrize("kind", ["outbox_dead", "daemon_reconnect"])
def test_a_death_and_a_new_connection_are_reasons_to_look(stage: Stage, kind: str) -> None:
    stage.exchanges = [trace("queued"), trace("queued"), trace("delivered")]
    stage.heard.append([event(1, kind, client_message_id="m1")])
    stage.run(stage.plans.wait("m1", "delivered", 30_000))
    assert stage.now_ms == 1_000_000


@pytest.mark.req("Q6")
def test_a_message_whose_event_was_lost_is_found_by_looking_ever_more_rarely(stage: Stage) -> None:
    stage.exchanges = [*[trace("queued")] * 17, trace("delivered")]
    stage.run(stage.plans.wait("m1", "delivered", 60_000))
    waits = [step.within_ms for step in stage.of(Hear)]
    assert waits == sorted(waits)
    assert waits[0] == 15
    assert waits[-1] == 5_000


def test_without_a_stream_it_looks_at_least_once_a_second(stage: Stage) -> None:
    stage.listens = [TooManyStreams()]
    stage.exchanges = [*[trace("queued")] * 20, trace("delivered")]
    stage.run(stage.plans.wait("m1", "delivered", 60_000))
    assert stage.of(Hear) == []
    pauses = [step.ms for step in stage.of(Pause)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1_000


def test_a_stream_that_ends_at_once_does_not_make_it_look_without_pause(stage: Stage) -> None:
    stage.heard.extend([None] * 10_000)
    stage.exchanges = [trace("queued")]
    with pytest.raises(DeadlineExceeded):
        stage.run(stage.plans.wait("m1", "delivered", 10_000))
    assert len(stage.of(Exchange)) < 60


@pytest.mark.req("Q6")
def test_when_time_is_up_the_error_says_how_far_it_came(stage: Stage) -> None:
    stage.exchanges = [trace("accepted")]
    with pytest.raises(DeadlineExceeded) as caught:
        stage.run(stage.plans.wait("m1", "read", 5_000))
    extras = caught.value.extras
    assert (extras["state"], extras["waited_for"], extras["client_message_id"]) == ("accepted", "read", "m1")
    assert stage.now_ms == 1_005_000


def test_without_any_time_it_still_looks_once(stage: Stage) -> None:
    stage.exchanges = [trace("delivered")]
    assert stage.run(stage.plans.wait("m1", "delivered", 0)).state == "delivered"


@pytest.mark.req("Q6")
@pytest.mark.parametrize("state", ["dead", "aborted"])
def test_a_message_that_will_never_get_there_is_told_at_once_with_the_reason(stage: Stage, state: str) -> None:
    stage.exchanges = [trace(state)]
    with pytest.raises(StateError) as caught:
        stage.run(stage.plans.wait("m1", "delivered", 30_000))
    assert (caught.value.extras["state"], caught.value.extras["reason"]) == (state, "because")


def test_a_message_that_died_at_its_recipient_was_accepted_all_the_same(stage: Stage) -> None:
    stage.exchanges = [trace("dead", broker_message_id="b1")]
    assert stage.run(stage.plans.wait("m1", "accepted", 30_000)).state == "dead"
    with pytest.raises(StateError):
        stage.run(stage.plans.wait("m1", "delivered", 30_000))


def test_a_state_that_is_not_known_yet_is_waited_through(stage: Stage) -> None:
    stage.exchanges = [trace("pondered"), trace("pondered"), trace("delivered")]
    assert stage.run(stage.plans.wait("m1", "delivered", 30_000)).state == "delivered"


def test_a_state_that_no_message_has_is_refused(stage: Stage) -> None:
    with pytest.raises(InvalidRequest):
        stage.run(stage.plans.wait("m1", "arrived", 30_000))  # type: ignore[arg-type]


def test_a_daemon_that_is_away_meanwhile_is_waited_for(stage: Stage) -> None:
    stage.exchanges = [trace("queued"), trace("queued"), NoDaemon(), NoDaemon(), trace("delivered")]
    stage.listens = [None, NoDaemon()]
    stage.heard.append(None)
    assert stage.run(stage.plans.wait("m1", "delivered", 30_000)).state == "delivered"


def test_a_daemon_that_stays_away_is_the_cause_of_running_out_of_time(stage: Stage) -> None:
    stage.exchanges, stage.listens = [trace("accepted"), NoDaemon()], [NoDaemon()]
    with pytest.raises(DeadlineExceeded) as caught:
        stage.run(stage.plans.wait("m1", "delivered", 30_000))
    assert caught.value.extras["state"] == "accepted"
    assert isinstance(caught.value.__cause__, NoDaemon)


def test_a_message_that_the_daemon_does_not_know_is_not_waited_for(stage: Stage) -> None:
    stage.exchanges = [NotFound()]
    with pytest.raises(NotFound):
        stage.run(stage.plans.wait("m1", "delivered", 30_000))


# --- following what happens ----------------------------------------------------------------------------


def test_a_stream_that_stands_says_so_and_then_brings_events_in_their_order(stage: Stage) -> None:
    stage.heard.extend([[event(1), event(2)], [], [event(3)]])
    first, *events = stage.take(stage.plans.events(None, None), 4)
    assert first is OPEN
    assert [one.id for one in events] == ["e.1", "e.2", "e.3"]


@pytest.mark.req("Q7")
def test_a_stream_that_breaks_goes_on_after_the_last_event_that_came(stage: Stage) -> None:
    stage.heard.extend([[event(1), event(2)], None, [event(3)], None, None, [event(4)]])
    _, *events = stage.take(stage.plans.events("e.0", None), 5)
    assert [one.id for one in events] == ["e.1", "e.2", "e.3", "e.4"]
    assert [step.after for step in stage.of(Listen)] == ["e.0", "e.2", "e.3", "e.3"]


def test_coming_back_waits_longer_each_time_and_is_over_after_a_while(stage: Stage) -> None:
    stage.heard.extend([[event(1)], None])
    stage.listens = [None, NoDaemon()]
    with pytest.raises(NoDaemon):
        stage.all_of(stage.plans.events(None, None))
    pauses = [step.ms for step in stage.of(Pause)]
    assert pauses[:5] == [250, 500, 1_000, 2_000, 4_000]
    assert max(pauses) == 5_000
    assert AWAY_MAX_MS <= sum(pauses) < AWAY_MAX_MS + 5_000


def test_a_daemon_that_comes_back_may_go_away_again_for_as_long(stage: Stage) -> None:
    stage.heard.extend([[event(1)], None, None, [event(2)]])
    stage.listens = [None, NoDaemon(), ConnectionLost(), TooManyStreams(), None, NoDaemon(), None]
    assert [one.id for one in stage.take(stage.plans.events(None, None), 3)[1:]] == ["e.1", "e.2"]


def test_a_stream_that_cannot_be_opened_at_first_is_an_error_at_once(stage: Stage) -> None:
    stage.listens = [NoDaemon()]
    with pytest.raises(NoDaemon):
        stage.all_of(stage.plans.events(None, None))
    assert len(stage.steps) == 1


@pytest.mark.req("Q7")
def test_a_place_that_is_no_longer_kept_is_told_and_never_skipped(stage: Stage) -> None:
    stage.heard.extend([[event(1)], None])
    stage.listens = [None, CursorExpired()]
    with pytest.raises(CursorExpired):
        stage.all_of(stage.plans.events(None, None))


def test_silence_ends_a_stream_that_has_a_timeout_counted_from_the_last_event(stage: Stage) -> None:
    stage.heard.extend([[event(1)], [], [event(2)]])
    with pytest.raises(DeadlineExceeded):
        stage.all_of(stage.plans.events(None, 5.0))
    assert len(stage.of(Emit)) == 3
    assert stage.now_ms == 1_005_000


def test_a_daemon_that_is_away_is_silent_too(stage: Stage) -> None:
    stage.heard.append(None)
    stage.listens = [None, NoDaemon()]
    with pytest.raises(DeadlineExceeded):
        stage.all_of(stage.plans.events(None, 3.0))
    assert stage.now_ms == 1_003_000


def test_messages_are_the_events_that_are_messages_and_wanted(stage: Stage) -> None:
    stage.heard.append(
        [
            event(1, "receipt", client_message_id="m1"),
            event(2, "message", topic="deploys", body="1", **{"from": "ka", "from_name": "ana"}),
            event(3, "message", topic=None, body="2", **{"from": "ka", "from_name": "ana"}),
            event(4, "message", topic="deploys", body="3", **{"from": "kb", "from_name": "bob"}),
        ]
    )
    plan = stage.plans.messages(None, "#deploys", "ana", 1.0)
    with pytest.raises(DeadlineExceeded):
        stage.all_of(plan)
    assert [step.value["body"] for step in stage.of(Emit)[1:]] == ["1"]
    assert stage.of(Listen)[0].after == ""
