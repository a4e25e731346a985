"""What is asked, how often, and under which id."""

import json

import pytest

from claudemesh import Draft
from claudemesh.kernel.errors import (
    BrokerUnreachable,
    ConnectionLost,
    DaemonBusy,
    IdempotencyConflict,
    InvalidClientMessageId,
    InvalidRequest,
    MeshError,
    NoDaemon,
    StoreFull,
    StoreUnavailable,
    UnknownDestination,
)
from claudemesh.sdk import asks
from claudemesh.sdk.plans import PAGE, Exchange, Pause, Plan
from tests.unit.sdk.stage import Stage

QUEUED = {"client_message_id": "id-1", "status": "queued"}


@pytest.fixture
def stage() -> Stage:
    return Stage()


def send(stage: Stage, **options: object) -> Plan[object]:
    return stage.plans.ask(asks.send(Draft("bob", "hi", **options), stage.plans.mint))  # type: ignore[arg-type]


# --- again and again ---------------------------------------------------------------------------------


@pytest.mark.req("C2")
@pytest.mark.parametrize("lost", [ConnectionLost(), StoreUnavailable(), DaemonBusy(), MeshError()])
def test_a_send_whose_outcome_is_unknown_is_tried_again_byte_for_byte(stage: Stage, lost: MeshError) -> None:
    stage.exchanges = [lost, lost, QUEUED]
    assert stage.run(send(stage)) == QUEUED
    assert [body["client_message_id"] for body in stage.bodies()] == ["id-1", "id-1", "id-1"]
    assert len({step.request for step in stage.of(Exchange)}) == 1
    assert stage.of(Pause) == [Pause(250), Pause(500)], "half of 500 and of 1000: the jitter is 0.5"


def test_a_daemon_that_says_when_to_come_back_is_obeyed(stage: Stage) -> None:
    stage.exchanges = [DaemonBusy(retry_after_ms=2_000), QUEUED]
    stage.run(send(stage))
    assert stage.of(Pause) == [Pause(2_250)]


def test_when_time_is_up_the_error_names_the_id_under_which_one_may_go_on(stage: Stage) -> None:
    stage.exchanges = [ConnectionLost()]
    with pytest.raises(ConnectionLost) as caught:
        stage.run(send(stage))
    assert caught.value.extras["client_message_id"] == "id-1"
    assert 1_010_000 < stage.now_ms < 1_030_000


@pytest.mark.parametrize(
    "refusal",
    [UnknownDestination(), StoreFull(), IdempotencyConflict(conflict="x", fingerprint_prefix="y"), NoDaemon()],
)
def test_what_would_be_refused_again_is_asked_once(stage: Stage, refusal: MeshError) -> None:
    stage.exchanges = [refusal]
    with pytest.raises(type(refusal)) as caught:
        stage.run(send(stage, id="build-42"))
    assert caught.value.extras["client_message_id"] == "build-42"
    assert len(stage.steps) == 1


def test_a_daemon_that_goes_away_during_a_send_is_waited_for(stage: Stage) -> None:
    stage.exchanges = [ConnectionLost(), NoDaemon(), NoDaemon(), QUEUED]
    assert stage.run(send(stage)) == QUEUED


def test_a_daemon_that_does_not_come_back_leaves_the_outcome_unknown(stage: Stage) -> None:
    stage.exchanges = [ConnectionLost(), NoDaemon()]
    with pytest.raises(ConnectionLost) as caught:
        stage.run(send(stage))
    assert isinstance(caught.value.__cause__, NoDaemon)


def test_reading_is_repeated_only_when_the_connection_was_at_fault(stage: Stage) -> None:
    stage.exchanges = [ConnectionLost(), {"peers": []}]
    assert stage.run(stage.plans.ask(asks.get("/v1/peers"))) == {"peers": []}
    stage.exchanges = [BrokerUnreachable()]
    with pytest.raises(BrokerUnreachable):
        stage.run(stage.plans.ask(asks.get("/v1/topic/list")))
    assert len(stage.of(Exchange)) == 3


def test_work_is_asked_for_once_and_an_ack_until_it_is_heard(stage: Stage) -> None:
    stage.exchanges = [ConnectionLost()]
    with pytest.raises(ConnectionLost):
        stage.run(stage.plans.ask(asks.work("jobs")))
    assert len(stage.steps) == 1
    stage.exchanges = [ConnectionLost(), BrokerUnreachable(), {}]
    stage.run(stage.plans.ask(asks.ack("jobs", "b1", 7)))
    assert stage.bodies()[-1] == {"queue": "jobs", "id": "b1", "token": 7}


# --- what a send says --------------------------------------------------------------------------------


@pytest.mark.req("F1")
def test_the_callers_id_is_used_and_a_bad_one_is_refused_before_anything_is_sent(stage: Stage) -> None:
    stage.exchanges = [QUEUED]
    stage.run(send(stage, id="build-42"))
    assert stage.bodies()[0]["client_message_id"] == "build-42"
    with pytest.raises(InvalidClientMessageId):
        send(stage, id="a b")


