"""Messages, events, topics and queues, from a daemon that says what it is told to, with both kinds of mesh."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from claudemesh import AsyncMesh, Mesh
from claudemesh.kernel.errors import (
    CursorExpired,
    DeadlineExceeded,
    DependencyError,
    LeaseLost,
    NameTaken,
    TooManyStreams,
)
from claudemesh.sdk.find import Place
from tests.unit.cli.scripted import Asked, ScriptedDaemon, refuse, respond
from tests.unit.sdk.said import LEASED, MESSAGE, chunk, more, queued, stream

# --- receiving ---------------------------------------------------------------------------------------


def test_a_message_has_its_sender_its_times_and_its_ids(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("GET", "/v1/inbox", respond(200, {"messages": [MESSAGE], "next_cursor": None}))
    (message,) = mesh.inbox(topic="#deploys", sender="ana", mentions_me=True, since="2026-01-01")
    assert daemon.asked[0].query == "since=2026-01-01&topic=deploys&from=ana&mentions=me&limit=100"
    assert (message.from_name, message.body, message.meta, message.topic) == ("ana", "hello", {}, None)
    assert message.received_at - message.accepted_at == timedelta(milliseconds=250)
    assert message.received_at.tzinfo is not None


def test_since_may_be_an_instant_of_any_zone(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("GET", "/v1/inbox", respond(200, {"messages": [], "next_cursor": None}))
    assert [*mesh.inbox(since=datetime(2026, 1, 31, 12, tzinfo=UTC))] == []
    assert daemon.asked[0].query.startswith("since=2026-01-31T12%3A00%3A00%2B00%3A00")


def test_a_message_is_acked_and_answered_where_it_came_from(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    posted = MESSAGE | {"topic": "deploys", "broker_message_id": "b2"}
    daemon.on("GET", "/v1/inbox/search", respond(200, {"messages": [MESSAGE, posted], "next_cursor": None}))
    daemon.on("POST", "/v1/inbox/read", respond(200, {"marked": 1, "unread": 0}))
    daemon.on("POST", "/v1/send", queued)
    direct, on_topic = mesh.search("hello")
    direct.ack()
    direct.reply("to you", priority="low")
    on_topic.reply("to all")
    marked, to_you, to_all = (asked.json for asked in daemon.asked[1:])
    assert marked == {"ids": ["b1"]}
    assert (to_you["to"], to_you["reply_to_id"], to_you["priority"]) == ("ab" * 32, "b1", "low")
    assert (to_all["to"], to_all["reply_to_id"]) == ("#deploys", "b2")


def test_more_marks_than_a_daemon_takes_at_once_go_in_parts(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/inbox/read", respond(200, {"marked": 1, "unread": 0}))
    mesh.mark_read(f"b{number}" for number in range(1_500))
    assert [len(asked.json["ids"]) for asked in daemon.asked] == [1_000, 500]


def test_an_answer_of_another_form_is_an_error_of_the_daemon(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("GET", "/v1/inbox", respond(200, {"messages": [{"body": "hello"}], "next_cursor": None}))
    with pytest.raises(DependencyError, match="message"):
        next(mesh.inbox())


# --- events ------------------------------------------------------------------------------------------


@pytest.mark.req("Q7")
def test_events_go_on_after_the_last_one_when_the_stream_breaks(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    at = {"at": "2026-01-31T12:00:00.000Z"}
    daemon.on(
        "GET",
        "/v1/events",
        stream((1, "receipt", at), (2, "message", MESSAGE)),
        stream((3, "receipt", at), last=False),
    )
    events = mesh.events()
    first, second, third = (next(events) for _ in range(3))
    events.close()
    assert [one.id for one in (first, second, third)] == ["e.1", "e.2", "e.3"]
    assert first.at == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert (first.message, second.message.body) == (None, "hello")
    assert [asked.headers.get("last-event-id") for asked in daemon.asked] == [None, "e.2"]


@pytest.mark.req("Q7")
def test_a_stream_that_says_where_it_stands_goes_on_from_there_before_any_event(
    daemon: ScriptedDaemon, mesh: Mesh
) -> None:
    at = {"at": "2026-01-31T12:00:00.000Z"}
    daemon.on(
        "GET",
        "/v1/events",
        stream(last=False) + chunk(b"id: e.7\n\n") + b"0\r\n\r\n",
        stream((8, "receipt", at), last=False),
    )
    with mesh.events() as events:
        assert next(events).id == "e.8"
    assert [asked.headers.get("last-event-id") for asked in daemon.asked] == [None, "e.7"]


def test_a_stream_that_is_refused_is_the_refusal(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("GET", "/v1/events", refuse(429, "too_many_streams"), refuse(410, "cursor_expired"))
    with pytest.raises(TooManyStreams):
        mesh.events()
    with pytest.raises(CursorExpired):
        mesh.messages(after="e.1")


def test_silence_on_a_stream_can_have_a_limit(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("GET", "/v1/events", stream(last=False))
    with mesh.messages(timeout=0.05) as messages:
        with pytest.raises(DeadlineExceeded):
            next(messages)
        assert [*messages] == [], "it has ended"


@pytest.mark.req("Q7")
async def test_a_task_that_gives_up_waiting_for_an_event_misses_none(
    daemon: ScriptedDaemon, tmp_path: Path
) -> None:
    at = {"at": "2026-01-31T12:00:00.000Z"}
    daemon.on("GET", "/v1/events", stream(last=False))
    async with AsyncMesh.at(Place("demo", tmp_path / "sock")) as mesh, mesh.events() as events:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.01)
        daemon._open[0].sendall(more((1, "receipt", at), (2, "receipt", at)))
        assert [(await anext(events)).id, (await anext(events)).id] == ["e.1", "e.2"]
    assert len(daemon.asked) == 1, "it is still the same stream"


def test_a_stream_that_another_thread_closes_ends(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("GET", "/v1/events", stream(last=False))
    events = mesh.events()
    has_begun = threading.Event()

    def consume() -> list[Any]:
        has_begun.set()
        return [*events]

    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(consume)
        assert has_begun.wait(30)
        events.close()
        assert rest.result(30) == []
    events.close()


def test_a_stream_that_nobody_has_any_more_lets_its_connection_go(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    gone = threading.Event()

    def watch(_: Asked) -> bytes:
        gone.set()
        return stream(last=False)

    daemon.on("GET", "/v1/events", watch)
    mesh.events()  # a warning about an open socket would fail this test
    assert gone.is_set()


# --- topics, queues, peers ---------------------------------------------------------------------------


def test_topics_are_made_joined_posted_to_and_left(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    for verb in ("create", "subscribe", "unsubscribe"):
        daemon.on("POST", f"/v1/topic/{verb}", respond(200, {"name": "deploys"}))
    daemon.on("POST", "/v1/send", queued)
    topic = mesh.topic("#deploys").create().subscribe()
    topic.post("green", mentions=["bob"], id="m1")
    topic.unsubscribe()
    assert [(asked.path, asked.json.get("topic")) for asked in daemon.asked] == [
        ("/v1/topic/create", "deploys"),
        ("/v1/topic/subscribe", "deploys"),
        ("/v1/send", None),
        ("/v1/topic/unsubscribe", "deploys"),
    ]
    sent = daemon.asked[2].json
    assert (sent["to"], sent["meta"]) == ("#deploys", {"mentions": ["bob"]})


@pytest.mark.req("Q3")
def test_work_that_ends_well_is_acked(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/queue/work", respond(200, LEASED))
    daemon.on("POST", "/v1/queue/renew", respond(200, {"lease_expires_at": "2026-01-31T12:10:00.000Z"}))
    daemon.on("POST", "/v1/queue/ack", None, respond(200, {}))
    with mesh.queue("queue:jobs").work() as work:
        assert (work.body, work.meta, work.lease_token) == ("job", {"n": 1}, 3)
        assert work.renew() == datetime(2026, 1, 31, 12, 10, tzinfo=UTC)
    assert [asked.path for asked in daemon.asked[1:]] == ["/v1/queue/renew", "/v1/queue/ack", "/v1/queue/ack"]
    assert daemon.asked[-1].json == {"queue": "jobs", "id": "b1", "token": 3}
    assert work.is_settled


@pytest.mark.req("Q3")
def test_work_that_fails_is_given_back_and_the_error_goes_on(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/queue/work", respond(200, LEASED))
    daemon.on("POST", "/v1/queue/nack", respond(200, {}), refuse(409, "lease_lost"))
    for notes in (0, 1):
        with pytest.raises(ZeroDivisionError) as caught, mesh.queue("jobs").work():
            _ = 1 // 0
        assert len(getattr(caught.value, "__notes__", ())) == notes
    assert [asked.path for asked in daemon.asked].count("/v1/queue/nack") == 2


def test_work_that_was_settled_by_hand_is_left_alone(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/queue/work", respond(200, LEASED))
    daemon.on("POST", "/v1/queue/nack", respond(200, {}))
    daemon.on("POST", "/v1/send", queued)
    with mesh.queue("jobs").work() as work:
        work.reply("not me")
        work.nack()
    assert [asked.path for asked in daemon.asked[1:]] == ["/v1/send", "/v1/queue/nack"]
    assert daemon.asked[1].json["reply_to_id"] == "b1"


@pytest.mark.req("Q3")
def test_work_that_is_handed_over_is_not_acked_as_done(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/queue/work", respond(200, LEASED))
    daemon.on("POST", "/v1/queue/ack", None, respond(200, {}))
    with mesh.queue("jobs").work() as work:
        work.hand_over()
        assert work.is_settled
    said = {"queue": "jobs", "id": "b1", "token": 3, "handed_over": True}
    assert [asked.json for asked in daemon.asked[1:]] == [said, said], "until it is heard, and nothing after it"


@pytest.mark.req("Q3")
def test_a_lease_that_was_lost_is_told_to_the_worker(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/queue/work", respond(200, LEASED))
    daemon.on("POST", "/v1/queue/ack", refuse(409, "lease_lost"))
    with pytest.raises(LeaseLost), mesh.queue("jobs").work():
        pass


def test_peers_topics_and_health_are_values(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on(
        "GET", "/v1/peers", respond(200, {"peers": [{"name": "ana", "pubkey": "k", "status": "online", "x": 1}]})
    )
    topics = [{"name": "deploys", "subscribers": 2, "subscribed": True}]
    daemon.on("GET", "/v1/topic/list", respond(200, {"topics": topics}))
    (peer,) = mesh.peers(all=True)
    (topic,) = mesh.topics()
    assert (daemon.asked[0].query, peer.name, peer.status, peer.more["x"]) == ("all=1", "ana", "online", 1)
    assert (topic.name, topic.subscribers, topic.is_subscribed) == ("deploys", 2, True)


def test_an_error_that_may_not_pass_is_not_asked_about_again(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on("POST", "/v1/topic/create", refuse(409, "name_taken"))
    with pytest.raises(NameTaken):
        mesh.topic("deploys").create()
    assert len(daemon.asked) == 1
