"""The contract of every command, checked on every command: `--json` is heard, and how it ends is told by a code."""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from claudemesh.cli import completions, cortex, main
from claudemesh.cli.command import exit_code
from claudemesh.cli.documents import PRINTED
from claudemesh.cli.statehub import edge
from claudemesh.cli.statehub import main as statehub
from claudemesh.kernel import errors, write_errors
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.home import Home
from tests.contract.broker.backends import open_house
from tests.unit.cli.conftest import Ran, Run, join_mesh
from tools.command_tree import leaves

pytestmark = pytest.mark.req("C1")

MAINS: dict[str, Callable[[list[str]], int]] = {
    "claudemesh": main.main,
    "cortex": cortex.main,
    "statehub": statehub.main,
    "statehub-edge": edge.main,
}
COMMANDS = list(leaves())
FAIL_OPEN = {"claudemesh hook"}  # its host must not stumble over it: whatever it is told, it ends with 0
LEASE = ["--id", "b1", "--token", "7"]

# The least that must be said to a command that asks a daemon.
ASKING = {
    "claudemesh daemon status": [],
    "claudemesh daemon reload": [],
    "claudemesh daemon outbox list": [],
    "claudemesh daemon outbox inspect": ["--id", "r1"],
    "claudemesh daemon outbox requeue": ["--id", "r1"],
    "claudemesh daemon outbox drop": ["--id", "r1"],
    "claudemesh daemon outbox prune": ["--confirm"],
    "claudemesh send": ["bob", "hi"],
    "claudemesh inbox": [],
    "claudemesh trace": ["m1"],
    "claudemesh peer list": [],
    "claudemesh mesh set": ["--sends-per-window", "9"],
    "claudemesh member revoke": ["bob"],
    "claudemesh member role": ["bob", "admin"],
    "claudemesh topic create": ["ops"],
    "claudemesh topic list": [],
    "claudemesh topic join": ["ops"],
    "claudemesh topic leave": ["ops"],
    "claudemesh topic tail": ["ops"],
    "claudemesh queue list": [],
    "claudemesh queue create": ["jobs"],
    "claudemesh queue work": ["jobs"],
    "claudemesh queue ack": ["jobs", *LEASE],
    "claudemesh queue nack": ["jobs", *LEASE],
    "claudemesh queue renew": ["jobs", *LEASE],
}
# And to one that needs no daemon, but a mesh.
MEANING = ASKING | {
    "claudemesh daemon up": [],
    "claudemesh daemon down": [],
    "claudemesh daemon restart": [],
    "claudemesh daemon logs": [],
    "claudemesh daemon rotate-token": [],
    "claudemesh daemon accept-host": [],
    "claudemesh daemon recover": [],
    "claudemesh daemon remint": [],
    "claudemesh mesh invite": [],
    "claudemesh mesh leave": [],
}


def call(path: str, *words: str) -> Ran:
    program, *command = path.split()
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = MAINS[program]([*command, *words])
    return Ran(code, out.getvalue(), err.getvalue())


WRONG = (("--json", "--no-such-option"), ("--no-such-option", "--json"))

# --- every failure is a problem --------------------------------------------------------------------------


