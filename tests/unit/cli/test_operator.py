"""What an operator does without a daemon, or to one: tokens, logs, settings, completions, a look at the outbox."""

import json
import os
from types import SimpleNamespace

import pytest

from claudemesh.cli.command import Session
from claudemesh.cli.daemon import Flags, build_settings
from claudemesh.daemon.http.status import Health, describe_link
from claudemesh.runtime import processes
from claudemesh.runtime.home import Home, InstanceLock, Surroundings, read_private, write_private
from tests.unit.cli.conftest import Run, join_mesh
from tests.unit.cli.scripted import ScriptedDaemon, respond
from tools.examples import document_of

LINES = [{"at": "t1", "event": "daemon.started"}, {"at": "t2", "event": "daemon.stopped"}]
RELOADED = {"applied": ["disk.reserved_bytes"], "needs_restart": []}


@pytest.mark.req("D15")
def test_a_token_is_made_anew_by_whoever_has_it_in_force(run: Run, home: Home, daemon: ScriptedDaemon) -> None:
    path = home.mesh_dir("demo") / "local_token"
    daemon.on("POST", "/v1/rotate-token", respond(200, {}))
    ran = run("daemon", "rotate-token", "--json")
    assert (ran.code, ran.json["file"]) == (0, str(path))
    assert not path.exists()  # the daemon writes it, and keeps the old one for a minute
    daemon.stop()
    ran = run("daemon", "rotate-token")
    token = read_private(path).decode().strip()
    assert ran.code == 0
    assert len(token) >= 32
    assert token not in ran.out + ran.err
    daemon.start()


def test_a_daemon_without_its_broker_says_why(run: Run, daemon: ScriptedDaemon) -> None:
    health = {"connected": False, "link": "Connection refused", "queue_depth": 3, "inflight": 0}
    daemon.on("GET", "/v1/health", respond(200, health))
    ran = run("daemon", "status")
    assert ran.code == 0
    assert "broker not connected: Connection refused" in ran.out


@pytest.mark.req("C1")
def test_what_will_not_be_sent_any_more_is_said_with_the_rest(run: Run, daemon: ScriptedDaemon) -> None:
    health = {"connected": True, "link": "connected", "queue_depth": 0, "inflight": 0}
    daemon.on("GET", "/v1/health", respond(200, {**health, "dead": 2}), respond(200, {**health, "dead": 0}))
    assert "dead letters: 2, see `claudemesh daemon outbox list --failed`\n" in run("daemon", "status").out
    assert "dead" not in run("daemon", "status").out


def test_a_daemon_whose_link_is_not_ready_is_catching_up(run: Run, daemon: ScriptedDaemon) -> None:
    link = describe_link("connected", is_ready=False)
    health = {"connected": False, "link": link, "queue_depth": 0, "inflight": 0}
    daemon.on("GET", "/v1/health", respond(200, health))
    assert "broker catching up\n" in run("daemon", "status").out
    assert describe_link("connected", is_ready=True) == "connected"
    assert describe_link("Connection refused", is_ready=False) == "Connection refused"


def test_a_start_tells_of_the_link_when_it_is_known(
    run: Run, daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "start_detached", lambda *_: SimpleNamespace(poll=lambda: None))
    healths = [
        document_of(Health, connected=link == "connected", link=link)
        for link in ("connecting", "catching up", "connected")
    ]
    daemon.on("GET", "/v1/health", *(respond(200, health) for health in healths))
    assert run("daemon", "up", "--json").json["link"] == "connected"
    assert len(daemon.asked) == len(healths)


def test_a_daemon_that_is_kept_running_is_stopped_with_a_word_on_who_starts_it_again(run: Run, home: Home) -> None:
    join_mesh(home, "local")
    with InstanceLock(home.up_lock):
        assert f"claudemesh up` starts it again: to stop both, stop that one (process {os.getpid()})" in (
            run("daemon", "down").err
        )
    assert run("daemon", "down").err == ""


def test_what_a_daemon_cannot_do_yet_is_said_with_another_way(run: Run, daemon: ScriptedDaemon) -> None:
    assert daemon
    for words, instead in ((("daemon", "rotate-token"), "stop it first"), (("daemon", "reload"), "daemon restart")):
        ran = run(*words)
        assert ran.code == 1
        assert instead in ran.err