@pytest.mark.req("F2a")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, {1, 2}, "\ud800"])
def test_meta_that_has_no_json_form_is_refused_and_never_changed_silently(stage: Stage, value: object) -> None:
    with pytest.raises(InvalidRequest):
        send(stage, meta={"x": value})


def test_mentions_travel_sorted_in_meta_and_only_to_topics(stage: Stage) -> None:
    draft = Draft("#deploys", "hi", mentions=["bob", "ana"], meta={"n": 1})
    assert asks.render_draft(draft, stage.plans.mint)["meta"] == {"n": 1, "mentions": ["ana", "bob"]}
    with pytest.raises(InvalidRequest):
        send(stage, mentions=["ana"])
    with pytest.raises(InvalidRequest):
        asks.render_draft(Draft("#deploys", "hi", mentions="ana"), stage.plans.mint)


def test_what_was_not_said_is_not_sent(stage: Stage) -> None:
    assert asks.render_draft(Draft("bob", "hi", meta={}), stage.plans.mint) == {
        "to": "bob",
        "message": "hi",
        "client_message_id": "id-1",
    }


# --- many at once ------------------------------------------------------------------------------------


def answer_all(step: Exchange) -> dict[str, object]:
    sends = json.loads(step.request.partition(b"\r\n\r\n")[2])["sends"]
    ids = [one["client_message_id"] for one in sends]
    return {"outcomes": [{"http_status": 202, "client_message_id": each, "status": "queued"} for each in ids]}


def test_many_sends_go_in_batches_that_a_daemon_takes(stage: Stage) -> None:
    stage.exchanges = [answer_all]
    outcomes = stage.run(stage.plans.send_many(Draft("bob", str(number)) for number in range(2_500)))
    assert [len(body["sends"]) for body in stage.bodies()] == [1_000, 1_000, 500]
    assert [one["client_message_id"] for one in outcomes if isinstance(one, dict)] == [
        f"id-{number}" for number in range(1, 2_501)
    ]


def test_a_batch_is_cut_where_it_would_be_too_large(stage: Stage) -> None:
    stage.exchanges = [answer_all]
    stage.run(stage.plans.send_many([Draft("bob", "x" * 500_000)] * 30))
    assert [len(body["sends"]) for body in stage.bodies()] == [12, 12, 6]


def test_nothing_is_sent_if_any_draft_could_not_be(stage: Stage) -> None:
    with pytest.raises(InvalidRequest):
        stage.run(stage.plans.send_many([Draft("bob", "fine"), Draft("bob", "bad", meta={"x": float("nan")})]))
    assert stage.steps == []


def test_a_failure_before_any_answer_is_raised_with_all_ids(stage: Stage) -> None:
    stage.exchanges = [ConnectionLost()]
    with pytest.raises(ConnectionLost) as caught:
        stage.run(stage.plans.send_many([Draft("bob", "1"), Draft("bob", "2", id="mine")]))
    assert caught.value.extras["client_message_ids"] == ["id-1", "mine"]


def test_a_failure_after_an_answer_is_the_outcome_of_what_it_was_about(stage: Stage) -> None:
    stage.exchanges = [answer_all, NoDaemon()]
    outcomes = stage.run(stage.plans.send_many([Draft("bob", "x")] * 2_100))
    assert [type(one) for one in outcomes] == [dict] * 1_000 + [NoDaemon] * 1_100
    assert len(stage.steps) == 2


def test_no_drafts_are_no_requests(stage: Stage) -> None:
    assert stage.run(stage.plans.send_many([])) == []
    assert stage.steps == []


# --- pages -------------------------------------------------------------------------------------------


def test_pages_are_asked_for_one_after_the_other_as_they_are_needed(stage: Stage) -> None:
    stage.exchanges = [
        {"messages": [{"body": "1"}, {"body": "2"}], "next_cursor": "e.2"},
        {"messages": [{"body": "3"}], "next_cursor": None},
    ]
    plan = stage.plans.pages("/v1/inbox", {"topic": "deploys", "from": None})
    assert [one["body"] for one in stage.take(plan, 2)] == ["1", "2"]
    assert stage.paths() == [f"/v1/inbox?topic=deploys&limit={PAGE}"]


def test_the_last_page_has_no_cursor(stage: Stage) -> None:
    stage.exchanges = [
        {"messages": [{"body": "1"}], "next_cursor": "e.1"},
        {"messages": [{"body": "2", "read_at": "2026-01-31T12:00:00Z"}, {"body": "3"}], "next_cursor": None},
    ]
    found = stage.all_of(stage.plans.pages("/v1/inbox", {}, unread=True))
    assert [one["body"] for one in found] == ["1", "3"]
    assert stage.paths() == [f"/v1/inbox?limit={PAGE}", f"/v1/inbox?limit={PAGE}&cursor=e.1"]
