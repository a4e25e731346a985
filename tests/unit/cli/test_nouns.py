"""Topics, queues, members, peers and the outbox: the verb that is typed is the request that is made."""

import json
import re
from pathlib import Path

import pytest

from claudemesh.daemon.http.control import (
    Appointed,
    GivenBack,
    Made,
    MeshTerms,
    Renewed,
    Revoked,
    Settled,
    ShownTopic,
    Subscribed,
    Unsubscribed,
    Work,
)
from claudemesh.daemon.http.outbox import Pruned, ShownRow
from claudemesh.daemon.operate import Decision
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import ScriptedDaemon, refuse, respond
from tools.examples import document_of

LEASED = document_of(
    Work,
    client_message_id="c1",
    broker_message_id="b1",
    body="do\nthis\x1b",
    lease_token=7,
    lease_expires_at="2026-01-31T12:05:00.000Z",
)
LEASE = ("--id", "b1", "--token", "7")
ROW = document_of(ShownRow, id="r1", client_message_id="c1", status="dead", attempts=3, last_error="\x1b[31mno")


ANSWERS = {
    "/v1/topic/create": Made,
    "/v1/topic/subscribe": Subscribed,
    "/v1/topic/unsubscribe": Unsubscribed,
    "/v1/queue/create": Made,
    "/v1/queue/ack": Settled,
    "/v1/queue/nack": GivenBack,
    "/v1/queue/renew": Renewed,
    "/v1/member/revoke": Revoked,
    "/v1/member/role": Appointed,
    "/v1/mesh/set": MeshTerms,
    "/v1/outbox/drop": Decision,
    "/v1/outbox/prune": Pruned,
}


