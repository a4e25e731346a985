"""`top` where no live view can be: a snapshot or documents, and an exit code that says if a daemon was there."""

import json
import sys
import threading
from typing import Any

import pytest

from claudemesh.cli.top import command
from tests.unit.cli.conftest import Home, Run, ScriptedDaemon, join_mesh
from tests.unit.cli.scripted import respond
from tests.unit.cli.top.looks import HEALTH, HOSTILE, look

METRICS = 'cm_daemon_send_total{event="accepted"} 5.0\ncm_daemon_recv_total 2.0\n'


def metrics() -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(METRICS)}\r\n\r\n"
    return (head + METRICS).encode()


def answer_all(daemon: ScriptedDaemon) -> None:
    shown = look()
    daemon.on("GET", "/v1/health", respond(200, HEALTH))
    daemon.on("GET", "/v1/metrics", metrics())
    daemon.on("GET", "/v1/outbox", respond(200, {"rows": shown.dead, "next_cursor": None}))
    daemon.on("GET", "/v1/peers", respond(200, {"peers": shown.peers}))
    daemon.on("GET", "/v1/queue/list", respond(200, {"queues": shown.queues}))


@pytest.mark.req("C5")
def test_off_a_terminal_top_prints_one_plain_snapshot(run: Run, daemon: ScriptedDaemon) -> None:
    answer_all(daemon)
    ran = run("top")
    assert ran.code == 0
    assert ran.out.startswith("daemon connected\nmesh demo   member ada")
    assert HOSTILE in ran.out
    assert "\x1b" not in ran.out
    assert "message-2" in ran.out
    assert {asked.method for asked in daemon.asked} == {"GET"}  # it changes nothing


@pytest.mark.req("C5")
@pytest.mark.prints("claudemesh top --once")
def test_once_with_json_prints_one_document_with_all_parts(run: Run, daemon: ScriptedDaemon) -> None:
    answer_all(daemon)
    document: dict[str, Any] = run("top", "--once", "--json").json
    assert document["state"] == "connected"
    assert document["outbox"].pop("oldest_dead_age_s") > 0
    assert document["outbox"] == {"pending": 3, "inflight": 1, "dead": 2, "oldest_age_s": 12}
    assert document["unread"] == 4
    assert [peer["name"] for peer in document["peers"]] == [HOSTILE, "bob"]
    assert (document["relay"], document["ledger"], document["errors"]) == (None, None, {})


@pytest.mark.req("C5")
def test_without_a_daemon_the_snapshot_says_so_and_the_exit_code_too(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    ran = run("top", "--once", "--json")
    assert (ran.code, ran.json["state"], ran.json["daemon"]) == (3, "away", None)
    assert "`claudemesh daemon up --mesh demo`" in ran.json["errors"]["daemon"]
    assert run("top").code == 3


def test_a_part_that_cannot_be_asked_leaves_the_others(run: Run, daemon: ScriptedDaemon) -> None:
    answer_all(daemon)
    daemon.on("GET", "/v1/queue/list", respond(503, {"code": "broker_unreachable", "title": "x", "status": 503}))
    document = run("top", "--once", "--json").json
    assert document["queues"] is None
    assert "queues" in document["errors"]
    assert document["peers"]


@pytest.mark.prints("claudemesh top")
def test_with_an_interval_there_is_a_document_a_line_and_rates_from_the_second_on(
    run: Run, daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_all(daemon)
    turns = iter((None, KeyboardInterrupt()))

    def pause(_: float) -> None:
        threading.Event().wait(0.002)  # the clock has milliseconds
        if (ended := next(turns)) is not None:
            raise ended

    monkeypatch.setattr("claudemesh.runtime.processes.pause", pause)
    ran = run("top", "--json", "--interval", "1s")
    assert ran.code == 130
    rates = [json.loads(line)["rates"]["sent_per_s"] for line in ran.out.splitlines()]
    assert rates == [None, 0.0]


@pytest.mark.parametrize("interval", ["0.1s", "2h", "soon"])
def test_an_interval_that_makes_no_sense_is_refused(run: Run, daemon: ScriptedDaemon, interval: str) -> None:
    assert run("top", "--interval", interval).code == 2
    assert daemon.asked == []


@pytest.mark.req("C5")
def test_without_its_package_the_live_view_names_the_command_that_installs_it(
    run: Run, daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert daemon
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "claudemesh.cli.top.app", raising=False)
    ran = run("top")
    assert ran.code == 1
    assert "pip install 'claudemesh[top]'" in ran.err
    assert command.MISSING in ran.err


def test_a_ledger_is_shown_with_its_open_steps(run: Run, daemon: ScriptedDaemon, home: Home) -> None:
    from claudemesh.ledger import MessageCassette  # noqa: PLC0415 - only here

    answer_all(daemon)
    with MessageCassette(db_path=home.root / "ledger.db") as ledger:
        ledger.post_message({"a": 1}, "run-1", "USER")
        ledger.post_message({"b": 1}, "run-2", "USER")
        ledger.claim_step("run-1", "w")
    steps = run("top", "--once", "--json").json["ledger"]["steps"]
    assert [(step["run_id"], step["status"]) for step in steps] == [("run-1", "LEASED"), ("run-2", "PENDING")]


def test_a_relay_that_does_not_run_is_left_alone(run: Run, daemon: ScriptedDaemon, home: Home) -> None:
    answer_all(daemon)
    home.edge_dir.mkdir(parents=True)
    (home.edge_dir / "outbox.db").touch()
    document = run("top", "--once", "--json").json
    assert document["relay"] is None
    assert "statehub outbox status" in document["errors"]["relay"]
    assert [path.name for path in home.edge_dir.iterdir()] == ["outbox.db"]