@pytest.mark.req("O2")
def test_a_reload_is_not_asked_for_what_would_be_refused(run: Run, home: Home, daemon: ScriptedDaemon) -> None:
    daemon.on("POST", "/v1/reload", respond(200, RELOADED))
    (home.mesh_dir("demo") / "config.toml").write_text("[disk]\nreserved_byte = 1\n")
    ran = run("daemon", "reload", "--json")
    assert (ran.code, ran.json["code"]) == (1, "config_invalid")
    assert "reserved_bytes" in ran.json["detail"]
    assert daemon.asked == []
    (home.mesh_dir("demo") / "config.toml").unlink()
    assert run("daemon", "reload", "--json").json == RELOADED


def test_the_log_is_shown_from_its_end_and_what_is_not_json_too(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    log = home.mesh_dir("demo") / "daemon.log"
    assert run("daemon", "logs").code == 1
    log.write_text("".join(f"{json.dumps(line)}\n" for line in LINES) + "\x1b[2Jraw\nhalf a li")
    assert run("daemon", "logs", "--json").json == {"lines": [*LINES, {"text": "\x1b[2Jraw"}]}
    assert run("daemon", "logs", "--lines", "1").out == "\\x1b[2Jraw\n"
    assert run("daemon", "logs", "--lines", "0").out == ""


@pytest.mark.req("C1")
@pytest.mark.prints("claudemesh completions")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_learns_the_commands_of_all_programs_or_of_one(run: Run, shell: str) -> None:
    every, alone = run("completions", shell, "--json").json, run("completions", shell, "--program", "cortex").out
    assert every["shell"] == shell
    for program in every["programs"]:
        variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
        assert variable in every["script"]
        assert (variable in alone) is (program == "cortex")


@pytest.mark.prints("claudemesh daemon recover")
def test_a_sound_outbox_needs_nothing_and_a_damaged_one_is_told_without_being_touched(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    assert run("daemon", "recover", "--json").json["damaged"] is False
    path = home.mesh_dir("demo") / "outbox.db"
    write_private(path, b"not a database" * 1000)
    ran = run("daemon", "recover", "--json")
    assert (ran.code, ran.json["code"]) == (1, "store_corrupt")
    assert path.read_bytes() == b"not a database" * 1000
    with InstanceLock(home.mesh_dir("demo") / "pid"):
        assert run("daemon", "recover", "--json").json["code"] == "already_running"


@pytest.mark.req("D16")
@pytest.mark.parametrize(
    ("ci", "said", "ttl_ms", "tcp"),
    [
        (False, Flags(), None, True),
        (False, Flags(ephemeral=True), 86_400_000, True),
        (False, Flags(ephemeral=True, ttl=7200), 7_200_000, True),
        (False, Flags(tcp=False), None, False),
        (True, Flags(), 86_400_000, False),
        (True, Flags(ephemeral=False, tcp=True), None, True),
    ],
)
def test_a_daemon_is_started_as_the_flags_say_and_else_as_the_surroundings_do(
    home: Home, said: Flags, ttl_ms: int | None, *, ci: bool, tcp: bool
) -> None:
    join_mesh(home, "demo")
    session = Session()
    session.__dict__["surroundings"] = Surroundings(home.root, ci="CI" if ci else None)
    settings = build_settings(session, said, log_to_stderr=False)
    assert (settings.ephemeral_ttl_ms, settings.tcp) == (ttl_ms, tcp)


@pytest.mark.req("P12")
def test_a_daemon_goes_by_the_times_of_its_environment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    join_mesh(home, "demo")
    for name, ms in (("LEASE_TTL_MS", "61234"), ("PING_INTERVAL_MS", "4321"), ("STALE_PONG_THRESHOLD_MS", "5678")):
        monkeypatch.setenv(name, ms)
    session = Session()
    session.__dict__["surroundings"] = Surroundings(home.root)
    settings = build_settings(session, Flags(), log_to_stderr=False)
    assert (settings.lease_ttl_ms, settings.ping_interval_ms, settings.stale_pong_ms) == (61234, 4321, 5678)


def test_a_time_to_live_is_for_an_ephemeral_key_only(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    assert run("daemon", "up", "--foreground", "--persistent", "--ttl", "2h").code == 2