@pytest.mark.req("Q8")
@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (("topic", "create", "#ops"), "/v1/topic/create", {"topic": "ops"}),
        (("topic", "join", "ops"), "/v1/topic/subscribe", {"topic": "ops"}),
        (("topic", "leave", "ops"), "/v1/topic/unsubscribe", {"topic": "ops"}),
        (("queue", "create", "queue:jobs"), "/v1/queue/create", {"queue": "jobs"}),
        (("queue", "ack", "jobs", *LEASE), "/v1/queue/ack", {"queue": "jobs", "id": "b1", "token": 7}),
        (
            ("queue", "ack", "jobs", *LEASE, "--handed-over"),
            "/v1/queue/ack",
            {"queue": "jobs", "id": "b1", "token": 7, "handed_over": True},
        ),
        (("queue", "nack", "jobs", *LEASE), "/v1/queue/nack", {"queue": "jobs", "id": "b1", "token": 7}),
        (("queue", "renew", "jobs", *LEASE), "/v1/queue/renew", {"queue": "jobs", "id": "b1", "token": 7}),
        (("member", "revoke", "bob"), "/v1/member/revoke", {"member": "bob"}),
        (("member", "role", "bob", "admin"), "/v1/member/role", {"member": "bob", "role": "admin"}),
        (("mesh", "set", "--sends-per-window", "9"), "/v1/mesh/set", {"sends_per_window": 9}),
        (("mesh", "set", "--connections", "prefer_oldest"), "/v1/mesh/set", {"connections": "prefer_oldest"}),
        (("daemon", "outbox", "drop", "--id", "r1"), "/v1/outbox/drop", {"id": "r1"}),
        (("daemon", "outbox", "drop", "--id", "r1", "--force"), "/v1/outbox/drop", {"id": "r1", "force": True}),
        (("daemon", "outbox", "prune", "--confirm"), "/v1/outbox/prune", {"confirm": True}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_verb_is_a_request(
    run: Run, daemon: ScriptedDaemon, words: tuple[str, ...], path: str, body: dict[str, object]
) -> None:
    answer = document_of(ANSWERS[path])
    daemon.on("POST", path, respond(200, answer))
    ran = run(*words, "--json")
    assert ran.code == 0
    assert ran.json == answer
    assert daemon.asked[0].json == body
    assert run(*words).out


@pytest.mark.req("Q8")
@pytest.mark.parametrize(
    "words", [("topic", "create", "bad name"), ("topic", "join", "#"), ("queue", "work", "a b")]
)
def test_a_name_that_is_none_is_wrong_usage_in_plain_words(
    run: Run, daemon: ScriptedDaemon, words: tuple[str, ...]
) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert "name is 1 to 128 of" in ran.err
    assert daemon.asked == []


def test_topics_are_listed(run: Run, daemon: ScriptedDaemon) -> None:
    topics = {"topics": [document_of(ShownTopic, name="ops", subscribed=True, subscribers=2)]}
    daemon.on("GET", "/v1/topic/list", respond(200, topics))
    assert run("topic", "list", "--json").json == topics
    assert "#ops" in run("topic", "list").out


def test_one_leased_message_is_printed_or_null(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("POST", "/v1/queue/work", respond(200, LEASED), respond(200, LEASED), b"HTTP/1.1 204 X\r\n\r\n")
    assert run("queue", "work", "jobs", "--json").json == LEASED
    assert run("queue", "work", "jobs").out.splitlines()[1:] == ["    do", "    this\\x1b"]
    empty = run("queue", "work", "jobs", "--json")
    assert (empty.code, empty.out) == (0, "null\n")


def test_null_as_an_answer_is_an_empty_queue_too(run: Run, daemon: ScriptedDaemon) -> None:
    said = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nnull"
    daemon.on("POST", "/v1/queue/work", said)
    assert run("queue", "work", "jobs", "--json").json is None


def test_a_lost_lease_is_a_conflict(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("POST", "/v1/queue/ack", refuse(409, "lease_lost"))
    assert run("queue", "ack", "jobs", "--id", "b1", "--token", "7").code == 4


def test_peers_are_shown_with_their_names_escaped(run: Run, daemon: ScriptedDaemon) -> None:
    peers = {"peers": [{"name": "b\u202eob", "pubkey": "ab" * 32, "status": "online", "role": "admin"}]}
    daemon.on("GET", "/v1/peers", respond(200, peers))
    assert run("peer", "list", "--json").json == peers
    assert "b\\u202eob" in run("peer", "list").out
    shown = run("peer", "list", "--all").out.split()
    assert shown[-9:] == ["b\\u202eob", "online", "-", "admin", "-", "-", "-", "-", "ab" * 32]
    assert [asked.query for asked in daemon.asked] == ["", "", "all=1"]


@pytest.mark.req("P11")
def test_the_sessions_of_a_peer_are_counted_and_named_and_their_names_do_nothing(
    run: Run, daemon: ScriptedDaemon
) -> None:
    bob = {"name": "bob", "pubkey": "ab" * 32, "status": "online", "role": "member"}
    sessions = [
        {"session_pubkey": "cd" * 32, "display_name": "claude\x1b[31m"},
        {"session_pubkey": "ef" * 32, "display_name": ""},
    ]
    daemon.on(
        "GET",
        "/v1/peers",
        respond(200, {"peers": [bob | {"sessions": sessions}]}),
        respond(200, {"peers": [bob | {"sessions": sessions * 3}]}),
    )
    assert "2: claude\\x1b[31m, efefefef" in run("peer", "list").out
    shown = run("peer", "list").out
    assert "6: claude" in shown
    assert ", and 2 more" in shown
    assert "\x1b" not in shown


@pytest.mark.req("P13", "P11")
def test_when_a_message_would_be_seen_is_said_in_words(run: Run, daemon: ScriptedDaemon) -> None:
    def peer(name: str, **more: object) -> dict[str, object]:
        return {"name": name, "pubkey": "ab" * 32, "status": "online", "role": "member", "sessions": [], **more}

    peers = [
        peer("ann", reach="now", unread=0, last_read_at="2026-01-31T12:00:00.000Z"),
        peer("bob", reach="on_return", lease_left_ms=62_001, waiting=77, unread=3),
        peer("cat", reach="waits", waiting=12, unread=4),
        peer("dan", reach="a newer word"),
    ]
    daemon.on("GET", "/v1/peers", respond(200, {"peers": peers}))
    lines = run("peer", "list", "--all").out.splitlines()
    assert lines[0].split("  ")[0] == "NAME"
    assert "now: its daemon is connected" in lines[1]
    assert "2026-01-31T12:00:00.000Z" in lines[1]
    assert re.search(r"on its return \(lease for 63 s more\) +77 +3 ", lines[2])
    assert re.search(r"it waits: nobody is there +12 +4 ", lines[3])
    assert "a newer word" in lines[4]


@pytest.mark.req("P11")
def test_that_nobody_knows_who_is_there_is_said(run: Run, daemon: ScriptedDaemon) -> None:
    peers = [{"name": "ann", "pubkey": "ab" * 32, "status": "unknown", "role": "member", "sessions": []}]
    daemon.on("GET", "/v1/peers", respond(200, {"peers": peers}))
    assert "the broker is not connected" in run("peer", "list").err
    assert run("peer", "list", "--json").json == {"peers": peers}
    daemon.on("GET", "/v1/peers", respond(200, {"peers": [peers[0] | {"status": "online"}]}))
    assert run("peer", "list").err == ""


# --- the outbox ------------------------------------------------------------------------------------------


@pytest.mark.req("D10")
def test_rows_are_listed_and_inspected(run: Run, daemon: ScriptedDaemon) -> None:
    rows = {"rows": [ROW], "next_cursor": "e.9"}
    inspected = {"row": ROW, "ancestors": ["r0"], "successor": None}
    daemon.on("GET", "/v1/outbox", respond(200, rows)).on("GET", "/v1/outbox/r1", respond(200, inspected))
    assert run("daemon", "outbox", "list", "--failed", "--json").json == rows
    assert daemon.asked[0].query == "failed=1"
    shown = run("daemon", "outbox", "list").out
    assert "\\x1b[31mno" in shown
    assert "--cursor e.9" in shown
    assert run("daemon", "outbox", "inspect", "--id", "r1", "--json").json == inspected
    assert "r0" in run("daemon", "outbox", "inspect", "--id", "r1").out


@pytest.mark.req("D10")
def test_requeue_brings_a_fresh_id_and_a_patch(run: Run, daemon: ScriptedDaemon, tmp_path: Path) -> None:
    decision = {"id": "r1", "status": "aborted", "superseded_by": "r2", "client_message_id": "c2"}
    daemon.on("POST", "/v1/outbox/requeue", respond(200, decision))
    (tmp_path / "patch.json").write_text(json.dumps({"message": "better"}))
    words = (
        "daemon",
        "outbox",
        "requeue",
        "--id",
        "r1",
        "--patch-payload",
        str(tmp_path / "patch.json"),
        "--force",
    )
    assert run(*words, "--new-client-id", "c2", "--json").json == decision
    assert daemon.asked[0].json == {
        "id": "r1",
        "new_client_id": "c2",
        "patch": {"message": "better"},
        "force": True,
    }
    assert "c2" in run("daemon", "outbox", "requeue", "--id", "r1", "--auto").out
    assert len(daemon.asked[1].json["new_client_id"]) == 26


@pytest.mark.req("D10")
def test_requeue_says_when_the_broker_had_it_all_along(run: Run, daemon: ScriptedDaemon) -> None:
    decision = {"id": "r1", "status": "done", "broker_message_id": "b1", "history_id": 1}
    daemon.on("POST", "/v1/outbox/requeue", respond(200, decision))
    assert "b1" in run("daemon", "outbox", "requeue", "--id", "r1").out


@pytest.mark.parametrize("content", [None, "[]", "{", "x" * (2 << 20)])
def test_a_patch_that_is_none_is_wrong_usage(
    run: Run, daemon: ScriptedDaemon, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "patch.json"
    if content is not None:
        path.write_text(content)
    assert run("daemon", "outbox", "requeue", "--id", "r1", "--patch-payload", str(path)).code == 2
    assert daemon.asked == []
