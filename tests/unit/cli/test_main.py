"""Every command takes `--json` and `--mesh` anywhere, finds its mesh, and ends with a code for scripts."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from claudemesh.cli.command import exit_code, parse_duration
from claudemesh.cli.main import root
from claudemesh.daemon.http.status import Health
from claudemesh.kernel import errors
from claudemesh.runtime.home import Home
from tests.contract.broker.backends import open_house
from tests.unit.cli.conftest import Run, join_mesh
from tests.unit.cli.scripted import ScriptedDaemon, refuse, respond
from tools.examples import document_of

HEALTH = document_of(Health)


@pytest.mark.req("C1")
@pytest.mark.parametrize(
    "words",
    [("--json", "daemon", "status"), ("daemon", "--json", "status"), ("daemon", "status", "--json")],
)
def test_json_may_stand_anywhere(run: Run, daemon: ScriptedDaemon, words: tuple[str, ...]) -> None:
    daemon.on("GET", "/v1/health", respond(200, HEALTH))
    ran = run(*words)
    assert ran.code == 0
    assert ran.json["connected"] is True


def commands(command: click.Command, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    found = {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= commands(below, (*path, name))
    return found


@pytest.mark.req("C1")
def test_every_command_takes_json_and_mesh_and_says_what_it_does() -> None:
    for path, command in commands(root).items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "--mesh"} <= options, path
        assert command.help, path


@pytest.mark.req("C1")
def test_the_words_are_those_of_the_contract() -> None:
    words = {" ".join(path) for path, command in commands(root).items() if not isinstance(command, click.Group)}
    assert words >= {
        "up",
        *(f"broker {verb}" for verb in ("serve", "check", "sweep", "restored")),
        *(
            f"ledger {verb}"
            for verb in ("verify", "post", "claim", "complete", "requeue", "renew", "upgrade", "head", "list")
        ),
        *(f"mesh {verb}" for verb in ("create", "invite", "join", "list", "set", "leave")),
        *(f"member {verb}" for verb in ("revoke", "role")),
        *(f"daemon {verb}" for verb in ("up", "down", "status", "restart", "reload", "logs")),
        *(f"daemon {verb}" for verb in ("rotate-token", "accept-host", "remint", "recover")),
        *(f"daemon outbox {verb}" for verb in ("list", "inspect", "requeue", "drop", "prune")),
        "send",
        "inbox",
        "trace",
        "peer list",
        *(f"topic {verb}" for verb in ("create", "list", "join", "leave", "tail")),
        *(f"queue {verb}" for verb in ("create", "work", "ack", "nack", "renew")),
        *(f"pipeline {verb}" for verb in ("ingest", "run", "check", "report")),
        "config show",
        "completions",
    }


# --- which mesh ------------------------------------------------------------------------------------------


def test_without_a_mesh_nothing_can_be_asked(run: Run) -> None:
    ran = run("inbox")
    assert ran.code == 2
    assert "mesh join" in ran.err


def test_with_several_meshes_one_must_be_named(run: Run, home: Home, daemon: ScriptedDaemon) -> None:
    join_mesh(home, "other")
    daemon.on("GET", "/v1/health", respond(200, HEALTH))
    ran = run("daemon", "status")
    assert ran.code == 2
    assert "demo, other" in ran.err
    assert run("daemon", "status", "--mesh", "demo").code == 0
    assert run("--mesh", "demo", "daemon", "status").code == 0


def test_the_environment_may_name_the_mesh_and_the_flag_wins(
    run: Run, home: Home, daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_mesh(home, "other")
    daemon.on("GET", "/v1/health", respond(200, HEALTH))
    monkeypatch.setenv("CLAUDEMESH_MESH", "other")
    assert run("daemon", "status").code == 3
    assert run("daemon", "status", "--mesh", "demo").code == 0


@pytest.mark.parametrize("slug", ["unknown", "../demo", ""])
def test_a_mesh_that_was_not_joined_is_wrong_usage(run: Run, daemon: ScriptedDaemon, slug: str) -> None:
    assert daemon
    ran = run("daemon", "status", "--mesh", slug or "-")
    assert ran.code == 2


# --- how it ends -----------------------------------------------------------------------------------------


@pytest.mark.req("C1")
def test_without_a_daemon_the_exit_code_is_3_and_the_command_is_named(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    ran = run("send", "bob", "hi", "--json")
    assert ran.code == 3
    assert ran.json["code"] == "no_daemon"
    assert "claudemesh daemon up" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.req("C1")
def test_a_conflict_is_4_and_its_words_can_be_read(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on(
        "POST",
        "/v1/send",
        refuse(
            409, "idempotency_key_reused", conflict="outbox_dead_fingerprint_match", fingerprint_prefix="00" * 8
        ),
    )
    ran = run("send", "bob", "hi", "--id", "build-42", "--json")
    assert ran.code == 4
    assert ran.json["code"] == "idempotency_key_reused"
    assert ran.json["conflict"] == "outbox_dead_fingerprint_match"
    assert ran.json["fingerprint_prefix"] == "00" * 8
    without_json = run("send", "bob", "hi", "--id", "build-42")
    assert (without_json.code, without_json.out) == (4, "")
    assert "outbox_dead_fingerprint_match" in without_json.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NoDaemon(), 3),
        (errors.BrokerUnreachable(), 3),
        (errors.ConnectionLost(), 3),
        (errors.DeadlineExceeded(), 3),
        (errors.StoreFull(), 1),
        (errors.StoreUnavailable(), 1),
        (errors.NotFound(), 1),
        (errors.Forbidden(), 1),
        (errors.AlreadyRunning(), 1),
        (errors.IntegrityError(), 1),
        (errors.InvalidRequest(), 2),
        (errors.InvalidClientMessageId(), 2),
        (errors.NameTaken(), 4),
        (errors.LeaseLost(), 4),
        (errors.TransitionRefused(), 4),
        (errors.RequestError("a newer server's", unknown_status=409), 4),
    ],
    ids=lambda value: getattr(value, "code", str(value)),
)
@pytest.mark.req("C1")
def test_the_exit_code_follows_from_the_error(error: errors.MeshError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    "words",
    [
        ("send", "bob"),
        ("send", "bob", "hi", "--nonsense"),
        ("nonsense",),
        ("send", "bob", "hi", "--priority", "high"),
        ("send", "bob", "hi", "--id", "a b"),
        ("send", "bob", "hi", "--meta", "[1]"),
        ("send", "bob", "hi", "--meta", '{"a": 1, "a": 2}'),
        ("send", "bob", "hi", "--meta", '{"a": NaN}'),
        ("send", "bob", "hi", "--timeout", "soon"),
        ("daemon", "outbox", "prune"),
        ("daemon", "outbox", "requeue", "--id", "r", "--auto", "--new-client-id", "x"),
        ("inbox", "--search", "x", "--follow"),
        ("queue", "ack", "jobs", "--id", "m"),
        ("mesh", "join", "not-a-code", "--name", "bob"),
        ("mesh", "create", "Not A Slug"),
        ("mesh", "create", "demo", "--broker", "http://example.org"),
        ("completions", "tcsh"),
        ("completions",),
        *(
            ("broker", "serve", "--listen", where)
            for where in ("banana", ":7459", "127.0.0.1:-1", "127.0.0.1:65536")
        ),
        ("broker", "serve", "--store", "banana"),
        ("broker", "serve", "--store", "mysql://localhost/mesh"),
        ("broker", "serve", "--limiter", "http://localhost"),
        ("broker", "check", "--store", "sqlite:///"),
        ("up", "--listen", "banana"),
        ("up", "--listen", "127.0.0.1:0"),
    ],
    ids=" ".join,
)
@pytest.mark.req("C1")
def test_wrong_usage_is_2_on_one_line_and_one_document(
    run: Run, daemon: ScriptedDaemon, words: tuple[str, ...]
) -> None:
    ran = run(*words, "--json")
    assert ran.code == 2
    assert ran.json["code"].startswith("invalid")
    assert ran.err.startswith("claudemesh: ")
    assert ran.err.count("\n") == 1
    assert daemon.asked == []


@pytest.mark.parametrize("option", ["--limiter", "--store"])
def test_a_url_that_is_refused_is_not_quoted(run: Run, option: str) -> None:
    ran = run("broker", "serve", option, "http://:secret@localhost")
    assert ran.code == 2
    assert "secret" not in ran.out + ran.err


@pytest.mark.req("C1")
@pytest.mark.parametrize("verb", ["serve", "check", "sweep", "restored"])
def test_a_store_that_cannot_be_reached_is_told_in_a_line_without_its_password(run: Run, verb: str) -> None:
    ran = run("broker", verb, "--store", "postgresql://me:secret@127.0.0.1:1/mesh")
    assert ran.code == 1
    [*_, told] = ran.err.splitlines()
    assert told.startswith("claudemesh: ")
    assert "Traceback" not in ran.err
    assert "secret" not in ran.out + ran.err


@pytest.mark.req("C1")
@pytest.mark.prints("claudemesh broker restored")
def test_of_a_store_that_came_back_from_a_backup_each_time_begins_an_epoch(run: Run, tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path / 'broker.db'}")
    assert run("broker", "restored", *store).code == 1, "there is none"
    open_house("sqlite-grouped", tmp_path).stores.database.close()
    assert [run("broker", "restored", *store, "--json").json for _ in range(2)] == [{"epoch": 1}, {"epoch": 2}]
    assert run("broker", "check", *store, "--json").json["violations"] == 0


def test_up_is_for_its_own_mesh_only(run: Run) -> None:
    ran = run("up", "--mesh", "demo")
    assert ran.code == 2
    assert "'local' and no other" in ran.err


def test_usage_that_click_breaks_into_lines_is_one(run: Run) -> None:
    assert "Choose from: bash, zsh, fish" in run("completions").err


def test_the_version_is_a_document_too(run: Run) -> None:
    version = run("--version").out.removeprefix("claudemesh ").strip()
    for words in (("--version", "--json"), ("--json", "--version")):
        assert run(*words).json == {"version": version}


def test_a_group_without_a_verb_shows_its_help(run: Run) -> None:
    ran = run("daemon")
    assert ran.code == 2
    assert "Commands:" in ran.err
    assert run("--help").code == 0
    assert run("--version").out.startswith("claudemesh ")


def test_an_error_shows_nothing_of_a_hostile_server_unescaped(run: Run, daemon: ScriptedDaemon) -> None:
    daemon.on("POST", "/v1/send", refuse(404, "unknown_destination", detail="\x1b[2J\u202e\n2nd line"))
    ran = run("send", "bob", "hi")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "\\x1b[2J\\u202e\\n2nd line" in ran.err


def test_a_file_that_cannot_be_written_is_a_failure_that_names_it(run: Run, home: Home) -> None:
    home.root.write_text("in the way")
    ran = run("mesh", "create", "demo", "--json")
    assert ran.code == 1
    assert str(home.root) in ran.json["detail"]


@pytest.mark.parametrize("home", ["/dev/null/x", "/dev/null/x/y", "/dev/null"])
@pytest.mark.parametrize("words", [("mesh", "create", "demo"), ("broker", "serve"), ("up",)], ids=" ".join)
def test_a_home_that_cannot_be_is_called_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, home: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CLAUDEMESH_HOME", home)
    ran = run(*words, "--json")
    assert (ran.code, ran.json["code"]) == (1, "config_invalid")
    assert ran.json["detail"].startswith("/dev/null")


def test_a_home_that_is_read_only_is_called_so(run: Run, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    ran = run("mesh", "create", "demo", "--json")
    assert (ran.code, ran.json["code"]) == (1, "config_invalid")
    assert str(home.root.parent) in ran.json["detail"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("500ms", 0.5), ("15m", 900), ("24h", 86_400), ("7d", 604_800), ("1.5", 1.5)]
)
def test_times_are_written_with_their_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "0s", "-1s", "1w", "1 s", "1e3s", "٣s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_duration(text)


# --- what it costs ---------------------------------------------------------------------------------------

HEAVY = (
    "apsw",
    "asyncio",
    "http.client",
    "msgspec",
    "nacl",
    "ssl",
    "subprocess",
    "uvicorn",
    "uvloop",
    "websockets",
)


def test_a_send_loads_nothing_that_it_does_not_need(home: Home, daemon: ScriptedDaemon) -> None:
    daemon.on("POST", "/v1/send", lambda asked: respond(202, {"status": "queued", **asked.json}))
    listing = (
        "import json, sys; from claudemesh.cli.main import main; code = main(sys.argv[1:]); "
        "print(json.dumps([code, sorted(sys.modules)]))"
    )
    command = [sys.executable, "-c", listing, "send", "bob", "hi"]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"CLAUDEMESH_HOME": str(home.root)}, timeout=60
    )
    code, loaded = json.loads(ran.stdout.splitlines()[-1])
    assert code == 0
    assert [name for name in HEAVY if name in loaded] == []


def test_the_console_script_is_installed(home: Home) -> None:
    script = Path(sys.executable).with_name("claudemesh")
    ran = subprocess.run(
        [script, "mesh", "list", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={"CLAUDEMESH_HOME": str(home.root)},
        timeout=60,
    )
    assert json.loads(ran.stdout) == {"meshes": [], "damaged": []}


@pytest.mark.parametrize(
    ("word", "meant"), [("installs", "install"), ("peers", "peer"), ("dash-board", "dashboard")]
)
def test_a_mistyped_command_is_told_the_nearest(run: Run, word: str, meant: str) -> None:
    ran = run(word)
    assert ran.code == 2
    assert f"Did you mean '{meant}'?" in ran.err


def test_who_joined_no_mesh_is_told_the_shortest_way_to_one(run: Run) -> None:
    assert "`claudemesh up`" in run("inbox").err
