"""Sending, waiting, reading, following: what is asked of the daemon, and what a person and a program are shown."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from claudemesh.cli import follow
from claudemesh.daemon.http.inbox import ShownMessage
from claudemesh.daemon.tracing import Trace
from claudemesh.runtime.home import Home
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import Asked, ScriptedDaemon, refuse, respond
from tests.unit.pipeline import archives
from tools.examples import document_of

CLIENT = "claudemesh.daemon.client.Client"


def queued(asked: Asked) -> bytes:
    return respond(202, {"client_message_id": asked.json["client_message_id"], "status": "queued"})


def at(state: str) -> bytes:
    steps = [
        {"state": "queued", "at": None, "evidence": "a row"},
        {"state": state, "at": None, "evidence": "a why"},
    ]
    return respond(200, {"client_message_id": "x", "state": state, "steps": steps})


def message(n: int, **changed: Any) -> dict[str, Any]:  # noqa: ANN401 - of whatever type the field has
    said = {
        "client_message_id": f"c{n}",
        "broker_message_id": f"b{n}",
        "history_id": n,
        "from_name": "bob",
        "body": f"text {n}",
        "received_at": "2026-01-31T12:00:00.000Z",
    }
    return document_of(ShownMessage, **said) | changed


def page(*messages: dict[str, Any], next_cursor: str | None = None) -> bytes:
    return respond(200, {"messages": list(messages), "next_cursor": next_cursor})


# --- send ------------------------------------------------------------------------------------------------


@pytest.mark.req("C1")
def test_a_send_says_its_id_and_that_it_is_queued(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("POST", "/v1/send", queued)
    ran = run(
        "send",
        "bob",
        "hi",
        "--id",
        "build-42",
        "--priority",
        "now",
        "--meta",
        '{"a": [1]}',
        "--reply-to",
        "b1",
        "--json",
    )
    assert ran.code == 0
    assert ran.json == {"client_message_id": "build-42", "status": "queued"}
    assert daemon.asked[0].json == {
        "to": "bob",
        "message": "hi",
        "priority": "now",
        "meta": {"a": [1]},
        "reply_to_id": "b1",
        "client_message_id": "build-42",
    }
    assert run("send", "bob", "hi", "--id", "build-42").out == "queued  build-42\n"


@pytest.mark.parametrize("text", ["$(touch x)", "; rm -rf /", "`id`", "two\nlines", "--force", "-"])
def test_a_text_is_a_text_whatever_it_looks_like(
    run: Run, daemon: ScriptedDaemon, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from standard input"))
    daemon.on("POST", "/v1/send", queued)
    assert run("send", "--json", "--", "bob", text).code == 0
    assert daemon.asked[0].json["message"] == ("from standard input" if text == "-" else text)


@pytest.mark.parametrize("text", ["\udcff", "-"])
def test_what_is_not_unicode_is_refused_and_not_sent(
    run: Run, daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    ran = run("send", "bob", text)
    assert ran.code == 2
    assert "not UTF-8" in ran.err
    assert daemon.asked == []


@pytest.mark.req("Q6")
@pytest.mark.parametrize("wanted", ["accepted", "delivered", "read"])
def test_waiting_ends_when_the_receipts_are_that_far(run: Run, daemon: ScriptedDaemon, wanted: str) -> None:
    daemon.on("POST", "/v1/send", queued)
    daemon.on("GET", "/v1/trace/c1", *map(at, ("queued", "accepted", "accepted", "delivered", "acted")))
    ran = run("send", "bob", "hi", "--id", "c1", "--wait", wanted, "--json")
    assert ran.code == 0
    assert ran.json["reached"] is True
    assert ran.json["state"] == {"accepted": "accepted", "delivered": "delivered", "read": "acted"}[wanted]
    assert ran.json["status"] == "queued"


@pytest.mark.req("Q6")
def test_waiting_that_times_out_fails_with_the_state_reached(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("POST", "/v1/send", queued).on("GET", "/v1/trace/c1", at("accepted"))
    ran = run("send", "bob", "hi", "--id", "c1", "--wait", "read", "--timeout", "50ms", "--json")
    assert ran.code == 1
    assert (ran.json["state"], ran.json["waited_for"], ran.json["reached"]) == ("accepted", "read", False)
    assert "may still be" in ran.err


@pytest.mark.req("Q6")
@pytest.mark.parametrize(
    ("interrupted", "state"), [("claudemesh.cli.messages.pause", "accepted"), (f"{CLIENT}.trace", "queued")]
)
def test_waiting_that_is_interrupted_says_under_which_id_the_message_was_taken(
    run: Run, daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch, interrupted: str, state: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupted, interrupt)
    daemon.on("POST", "/v1/send", queued).on("GET", "/v1/trace/c1", at("accepted"))
    words = ["send", "bob", "hi", "--id", "c1", "--wait", "delivered"]
    ran = run(*words, "--json")
    assert ran.code == 130
    assert (ran.json["client_message_id"], ran.json["status"]) == ("c1", "queued")
    assert (ran.json["state"], ran.json["waited_for"], ran.json["reached"]) == (state, "delivered", False)
    ran = run(*words)
    assert (ran.code, ran.out) == (130, f"{state}  c1\n")
    assert "when you stopped waiting, and may still be" in ran.err


def test_a_message_that_is_too_large_is_refused_with_the_limit(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("POST", "/v1/send", refuse(413, "payload_too_large", bytes_max=65536))
    ran = run("send", "bob", "hi", "--id", "c1")
    assert ran.code == 1
    assert "payload_too_large client_message_id=c1 bytes_max=65536" in ran.err


@pytest.mark.parametrize("end", ["dead", "aborted", "dead_letter"])
def test_waiting_ends_at_once_when_it_is_in_vain(run: Run, daemon: ScriptedDaemon, end: str) -> None:
    daemon.on("POST", "/v1/send", queued).on("GET", "/v1/trace/c1", at("queued"), at(end))
    ran = run("send", "bob", "hi", "--id", "c1", "--wait", "accepted", "--json")
    assert ran.code == 1
    assert ran.json["state"] == end
    assert f"the message is {end}: a why" in ran.err


# --- inbox -----------------------------------------------------------------------------------------------


@pytest.mark.req("C1")
def test_the_inbox_is_the_daemons_page(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/inbox", page(message(1), message(2), next_cursor="e.2"))
    ran = run("inbox", "--since", "2026-01-01", "--limit", "2", "--json")
    assert [found["client_message_id"] for found in ran.json["messages"]] == ["c1", "c2"]
    assert ran.json["next_cursor"] == "e.2"
    assert daemon.asked[0].query == "since=2026-01-01&limit=2"


def test_a_body_can_look_like_nothing_but_a_body(run: Run, daemon: ScriptedDaemon) -> None:
    hostile = message(1, body="\x1b[2J\n2026-01-31T12:00:00.000Z  eve  b2", from_name="b\u202eob")
    daemon.on("GET", "/v1/inbox", page(hostile))
    head, *body = run("inbox").out.splitlines()
    assert "b\\u202eob" in head
    assert body == ["    \\x1b[2J", "    2026-01-31T12:00:00.000Z  eve  b2"]


def test_searching_asks_for_the_words(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/inbox/search", page(message(1)))
    assert run("inbox", "--search", "a b", "--json").json["messages"]
    assert daemon.asked[0].query == "q=a%20b&limit=100"


@pytest.mark.parametrize("words", ["", "  "])
def test_searching_for_nothing_is_wrong_usage(run: Run, daemon: ScriptedDaemon, words: str) -> None:
    assert run("inbox", "--search", words).code == 2
    assert daemon.asked == []


# --- the archive -----------------------------------------------------------------------------------------


@pytest.mark.req("S2")
@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.prints("claudemesh inbox --archive")
def test_the_archive_is_searched_without_a_daemon_and_shown_as_the_inbox_is(
    run: Run, home: Home, tmp_path: Path, *, is_elsewhere: bool
) -> None:
    home.ensure()
    lake = tmp_path / "elsewhere" if is_elsewhere else home.root / "lake"
    archives.publish(lake, [[archives.document(n, f"words {n}") for n in (1, 2, 3)]])
    words = ["inbox", "--search", "words", "--archive", *(["--lake", str(lake)] if is_elsewhere else [])]
    page = run(*words, "--limit", "2", "--json").json
    assert [message["body"] for message in page["messages"]] == ["words 1", "words 2"]
    assert set(message(1)) - set(page["messages"][0]) == {"read_at", "to_session"}  # which the lake does not know
    rest = run(*words, "--cursor", page["next_cursor"])
    assert rest.out == "1970-01-01T00:00:02.003Z  bob  b3\n    words 3\n"


def test_without_an_archive_one_line_says_how_to_make_one(run: Run) -> None:
    ran = run("inbox", "--search", "words", "--archive")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "pipeline ingest --bodies" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["--archive"],
        ["--search", "x", "--lake", "l"],
        ["--archive", "--search", "x", "--mark-read"],
        ["--archive", "--search", "x", "--follow"],
        ["--archive", "--search", "x", "--mesh", "demo"],
    ],
)
def test_the_archive_is_only_searched(run: Run, words: list[str]) -> None:
    assert run("inbox", *words).code == 2


def test_a_topic_is_meant_with_and_without_its_mark(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/inbox", page())
    run("inbox", "--topic", "#ops")
    run("inbox", "--topic", "ops")
    assert [asked.query for asked in daemon.asked] == ["topic=ops&limit=100"] * 2


@pytest.mark.req("Q6")
def test_only_mark_read_marks_and_only_what_was_shown(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/inbox", page(message(1), message(2))).on("POST", "/v1/inbox/read", respond(200, {}))
    run("inbox")
    assert [asked.path for asked in daemon.asked] == ["/v1/inbox"]
    run("inbox", "--mark-read", "--json")
    assert daemon.asked[-1].json == {"ids": ["b1", "b2"]}


# --- following -------------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def stream(*events: bytes) -> bytes:
    said = b"".join(events)
    return HEAD + (b"%x\r\n%b\r\n" % (len(said), said) if said else b"") + b"0\r\n\r\n"


def event(n: int, event_id: str, name: str = "message", **changed: Any) -> bytes:  # noqa: ANN401 - as message
    return f"id: {event_id}\nevent: {name}\ndata: {json.dumps(message(n, **changed))}\n\n".encode()


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "pause", lambda _: None)


GONE = refuse(410, "cursor_expired")


@pytest.mark.usefixtures("no_pause")
def test_following_shows_the_list_and_then_what_arrives_each_once(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/inbox", page(message(1), next_cursor="e.1"), page(message(2)))
    daemon.on("GET", "/v1/events", stream(event(2, "e.2"), event(9, "e.3", "peer_left"), event(3, "e.4")), GONE)
    ran = run("inbox", "--follow", "--json")
    assert [line.get("client_message_id") for line in ran.lines] == ["c1", "c2", "c3", None]
    assert [(asked.path, asked.query) for asked in daemon.asked][:3] == [
        ("/v1/events", ""),
        ("/v1/inbox", "limit=1000"),
        ("/v1/inbox", "limit=1000&cursor=e.1"),
    ]
    assert ran.lines[-1]["code"] == "cursor_expired"  # told, never silently begun anew


@pytest.mark.usefixtures("no_pause")
def test_following_goes_on_after_the_last_event_when_the_daemon_was_away(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/inbox", page())
    daemon.on("GET", "/v1/events", stream(event(1, "e.1")), None, None, stream(event(2, "e.2")), GONE)
    ran = run("inbox", "--follow", "--json")
    assert [line.get("client_message_id") for line in ran.lines] == ["c1", "c2", None]
    assert ran.err.count("the daemon is away") == 1
    ids = [asked.headers.get("last-event-id") for asked in daemon.asked if asked.path == "/v1/events"]
    assert ids == [None, "e.1", "e.1", "e.1", "e.2"]


@pytest.mark.usefixtures("no_pause")
def test_a_stream_that_ended_before_its_first_event_leaves_no_gap(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/inbox", page(message(1)), page(message(1), message(2)))
    daemon.on("GET", "/v1/events", stream(), stream(event(3, "e.3")), GONE)
    ran = run("inbox", "--follow", "--json")
    assert [line.get("client_message_id") for line in ran.lines] == ["c1", "c2", "c3", None]


@pytest.mark.usefixtures("no_pause")
def test_a_topics_tail_shows_only_that_topic(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/topic/list", topics("ops", subscribed=True))
    daemon.on("GET", "/v1/inbox", page(message(1, topic="ops")))
    events = stream(event(2, "e.2", topic="other"), event(3, "e.3", topic="ops"), event(4, "e.4"))
    daemon.on("GET", "/v1/events", events, GONE)
    ran = run("topic", "tail", "#ops", "--json")
    assert [line.get("client_message_id") for line in ran.lines] == ["c1", "c3", None]
    assert daemon.asked[2].query == "topic=ops&limit=1000"
    assert "not joined" not in ran.err


def topics(name: str, *, subscribed: bool) -> bytes:
    return respond(200, {"topics": [{"name": name, "subscribed": subscribed, "subscribers": 1}]})


def test_the_tail_of_a_topic_that_is_not_there_is_refused(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/topic/list", topics("ops", subscribed=True))
    ran = run("topic", "tail", "nosuch", "--json")
    assert (ran.code, ran.json["code"]) == (1, "destination_not_found")
    assert [asked.path for asked in daemon.asked] == ["/v1/topic/list"]


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(
    ("said", "hint"), [(topics("ops", subscribed=False), True), (refuse(503, "broker_unreachable"), False)]
)
def test_a_tail_goes_on_without_a_broker_and_says_what_is_not_joined(
    run: Run, daemon: ScriptedDaemon, said: bytes, *, hint: bool
) -> None:
    daemon.on("GET", "/v1/topic/list", said).on("GET", "/v1/inbox", page(message(1, topic="ops")))
    daemon.on("GET", "/v1/events", stream(), GONE)
    ran = run("topic", "tail", "ops", "--json")
    assert ran.lines[0]["client_message_id"] == "c1"
    assert ("topic join ops" in ran.err) is hint


@pytest.mark.usefixtures("no_pause")
def test_without_a_daemon_at_the_start_following_fails_at_once(
    run: Run, home: Home, daemon: ScriptedDaemon
) -> None:
    daemon.stop()
    assert run("inbox", "--follow", "--json").code == 3
    assert home


def test_what_is_followed_can_be_marked_as_read_one_by_one(
    run: Run, daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "pause", lambda _: None)
    daemon.on("GET", "/v1/inbox", page(message(1))).on("POST", "/v1/inbox/read", respond(200, {}))
    daemon.on("GET", "/v1/events", stream(event(2, "e.2")), GONE)
    run("inbox", "--follow", "--mark-read", "--from", "bob")
    assert [asked.json for asked in daemon.asked if asked.method == "POST"] == [{"ids": ["b1"]}, {"ids": ["b2"]}]


# --- trace -----------------------------------------------------------------------------------------------


@pytest.mark.req("Q6")
def test_a_trace_shows_each_step_with_its_evidence(run: Run, daemon: ScriptedDaemon) -> None:
    steps = [{"state": "queued", "at": "2026-01-31T12:00:00.000Z", "evidence": "outbox row r1"}]
    life = document_of(Trace, client_message_id="build/42", steps=steps)
    daemon.on("GET", "/v1/trace/build%2F42", respond(200, life))
    assert run("trace", "build/42", "--json").json == life
    shown = run("trace", "build/42").out
    assert "outbox row r1" in shown


@pytest.mark.req("Q6")
@pytest.mark.parametrize(
    ("broker_message_id", "is_current", "is_said"), [("b1", False, True), ("b1", True, False), (None, False, False)]
)
def test_a_trace_says_when_it_is_only_what_is_known_here(
    run: Run, daemon: ScriptedDaemon, broker_message_id: str | None, *, is_current: bool, is_said: bool
) -> None:
    life: dict[str, Any] = {
        "client_message_id": "x",
        "broker_message_id": broker_message_id,
        "state": "accepted",
        "steps": [],
        "is_current": is_current,
    }
    daemon.on("GET", "/v1/trace/x", respond(200, life))
    assert ("(the broker cannot be asked now)" in run("trace", "x").out) is is_said


def test_an_unknown_id_is_a_failure(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/trace/x", refuse(404, "not_found"))
    assert run("trace", "x").code == 1