@pytest.mark.prints("problem")
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in FAIL_OPEN])
def test_wrong_usage_is_2_and_with_json_a_problem(path: str) -> None:
    for words in WRONG if not path.endswith(" post") else (("--json", "-", WRONG[0][1]),):  # there it has a FILE
        ran = call(path, *words)
        assert (ran.code, ran.json["code"], ran.json["retry"]) == (2, "invalid_request", "no")
        assert "no-such-option" in ran.json["detail"]
        assert f"`{path} --help`" in ran.err
        assert ran.err.count("\n") == 1


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_explains_itself_and_all_of_its_options(path: str) -> None:
    ran = call(path, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert f"Usage: {path}" in ran.out
    command = leaves()[path]
    unsaid = [
        one.opts for one in command.params if one.param_type_name == "option" and not getattr(one, "help", "")
    ]
    assert unsaid == []


@pytest.mark.parametrize("path", ASKING)
def test_without_a_daemon_it_is_3_and_with_json_a_problem(home: Home, path: str) -> None:
    join_mesh(home, "demo")
    ran = call(path, *ASKING[path], "--json")
    assert (ran.code, ran.json["code"]) == (3, "no_daemon")
    assert "`claudemesh daemon up --mesh demo`" in ran.json["detail"]


@pytest.mark.parametrize("path", MEANING)
def test_of_several_meshes_one_must_be_named(home: Home, path: str) -> None:
    for slug in ("one", "two"):
        join_mesh(home, slug)
    ran = call(path, *MEANING[path], "--json")
    assert ran.code == 2
    assert "one, two" in ran.json["detail"]
    unknown = call(path, *MEANING[path], "--json", "--mesh", "three")
    assert unknown.code == 2
    assert "one, two" in unknown.json["detail"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_mistake_of_ours_is_1_and_a_problem_too_with_its_place_on_standard_error(
    run: Run, home: Home, monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret word")

    monkeypatch.setattr(Home, "meshes", fail)
    ran = run("mesh", "list", *(["--json"] if as_json else []))
    assert home
    assert ran.code == 1
    assert "ZeroDivisionError" in ran.err
    assert "Traceback" in ran.err
    if as_json:
        assert ran.json["code"] == "internal_error"
        assert "a secret word" not in ran.out
    else:
        assert ran.out == ""


def test_the_exit_codes_are_those_of_the_contract() -> None:
    assert write_errors
    ends = {error.code: exit_code(errors_of(error)) for error in MeshError.family()}
    assert {code for code, end in ends.items() if end == 0} == set()
    assert all(ends[error.code] == 4 for error in MeshError.family() if error.status == 409)
    assert ends["invalid_request"] == 2
    assert {"no_daemon", "broker_unreachable", "connection_lost"} <= {
        code for code, end in ends.items() if end == 3
    }
    assert ends["insufficient_storage"] == ends["not_found"] == ends["forbidden"] == 1


def errors_of(kind: type[MeshError]) -> MeshError:
    words = {"conflict": "", "fingerprint_prefix": ""} if issubclass(kind, errors.IdempotencyConflict) else {}
    return kind("", **words)


# --- what else is printed ----------------------------------------------------------------------------------


@pytest.mark.prints("claudemesh --version", "cortex --version", "statehub --version", "statehub-edge --version")
@pytest.mark.usefixtures("home")
def test_every_program_says_its_version() -> None:
    for program in MAINS:
        said = call(program, "--version").out.split()
        assert said[0] == program
        for words in (("--version", "--json"), ("--json", "--version")):
            assert call(program, *words).json == {"version": said[1]}


@pytest.mark.prints(*(key for key in PRINTED if key.startswith(("claudemesh ledger ", "cortex cassette "))))
def test_a_ledger_is_the_same_under_both_of_its_names(home: Home, tmp_path: Path) -> None:
    payload = tmp_path / "payload.json"
    payload.write_text('{"intent": "build"}')
    home.ensure()
    for group in ("claudemesh ledger", "cortex cassette"):
        db = ("--db", str(tmp_path / f"{group.split()[0]}.db"))

        def verb(name: str, *words: str, group: str = group, db: tuple[str, ...] = db) -> Ran:
            return call(f"{group} {name}", *words, *db)

        run_of = ("--run-id", "r")
        for _ in range(2):
            assert verb("post", "--json", str(payload), *run_of, "--source", "USER").code == 0
        step = verb("claim", *run_of, "--worker", "w", "--json").json
        held = ("--step", step["step_id"], "--worker", "w", "--token", str(step["fencing_token"]), "--json")
        assert verb("renew", *run_of, *held).code == 0
        assert verb("complete", *run_of, *held, "--receipt", str(payload), "--outcome", "SUCCESS").code == 0
        assert verb("requeue", *run_of, "--json").json == {"requeued": []}
        assert len(verb("list", "--json").json["steps"]) == 2
        assert verb("upgrade", "--json").json == {"from": 2, "to": 2}
        assert verb("head").json["seq"] > 0
        assert verb("verify", "--json").json == {"ok": True, "issues": []}


@pytest.mark.prints("claudemesh broker rotate-resume-key", "claudemesh broker sweep", "claudemesh broker check")
def test_a_brokers_store_is_cared_for(run: Run, tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path / 'broker.db'}")
    open_house("sqlite-grouped", tmp_path).stores.database.close()
    assert run("broker", "rotate-resume-key", *store, "--json").json["keys"] >= 1
    assert run("broker", "sweep", *store, "--json").json == {"messages": 0, "dead_letters": 0, "ids": 0}
    assert run("broker", "check", *store, "--json").json == {"violations": 0, "items": []}


def test_all_programs_are_completed(run: Run) -> None:
    assert run("completions", "bash", "--json").json["programs"] == list(completions.PROGRAMS) == list(MAINS)
