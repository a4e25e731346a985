"""`install` and `uninstall` in a home of their own: what is written, what is refused, and what stays."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claudemesh.cli.host import files
from claudemesh.cli.host.blocks import read_block, read_skill
from claudemesh.cli.host.state import Declared, read_state
from claudemesh.kernel.errors import HostFileRefused
from claudemesh.runtime import points
from claudemesh.runtime.environment import read_environment
from claudemesh.runtime.home import Home
from tests.unit.cli.conftest import Run, join_mesh

SKILL = ".claude/skills/claudemesh/SKILL.md"
SETTINGS = ".claude/settings.json"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a user's home with a project in it, in which the commands run."""
    folder = tmp_path / "user"
    (folder / "project" / ".git").mkdir(parents=True)
    (folder / "project" / "src").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(folder / "project" / "src")
    yield folder
    points.disarm_all()


def tree(folder: Path) -> dict[str, Any]:
    """Return every path below a folder: what is in files and links, and their modes."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else (path.read_bytes(), path.stat().st_mode)
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


def states(**how: Any) -> dict[tuple[str, str], Declared]:  # noqa: ANN401 - passed through
    return {(one.scope, one.part): one for one in read_state(Path.cwd(), read_environment(), **how)}


@pytest.mark.req("C7")
@pytest.mark.prints("claudemesh install")
def test_installing_twice_changes_nothing_the_second_time_and_says_so(run: Run, user: Path) -> None:
    first = run("install", "--json").json
    assert [step["action"] for step in first["steps"]] == ["create"] * 3
    assert {one["state"] for one in first["state"]} == {"ok"}
    before = tree(user)
    stamps = {path: path.stat().st_mtime_ns for path in user.rglob("*")}
    second = run("install", "--json").json
    assert (second["changed"], [step["action"] for step in second["steps"]]) == (False, ["keep"] * 3)
    assert run("install").out.startswith("nothing to do")
    assert tree(user) == before
    assert {path: path.stat().st_mtime_ns for path in user.rglob("*")} == stamps


@pytest.mark.req("C7")
@pytest.mark.prints("claudemesh uninstall")
@pytest.mark.parametrize("scope", ["user", "project"])
def test_uninstalling_leaves_what_was_there_and_nothing_else(run: Run, user: Path, scope: str) -> None:
    for name in (".claude.json", SETTINGS, "project/.mcp.json", f"project/{SETTINGS}"):
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_bytes(b'{"mcpServers": {}, "hooks": {"Stop": []},\r\n "numStartups": 1.0}')
        (user / name).chmod(0o640)
    (user / "project/AGENTS.md").write_text("# Ours\n\nNo end of line")
    before = tree(user)
    more = ["--agents-md"] if scope == "project" else []
    assert run("install", "--scope", scope, *more, "--json").json["changed"]
    assert tree(user) != before
    assert run("uninstall", "--scope", scope, "--json").json["changed"]
    assert tree(user) == before
    again = run("uninstall", "--scope", scope, "--json").json
    assert not again["changed"]


def test_files_and_directories_that_were_made_go_again_and_so_does_the_receipt(run: Run, user: Path) -> None:
    before = tree(user.parent)
    run("install")
    run("install", "--scope", "project", "--agents-md")
    assert (user.parent / "h" / "host.json").exists()
    run("uninstall")
    run("uninstall", "--scope", "project")
    assert tree(user.parent) == before


def test_what_others_added_meanwhile_stays(run: Run, user: Path) -> None:
    run("install")
    (user / ".claude" / "skills" / "mine").mkdir()
    settings = json.loads((user / SETTINGS).read_text())
    (user / SETTINGS).write_text(json.dumps({"model": "x", **settings}))
    run("uninstall")
    assert json.loads((user / SETTINGS).read_text()) == {"model": "x"}
    assert sorted(path.name for path in (user / ".claude").rglob("*")) == ["mine", "settings.json", "skills"]


@pytest.mark.req("C7")
@pytest.mark.parametrize("nonsense", [b"\xff nonsense", b"[" * 60_000], ids=["bytes", "deep"])
def test_without_a_receipt_what_is_empty_without_us_goes(run: Run, user: Path, nonsense: bytes) -> None:
    run("install", "--scope", "project")
    (user.parent / "h" / "host.json").write_bytes(nonsense)
    assert run("uninstall", "--scope", "project").code == 0
    assert not (user / "project" / ".mcp.json").exists()
    assert not (user / "project" / SKILL).parent.exists()


@pytest.mark.req("C7")
def test_a_users_server_is_named_by_its_path_and_a_projects_by_its_name(run: Run, user: Path) -> None:
    run("install", "--mesh", "demo")
    run("install", "--scope", "project")
    mine = json.loads((user / ".claude.json").read_text())["mcpServers"]["claudemesh"]
    ours = json.loads((user / "project" / ".mcp.json").read_text())["mcpServers"]["claudemesh"]
    assert Path(mine["command"]).is_absolute()
    assert os.access(mine["command"], os.X_OK)
    assert mine["args"] == ["mcp", "--mesh", "demo"]
    assert mine["env"] == {"CLAUDEMESH_HOME": str(user.parent / "h")}, "it is not the usual one"
    assert ours == {"type": "stdio", "command": "claudemesh", "args": ["mcp"], "env": {}}
    shared = [(user / "project" / name).read_text() for name in (".mcp.json", SETTINGS, SKILL)]
    assert not any(str(user.parent) in text for text in shared), "no path of one machine is shared"


def test_a_host_that_keeps_its_files_elsewhere_is_heard(
    run: Run, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(user / "other"))
    run("install")
    made = {str(path.relative_to(user)) for path in user.rglob("*") if path.is_file()}
    assert made == {"other/.claude.json", "other/settings.json", "other/skills/claudemesh/SKILL.md"}


def test_a_dry_run_shows_the_lines_and_writes_nothing(run: Run, user: Path) -> None:
    (user / ".claude.json").write_text('{\n  "secret": "s3cret"\n}\n')
    before = tree(user.parent)
    ran = run("install", "--dry-run")
    assert '"command"' in ran.out
    assert "s3cret" not in ran.out, "the lines around it are others'"
    assert tree(user.parent) == before


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.req("C7")
@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--print",)])
def test_a_home_that_no_host_could_be_told_of_is_refused_before_anything_is_written(
    run: Run, user: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CLAUDEMESH_HOME", os.fsdecode(os.fsencode(user / "x") + b"\xff"))
    before = tree(user.parent)
    ran = run("install", *words, "--json")
    assert (ran.code, ran.out and json.loads(ran.out)["code"]) == (1, "config_invalid")
    assert "x\\xff" in json.loads(ran.out)["detail"]
    assert tree(user.parent) == before


def _link(path: Path) -> None:
    path.with_name("real.json").write_text("{}")
    path.symlink_to("real.json")


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere.json")


def _read_only(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0o400)


def _named_twice(path: Path) -> None:
    path.write_text("{}")
    path.with_name("other.json").hardlink_to(path)


BAD: dict[str, list[Callable[[Path], object]]] = {
    "not_understood": [
        lambda path: path.write_text("{ // mine\n}"),
        lambda path: path.write_text(""),
        lambda path: path.write_text("[1]"),
        lambda path: path.write_text('{"hooks": 1, "mcpServers": 2}'),
    ],
    "not_utf8": [lambda path: path.write_bytes(b'{"a": "\xe9"}')],
    "symlink": [_link, _dangling],
    "not_a_file": [lambda path: path.mkdir(), os.mkfifo],
    "read_only": [_read_only],
    "hard_link": [_named_twice],
    "foreign_entry": [
        lambda path: path.write_text(
            '{"mcpServers": {"claudemesh": {"command": "x"}}, "hooks": {}}'
            if path.name == ".claude.json"
            else '{"hooks": 1}'
        )
    ],
}


@pytest.mark.req("C7")
@pytest.mark.parametrize("name", [".claude.json", SETTINGS])
@pytest.mark.parametrize(("reason", "spoil"), [(reason, one) for reason, all_of in BAD.items() for one in all_of])
def test_a_file_that_is_not_understood_is_left_alone_and_so_are_the_others(
    run: Run, user: Path, name: str, reason: str, spoil: Callable[[Path], object]
) -> None:
    path = user / name
    path.parent.mkdir(exist_ok=True)
    spoil(path)
    before = tree(user)
    ran = run("install", "--json")
    assert (ran.code, ran.json["code"]) == (1, "host_file_refused")
    assert ran.json["reason"] in (reason, "not_understood")
    assert ran.json["path"] == str(path)
    assert '"mcpServers"' in ran.json["snippet"], "what to paste by hand"
    assert tree(user) == before
    assert "mcpServers" in run("install").err


def test_a_project_that_was_removed_is_said_to_be(run: Run, user: Path) -> None:
    (user / "project" / "src").rmdir()
    assert run("install", "--scope", "project", "--json").json["code"] == "config_invalid"


def test_a_file_of_another_user_is_left_alone(run: Run, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (user / ".claude.json").write_text("{}")
    before = tree(user)
    monkeypatch.setattr("claudemesh.cli.host.files.os.geteuid", lambda: os.getuid() + 1)
    assert run("install", "--json").json["reason"] == "foreign_owner"
    assert tree(user) == before


def test_a_file_keeps_its_group_and_one_of_a_group_that_its_owner_is_not_in_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{}")
    found = files.read(path, tmp_path)
    assert found.group == path.stat().st_gid
    of_another = replace(found, group=found.group + 1)
    given: list[tuple[int, int]] = []
    monkeypatch.setattr("claudemesh.cli.host.files.os.fchown", lambda _, *how: given.append(how))
    files.write(of_another, b'{"a": 1}')
    assert (path.read_text(), given) == ('{"a": 1}', [(-1, of_another.group)])

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("claudemesh.cli.host.files.os.fchown", refuse)
    with pytest.raises(HostFileRefused) as refused:
        files.write(replace(of_another, data=path.read_bytes()), b"{}")
    assert refused.value.extras["reason"] == "foreign_group"
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("settings.json", '{"a": 1}')]


@pytest.mark.req("C7")
def test_a_link_is_followed_only_if_that_is_asked_for_and_stays_a_link(run: Run, user: Path) -> None:
    dotfiles = user / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "settings.json").write_text('{\n  "model": "x"\n}\n')
    (user / ".claude").symlink_to("dotfiles")
    before = tree(user)
    assert run("install", "--json").json["reason"] == "symlink"
    assert tree(user) == before
    assert run("install", "--follow-links").code == 0
    assert (user / ".claude").is_symlink()
    assert "SessionStart" in (dotfiles / "settings.json").read_text()
    assert states(scopes=("user",))["user", "hooks"].state == "ok"
    assert run("uninstall", "--follow-links").code == 0
    assert tree(user) == before


@pytest.mark.req("C7")
def test_a_file_that_changes_between_read_and_write_is_not_overwritten(run: Run, user: Path) -> None:
    target = user / ".claude.json"
    target.write_text('{"numStartups": 1}')
    looks = []

    def change() -> None:
        looks.append(1)
        if len(looks) == 6:  # three before the first write, then one for each file: this is the last
            target.write_text('{"numStartups": 2}')

    points.arm(files.CHECKED, change)
    ran = run("install", "--json")
    points.disarm_all()
    assert (ran.json["reason"], target.read_text()) == ("changed_meanwhile", '{"numStartups": 2}')
    assert SKILL in ran.json["detail"], "what was written is named"
    assert [path.name for path in user.glob(".*.tmp")] == []
    assert run("install").code == 0
    assert json.loads(target.read_text())["numStartups"] == 2
    run("uninstall")
    assert target.read_text() == '{"numStartups": 2}'


def test_a_change_before_the_first_write_stops_all(run: Run, user: Path) -> None:
    (user / ".claude.json").write_text("{}")
    points.arm(files.CHECKED, lambda: (user / ".claude.json").write_text('{"a": 1}'))
    assert run("install", "--json").json["reason"] == "changed_meanwhile"
    points.disarm_all()
    assert not (user / ".claude").exists()
    assert run("install").code == 0


def test_a_skill_that_somebody_changed_stays_until_it_is_forced(run: Run, user: Path) -> None:
    run("install")
    (user / SKILL).write_text("mine\n")
    assert run("install", "--json").json["reason"] == "foreign_entry"
    ran = run("uninstall")
    assert (ran.code, (user / SKILL).read_text()) == (0, "mine\n")
    assert "--force" in ran.err
    assert run("install", "--force").code == 0
    assert (user / SKILL).read_text() == read_skill()


def test_a_mesh_that_is_no_slug_and_options_that_do_not_go_together_are_wrong_usage(run: Run, user: Path) -> None:
    assert run("install", "--mesh", "../x").code == 2
    assert run("install", "--agents-md").code == 2
    assert run("install", "--print", "emacs").code == 2
    assert list(user.rglob("*.json")) == []


# --- what is told -------------------------------------------------------------------------------------


@pytest.mark.req("C7")
def test_what_is_declared_is_read_back_with_what_to_do_about_it(run: Run, user: Path) -> None:
    assert {one.state for one in states().values()} == {"absent"}
    assert states()["project", "agents"].fix == "`claudemesh install --scope project --agents-md`"
    run("install")
    assert {one.state for key, one in states().items() if key[0] == "user"} == {"ok"}
    entry = user / ".claude.json"
    entry.write_text(entry.read_text().replace("/claudemesh", "/gone/claudemesh", 1))
    (user / SETTINGS).write_text("{,}")
    (user / SKILL).write_text("mine")
    found = states()
    assert [found["user", part].state for part in ("server", "hooks", "skill")] == ["stale", "damaged", "stale"]
    assert "--force" in (found["user", "skill"].fix or "")
    assert str(user / SETTINGS) in (found["user", "hooks"].fix or "")


def test_a_snippet_is_printed_and_nothing_is_written(run: Run, user: Path) -> None:
    before = tree(user)
    assert run("install", "--print", "codex").out.splitlines()[1] == "[mcp_servers.claudemesh]"
    assert run("install", "--host", "vscode", "--json").json["snippets"][0]["where"].startswith(".vscode/mcp.json")
    assert run("install", "--print", "agents-md").out.endswith(read_block() + "\n")
    assert "SessionStart" in run("install", "--print").out
    assert tree(user) == before


@pytest.mark.req("C7")
def test_without_its_sdk_the_server_is_declared_and_all_say_what_it_still_needs(
    run: Run, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claudemesh.runtime.extras.find_spec", lambda _name: None)
    ran = run("install")
    assert (ran.code, "the server cannot start yet" in ran.err) == (0, True)
    assert "make setup" in ran.err
    assert (user / ".claude.json").exists()
    (entry,) = [one for one in run("doctor", "--json").json["checks"] if one["name"] == "host-entry"]
    assert (entry["verdict"], "cannot start" in entry["detail"]) == ("fail", True)
    assert "make setup" in entry["fix"]
    served = run("mcp")
    assert (served.code, "pip install 'claudemesh[mcp]'" in served.err) == (1, True)
    assert "Traceback" not in served.err


@pytest.mark.req("C7")
def test_with_several_meshes_the_server_is_declared_for_the_one_that_is_named(
    run: Run, user: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry() -> str:
        (found,) = [one for one in run("doctor", "--json").json["checks"] if one["name"] == "host-entry"]
        return str(found["verdict"])

    join_mesh(home, "one")
    assert run("install").code == 0
    assert entry() == "ok"
    join_mesh(home, "two")
    assert entry() == "warn"
    before = tree(user)
    refused = run("install")
    assert (refused.code, "--mesh with one of: one, two" in refused.err, tree(user)) == (2, True, before)
    assert run("install", "--mesh", "two").code == 0
    assert entry() == "ok"
    monkeypatch.setenv("CLAUDEMESH_MESH", "one")
    run("install")
    assert '"--mesh", "one"' in " ".join((user / ".claude.json").read_text().split())


@pytest.mark.req("C7")
def test_a_mesh_that_is_not_joined_is_declared_for_nobody_once_another_one_is(
    run: Run, user: Path, home: Home
) -> None:
    join_mesh(home, "one")
    before = tree(user)
    refused = run("install", "--mesh", "two")
    assert (refused.code, "two" in refused.err, tree(user)) == (2, True, before)
    assert run("install", "--mesh", "one").code == 0


@pytest.mark.req("C7")
def test_hooks_of_user_and_project_at_once_are_warned_of(run: Run, user: Path) -> None:
    def hooks() -> dict[str, str]:
        checks = run("doctor", "--json").json["checks"]
        return {one["subject"]: one["verdict"] for one in checks if one["name"] == "host-hooks"}

    run("install")
    run("install", "--scope", "project")
    assert hooks() == {"user": "ok", "project": "warn"}
    run("uninstall")
    assert hooks() == {"project": "ok"}
    assert user.exists()


@pytest.mark.req("C7")
def test_a_block_in_agents_md_is_read_back_where_it_was_put_and_missed_nowhere(run: Run, user: Path) -> None:
    def block() -> tuple[str, str]:
        (found,) = [one for one in run("doctor", "--json").json["checks"] if one["name"] == "host-agents"]
        return found["verdict"], found["fix"]

    run("install")
    assert block()[0] == "not_applicable"
    run("install", "--scope", "project", "--agents-md")
    assert block()[0] == "ok"
    agents = user / "project/AGENTS.md"
    agents.write_text(agents.read_text().replace("relay", "replay"))
    assert block() == ("warn", "`claudemesh install --scope project --agents-md`")
    whole = agents.read_text()
    run("uninstall", "--scope", "project")
    agents.write_text(whole)  # as a colleague's clone has it, who told a host of nothing
    checks = run("doctor", "--json").json["checks"]
    assert {one["subject"] for one in checks if one["name"] == "host-entry"} == {"user"}, "its server is not missed"


@pytest.mark.req("C7")
def test_a_project_that_names_a_program_that_is_not_on_the_path_is_told(
    run: Run, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry() -> tuple[str, str]:
        (found,) = [one for one in run("doctor", "--json").json["checks"] if one["name"] == "host-entry"]
        return found["verdict"], found["detail"]

    run("install", "--scope", "project")
    monkeypatch.setenv("PATH", str(user / "bin"))
    assert entry() == ("warn", "starts claudemesh mcp, and no such program is on your PATH")
    (user / "bin").mkdir()
    (user / "bin" / "claudemesh").touch(mode=0o755)
    assert entry() == ("ok", "starts claudemesh mcp")


@pytest.mark.req("C7")
@pytest.mark.parametrize("how", ["in the home", "below a home that is a repository", "by a link"])
def test_a_project_whose_files_are_the_users_is_neither_written_nor_missed(
    run: Run, user: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (user / "work" / "foo").mkdir(parents=True)
    if how == "below a home that is a repository":
        (user / ".git").mkdir()
    if how == "by a link":
        (user.parent / "beside").symlink_to(user)
        monkeypatch.setenv("HOME", str(user.parent / "beside"))
    monkeypatch.chdir(user / "work" / "foo" if "below" in how else user)
    assert run("install").code == 0, "under a home of ours that is not the usual one, which the hooks name"
    before = tree(user)
    assert {scope for scope, _ in states()} == {"user"}
    checks = [one for one in run("doctor", "--json").json["checks"] if one["family"] == "agent host"]
    assert not [one for one in checks if one["verdict"] == "warn" or one["subject"] == "project"]
    for command in ("install", "uninstall"):
        refused = run(command, "--scope", "project", "--json")
        assert (refused.code, refused.json["code"]) == (1, "config_invalid")
        assert "--scope user" in refused.json["detail"]
    assert tree(user) == before
