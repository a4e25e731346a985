"""`statehub outbox` and `statehub-edge` with real processes: asked through the relay, and without one."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claudemesh.runtime.patience import wait_until
from tests.integration.hub_process import Hub
from tests.integration.relay_process import Relay
from tests.ports import own_address

pytestmark = pytest.mark.req("R9")


@pytest.fixture
def stale(hub: Hub, relay: Relay) -> Iterator[dict[str, Any]]:
    """Return a task that was changed centrally while a change of ours waited; the hub runs, the relay does not."""
    with hub.serving():
        task = hub.make("/tasks/", {"title": "t", "status": "todo"})
    with relay.serving():
        said = {"status": "done", "expected_updated_at": task["updated_at"]}
        receipt = relay.queue("PATCH", f"/tasks/{task['id']}", said)
    with hub.serving():
        assert hub.ask("PATCH", f"/tasks/{task['id']}", {"status": "blocked"}).status == 200
        yield {**task, "outbox_id": receipt["outbox_id"]}


def progress(number: int) -> dict[str, str]:
    return {"agent": "builder", "summary": f"step {number}"}


# --- looking -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_running", [True, False], ids=["relay", "file"])
def test_an_operator_sees_what_waits_whether_the_relay_runs_or_not(relay: Relay, *, is_running: bool) -> None:
    with relay.serving() as process:
        first = relay.queue(
            "POST", "/progress/", progress(1), idempotency_key="a/b?c=%2e", x_source_agent="builder"
        )
        relay.queue("POST", "/progress/", progress(2))
        if not is_running:
            process.kill()
            process.wait()
        status = relay.told("outbox", "status", code=1)
        assert (status["running"], status["pending"], status["conflicts"], status["dead"]) == (is_running, 2, 0, 0)
        assert (status["nothing_waits"], status["outage_over"]) == (False, False)
        assert status["upstream_reachable"] is (False if is_running else None)
        assert status["why"][0].startswith("2 writes are not sent yet, the oldest for ")

        page = relay.told("outbox", "list", "--limit", "1")
        assert [one["id"] for one in page["items"]] == [first["outbox_id"]]
        (rest,) = relay.told("outbox", "list", "--after", str(page["next_cursor"]))["items"]
        assert (rest["state"], rest["request"], rest["route_class"]) == ("queued", "POST /progress/", "append")
        assert relay.told("outbox", "list", "--state", "dead") == {"items": [], "next_cursor": None}

        shown = relay.told("outbox", "show", "a/b?c=%2e")
        assert shown == relay.told("outbox", "show", first["outbox_id"])
        assert (shown["mine"], shown["theirs"]) == (progress(1), None)
        assert shown["source"] == {"agent": "builder"}
        assert [event["became"] for event in shown["happened"]] == ["queued"]

        table = relay.run("outbox", "list").out
        assert {"queued", "POST", "/progress/", first["outbox_id"]} <= set(table.split())
        alone = relay.run_alone("outbox", "status")
        assert (alone.code, "an outage cannot be declared over yet" in alone.out) == (1, True)


def test_where_nothing_waits_status_says_so_and_makes_nothing(relay: Relay) -> None:
    status = relay.run("outbox", "status")
    assert status.code == 0
    assert "no relay has run here" in status.out
    assert relay.told("outbox", "list")["items"] == []
    assert relay.told("outbox", "export") == {"items": []}
    assert list(relay.home.iterdir()) == []
    with relay.serving():
        judged = relay.told("outbox", "status")
        assert (judged["running"], judged["nothing_waits"], judged["outage_over"]) == (True, True, True)


def test_a_hub_that_is_away_is_an_outage_even_if_nothing_waits(relay: Relay) -> None:
    with relay.serving():
        assert relay.ask("DELETE", "/tasks/1").status == 503
        judged = relay.told("outbox", "status")
        assert (judged["nothing_waits"], judged["outage_over"]) == (True, False)
        assert judged["why"] == ["the hub cannot be reached"]


# --- replaying ---------------------------------------------------------------------------------------


def test_replay_sends_what_waits_and_says_what_is_left(hub: Hub, relay: Relay) -> None:
    with relay.serving():
        relay.queue("POST", "/progress/", progress(1))
        away = relay.run("outbox", "replay", "--wait", "200ms", "--json")
        assert (away.code, away.json["pending"], away.json["upstream_reachable"]) == (3, 1, False)
        with hub.serving():
            done = relay.told("outbox", "replay", "--wait", "20s")
            assert (done["pending"], done["upstream_reachable"]) == (0, True)
            assert relay.told("outbox", "status")["nothing_waits"]
            assert [row["summary"] for row in hub.listed("/progress/")][:1] == ["step 1"]


def test_without_a_relay_nothing_is_replayed_and_replay_says_so(relay: Relay) -> None:
    with relay.serving():
        relay.queue("POST", "/progress/", progress(1))
    ran = relay.run("outbox", "replay", "--json")
    assert (ran.code, ran.json["code"]) == (3, "dependency_failed")
    assert "no relay runs here: start it with `statehub-edge`" in ran.err
    assert relay.told("outbox", "status", code=1)["pending"] == 1


# --- deciding ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_running", [True, False], ids=["relay", "file"])
@pytest.mark.prints("statehub outbox retry", "statehub outbox cancel", "statehub outbox mark-dead")
def test_a_write_is_given_up_or_marked_dead_and_retried_as_a_new_one(relay: Relay, *, is_running: bool) -> None:
    with relay.serving() as process:
        ids = [
            relay.queue("POST", "/progress/", progress(number), idempotency_key=f"of/{number}")["outbox_id"]
            for number in range(2)
        ]
        if not is_running:
            process.kill()
            process.wait()
        gone = relay.told("outbox", "cancel", "of/0", "--by", "ada")
        assert (gone["state"], gone["cancelled_by"]) == ("cancelled", "ada")
        dead = relay.told("outbox", "mark-dead", ids[1])
        assert (dead["state"], dead["last_error"]) == ("dead", "marked_dead")
        judged = relay.told("outbox", "status", code=1)
        assert (judged["pending"], judged["dead"]) == (0, 1)

        again = relay.told("outbox", "retry", ids[1])
        assert (again["state"], again["mine"]) == ("queued", progress(1))
        assert again["id"] not in ids
        assert relay.told("outbox", "show", ids[1])["superseded_by"] == again["id"]

        for words in (["cancel", ids[0]], ["retry", again["id"]], ["resolve", again["id"], "--keep", "mine"]):
            refused = relay.run("outbox", *words, "--json")
            assert (refused.code, refused.json["code"]) == (4, "state_refused"), words
    log = (relay.home / "edge" / "edge.log").read_text()
    assert '"decision":"cancel","by":"ada"' in log


@pytest.mark.parametrize(
    ("keep", "becomes", "state"), [("mine", "done", "acked"), ("theirs", "blocked", "cancelled")]
)
@pytest.mark.parametrize("is_running", [True, False], ids=["relay", "file"])
@pytest.mark.prints(
    "statehub serve",
    "statehub-edge",
    "statehub outbox status",
    "statehub outbox list",
    "statehub outbox show",
    "statehub outbox replay",
    "statehub outbox resolve",
)
def test_a_conflict_shows_both_values_and_is_decided_by_its_operator(  # noqa: PLR0913, PLR0917
    hub: Hub, relay: Relay, stale: dict[str, Any], keep: str, becomes: str, state: str, *, is_running: bool
) -> None:
    with relay.serving() as process:
        assert relay.told("outbox", "replay")["conflicts"] == 1
        if not is_running:
            process.terminate()
            process.wait()
        (one,) = relay.told("outbox", "list", "--state", "conflict")["items"]
        assert one["id"] == stale["outbox_id"]
        shown = relay.told("outbox", "show", one["id"])
        assert (shown["mine"]["status"], shown["theirs"]["status"]) == ("done", "blocked")
        lines = relay.run("outbox", "show", one["id"]).out.splitlines()
        (heads,) = [line for line in lines if line.startswith("FIELD")]
        (values,) = [line for line in lines if line.startswith("status ") and "(expected)" not in line]
        assert (heads.split(), values.split()) == (["FIELD", "MINE", "THEIRS"], ["status", "done", "blocked"])
        assert "1 write is in conflict" in relay.run("outbox", "status").out

        decided = relay.told("outbox", "resolve", one["id"], "--keep", keep, "--by", "ada")
        assert decided["state"] in {"queued", "sending", state}
    with relay.serving():
        assert relay.told("outbox", "replay")["pending"] == 0
        assert relay.told("outbox", "show", one["id"])["state"] == state
        assert hub.ask("GET", f"/tasks/{stale['id']}").json["status"] == becomes
        assert relay.told("outbox", "status")["outage_over"]


# --- to another machine and back ---------------------------------------------------------------------


@pytest.mark.parametrize("is_running", [True, False], ids=["relay", "file"])
@pytest.mark.prints("statehub outbox export", "statehub outbox export --file", "statehub outbox import")
def test_what_one_relay_exports_another_sends_and_nothing_is_done_twice(
    tmp_path: Path, hub: Hub, relay: Relay, *, is_running: bool
) -> None:
    other = Relay(tmp_path / "other", relay.upstream)
    file = tmp_path / "envelopes.jsonl"
    with relay.serving() as process:
        for number in range(3):
            relay.queue("POST", "/progress/", progress(number), idempotency_key=f"key-{number}")
        if not is_running:
            process.kill()
            process.wait()
        assert relay.told("outbox", "export", "--file", str(file)) == {"exported": 3, "file": str(file)}
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        lines = relay.run("outbox", "export").out
        assert [item["id"] for item in relay.told("outbox", "export")["items"]] == [
            json.loads(line)["id"] for line in lines.splitlines()
        ]
        assert lines == file.read_text(), "the same without a file"
        assert [json.loads(line)["idempotency_key"] for line in lines.splitlines()] == ["key-0", "key-1", "key-2"]
        if is_running:
            with other.serving():
                assert other.told("outbox", "import", str(file)) == {"imported": 3, "known": 0}
        else:
            assert other.told("outbox", "import", "-", stdin=file.read_bytes()) == {"imported": 3, "known": 0}
        assert other.told("outbox", "import", str(file)) == {"imported": 0, "known": 3}
    with hub.serving(), relay.serving(), other.serving():
        assert relay.told("outbox", "replay", "--wait", "20s")["pending"] == 0
        assert other.told("outbox", "replay", "--wait", "20s")["pending"] == 0
        summaries = [row["summary"] for row in hub.listed("/progress/") if row["agent"] == "builder"]
        assert sorted(summaries) == ["step 0", "step 1", "step 2"]


@pytest.mark.parametrize("is_running", [True, False], ids=["relay", "file"])
def test_an_import_is_all_or_nothing(tmp_path: Path, relay: Relay, *, is_running: bool) -> None:
    with relay.serving():
        relay.queue("POST", "/progress/", progress(1), idempotency_key="key-1")
    good = relay.run("outbox", "export").out.strip()
    fresh = json.dumps({**json.loads(good), "idempotency_key": "key-2"})
    body = json.loads(good)
    body["envelope"]["body"] = {"agent": "a", "summary": "x", "details": {"password": "hunter2-hunter2"}}
    bad = {
        "not json": (f"{fresh}\n{{", 2, "line 2 is not JSON"),
        "not an envelope": (f"{fresh}\n{{}}", 2, "line 2 is no exported envelope"),
        "a state that is settled": (f"{fresh}\n{json.dumps({**body, 'state': 'acked'})}", 2, "line 2"),
        "a secret": (f"{fresh}\n{json.dumps({**body, 'idempotency_key': 'k3'})}", 2, "credential"),
        "a key of another request": (
            f"{fresh}\n{json.dumps({**json.loads(good), 'fingerprint': '00' * 32})}",
            4,
            "stands for another request",
        ),
    }
    other = Relay(tmp_path / "other", relay.upstream)
    for target in [relay, other] if is_running else [relay]:
        assert target.told("outbox", "import", "-", stdin=b"\n\n") == {"imported": 0, "known": 0}
    with relay.serving() as process:
        if not is_running:
            process.kill()
            process.wait()
        for what, (text, code, words) in bad.items():
            ran = relay.run("outbox", "import", "-", "--json", stdin=text.encode())
            assert (ran.code, words in ran.err) == (code, True), (what, ran)
            assert len(relay.told("outbox", "list")["items"]) == 1, what


# --- a damaged file ----------------------------------------------------------------------------------


def test_with_a_damaged_outbox_forwarding_goes_on_queueing_stops_and_recover_saves_it(
    hub: Hub, relay: Relay
) -> None:
    with relay.serving():
        ids = [relay.queue("POST", "/progress/", progress(number))["outbox_id"] for number in range(3)]
    relay.damage()
    with relay.serving():
        with hub.serving():
            assert relay.ask("POST", "/progress/", progress(7)).status == 201
        refused = relay.ask("POST", "/progress/", progress(8))
        assert (refused.status, refused.code) == (503, "store_unavailable")
        status = relay.run("outbox", "status", "--json")
        assert (status.code, status.json["outbox_usable"], status.json["nothing_waits"]) == (1, False, False)
        assert "nobody knows what waits" in relay.run("outbox", "status").out
        for words in (["list"], ["show", ids[0]], ["cancel", ids[0]], ["export"]):
            ran = relay.run("outbox", *words, "--json")
            assert (ran.code, ran.json["code"]) == (1, "store_unavailable"), words
        running = relay.run("outbox", "recover", "--json")
        assert (running.code, running.json["code"]) == (1, "already_running")
        assert "stop the relay first" in running.err
    assert relay.told("outbox", "status", code=1)["outbox_usable"] is False
    listed = relay.run("outbox", "list", "--json")
    assert (listed.code, listed.json["code"]) == (1, "store_corrupt")
    assert "`statehub outbox recover`" in listed.err

    saved = relay.told("outbox", "recover")
    assert (saved["damaged"], saved["saved"], saved["missing"]) == (True, 3, 0)
    assert Path(saved["kept_at"]).exists()
    assert stat.S_IMODE(relay.outbox.stat().st_mode) == 0o600
    assert [one["id"] for one in relay.told("outbox", "list")["items"]] == ids
    assert relay.told("outbox", "recover") == {"damaged": False}
    with hub.serving(), relay.serving():
        assert relay.told("outbox", "replay", "--wait", "20s")["pending"] == 0
        assert sorted(row["summary"] for row in hub.listed("/progress/"))[-4:] == [
            "step 0",
            "step 1",
            "step 2",
            "step 7",
        ]


@pytest.mark.prints("statehub outbox recover")
def test_where_nothing_is_there_nothing_is_recovered(relay: Relay) -> None:
    assert relay.told("outbox", "recover") == {"damaged": False}
    assert list(relay.home.iterdir()) == []


# --- what cannot be ----------------------------------------------------------------------------------


WRONG = [
    (["list", "--state", "lost"], 2, "--state"),
    (["list", "--limit", "0"], 2, "--limit"),
    (["list", "--after", "-1"], 2, "--after"),
    (["show"], 2, "ENVELOPE"),
    (["show", "nobody/../x"], 1, "there is no such envelope"),
    (["show", "export"], 1, "there is no such envelope"),
    (["cancel", "nobody", "--by", "\n"], 2, "no name of a person"),
    (["cancel", "nobody", "--by", "coalesced"], 2, "no name of a person"),
    (["cancel", "nobody"], 1, "there is no such envelope"),
    (["resolve", "nobody"], 2, "--keep"),
    (["resolve", "nobody", "--keep", "both"], 2, "--keep"),
    (["replay", "--wait", "soon"], 2, "is not a time"),
    (["import", "missing.jsonl"], 2, "No such file"),
    (["export", "--file", "."], 2, "--file"),
    (["export", "--file", "nowhere/x"], 2, "--file"),
    (["settle", "x"], 2, "settle"),
]


def test_what_is_asked_wrongly_is_refused_with_a_reason(relay: Relay) -> None:
    def refuse_all() -> None:
        for words, code, said in WRONG:
            ran = relay.run("outbox", *words, "--json")
            assert (ran.code, said in ran.err, said in ran.json["detail"]) == (code, True, True), (words, ran)
            assert relay.run("outbox", *words).out == ""

    with relay.serving():
        relay.queue("POST", "/progress/", progress(1))
        refuse_all()
    refuse_all()
    assert relay.told("outbox", "status", code=1)["pending"] == 1


def test_an_export_never_overwrites_a_file(relay: Relay, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    ran = relay.run("outbox", "export", "--file", str(tmp_path / "mine"))
    assert (ran.code, "is there already" in ran.err) == (2, True)
    assert (tmp_path / "mine").read_text() == "precious"


# --- the relay's own command -------------------------------------------------------------------------


def test_all_that_is_wrong_with_the_settings_of_a_relay_is_said_at_once(relay: Relay) -> None:
    (relay.home / "edge.toml").write_text('upsteam = "x"\nlisten = 3\n[limits]\nbody_bytes_max = 1\n')
    ran = relay.edge("--json")
    assert (ran.code, ran.json["code"]) == (1, "config_invalid")
    assert len(ran.json["problems"]) == 3
    assert "did you mean upstream?" in ran.err
    (relay.home / "edge.toml").write_text(
        'token_file = "missing"\nnetworks = ["10.0.0.0/99"]\nroutes = "none.toml"\n'
    )
    ran = relay.edge("--upstream", "ftp://hub", "--listen", "0.0.0.0:0", "--json")
    assert ran.code == 1
    assert len(ran.json["problems"]) == 4, "networks, listen, routes and token; a bad network hides the upstream's"
    assert str(relay.home / "missing") in ran.err, "beside the file that names it"
    assert list(relay.home.iterdir()) == [relay.home / "edge.toml"]
    assert relay.edge("--listen", "here").code == 2


def test_a_variable_that_is_misspelt_is_refused_by_its_own_name(relay: Relay) -> None:
    ran = relay.edge("--json", CLAUDEMESH_EDGE__UPSTREM="x", CLAUDEMESH_EDGE__LIMITS__CONNECTIONS_MAX="many")
    assert (ran.code, ran.json["code"]) == (1, "config_invalid")
    assert len(ran.json["problems"]) == 2
    assert "CLAUDEMESH_EDGE__UPSTREM is unknown, did you mean CLAUDEMESH_EDGE__UPSTREAM?" in ran.err
    assert "(in the environment, CLAUDEMESH_EDGE__LIMITS__CONNECTIONS_MAX)" in ran.err
    told = relay.run("serve", "--json", CLAUDEMESH_HUB__LISTN="x")
    assert "CLAUDEMESH_HUB__LISTN is unknown, did you mean CLAUDEMESH_HUB__LISTEN?" in told.err


def test_a_relay_is_not_its_own_upstream(relay: Relay) -> None:
    address = own_address()
    ran = relay.edge("--upstream", f"http://{address}", "--listen", address, "--json")
    assert (ran.code, ran.json["code"]) == (1, "config_invalid")
    assert "the relay itself" in ran.err


def test_an_empty_token_file_is_no_credential(relay: Relay, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch(mode=0o600)
    ran = relay.edge("--token-file", str(empty), "--json")
    assert (ran.code, ran.json["code"]) == (1, "config_invalid")
    assert "is empty" in ran.err


@pytest.mark.parametrize("token", ["abc\u200bdef", "abc\ndef", " "])  # as copied from a page
def test_a_token_that_no_header_can_carry_keeps_the_relay_from_starting(token: str, relay: Relay) -> None:
    ran = relay.edge("--json", STATEHUB_TOKEN=token)
    assert (ran.code, ran.json["code"]) == (1, "config_invalid")
    assert "STATEHUB_TOKEN" in ran.err
    assert "abc" not in ran.err


def test_a_second_relay_in_one_home_does_not_start(relay: Relay) -> None:
    with relay.serving():
        ran = relay.edge("--upstream", relay.upstream, "--listen", own_address(), "--json")
        assert (ran.code, ran.json["code"]) == (1, "already_running")


def test_the_hubs_token_is_taken_from_the_environment_or_a_private_file_and_never_written_down(
    hub: Hub, relay: Relay, tmp_path: Path
) -> None:
    token_file = hub.home / "token"
    with hub.serving("--token-file", str(token_file)):
        hub.token = token_file.read_text().strip()
        with relay.serving(STATEHUB_TOKEN=hub.token):
            assert relay.ask("POST", "/progress/", progress(1)).status == 201
        with relay.serving("--token-file", str(token_file)):
            assert relay.ask("POST", "/progress/", progress(2)).status == 201
        with relay.serving():
            assert relay.ask("POST", "/progress/", progress(3)).status == 401
    found = [path for path in tmp_path.rglob("*") if path.is_file() and hub.token.encode() in path.read_bytes()]
    assert found == [token_file]


def test_callers_show_a_token_where_the_relay_asks_for_one(relay: Relay) -> None:
    with relay.serving("--require-token"):
        assert relay.ask("POST", "/progress/", progress(1)).status == 401
        token = (relay.home / "edge" / "local_token").read_text().strip()
        assert relay.ask("POST", "/progress/", progress(1), authorization=f"Bearer {token}").status == 202
        assert relay.told("outbox", "status", code=1)["pending"] == 1, "its owner is asked for none"


def test_a_process_that_holds_the_lock_and_is_silent_is_named(relay: Relay) -> None:
    with relay.serving() as process:
        sock = relay.home / "edge" / "sock"
        assert wait_until(sock.exists, 30)
        sock.unlink()
        ran = relay.run("outbox", "status", "--json")
        assert (ran.code, ran.json["code"]) == (3, "dependency_failed")
        assert f"process {process.pid} holds" in ran.err
    assert os.path.lexists(relay.outbox)
