"""`claudemesh doctor` as it is called."""

import os
import stat
import tarfile
from pathlib import Path

import pytest

from claudemesh.cli.doctor import command, scene
from claudemesh.cli.doctor.checks import ALL
from claudemesh.runtime.home import Home
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene, "ASK_S", 0.2)


@pytest.mark.req("C5", "C1")
@pytest.mark.prints("claudemesh doctor")
def test_one_document_says_all_and_the_exit_code_whether_all_pass(run: Run, state_dir: Path) -> None:
    ran = run("doctor", "--json")
    assert ran.code == 1
    assert (ran.json["ok"], ran.json["fixed"], ran.json["bundle"]) == (False, [], None)
    assert {check["name"] for check in ran.json["checks"]} == {check.name for check in ALL}
    wrong = {check["name"]: check for check in ran.json["checks"] if check["verdict"] == "fail"}
    assert {"daemon", "reachable"} <= wrong.keys()
    assert wrong["daemon"]["fix"] == "start it: `claudemesh daemon up --mesh demo`"
    assert all(check["fix"] for check in ran.json["checks"] if check["verdict"] in {"warn", "fail", "unknown"})
    assert state_dir.exists()


@pytest.mark.req("C5")
def test_a_warning_does_not_pass_and_what_is_not_there_does(
    run: Run, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.ensure()
    assert run("doctor").code == 1, "no mesh is joined: a warning"
    monkeypatch.setattr(command, "ALL", [check for check in ALL if check.name != "mesh"])
    ran = run("doctor", "--json")
    verdicts = {check["verdict"] for check in ran.json["checks"]}
    assert (ran.code, ran.json["ok"], verdicts) == (0, True, {"ok", "not_applicable"})


@pytest.mark.req("C5")
def test_people_see_each_check_on_a_line_and_what_to_do_at_the_end(run: Run, state_dir: Path) -> None:
    lines = run("doctor").out.splitlines()
    assert state_dir.exists()
    assert "program" in lines
    assert "home" in lines
    end = lines[lines.index("") :]
    assert any(line.startswith("FAIL  daemon (demo): it does not run") for line in end)
    assert "      fix: start it: `claudemesh daemon up --mesh demo`" in end
    assert not any("\x1b" in line for line in lines), "colour is for terminals"


@pytest.mark.req("C5")
def test_a_fix_is_said_checked_again_and_not_needed_twice(run: Run, state_dir: Path) -> None:
    (state_dir / "keypair.json").chmod(0o640)
    (state_dir / "pid").write_text("999999\n")
    (state_dir / "pid").chmod(0o600)
    ran = run("doctor", "--fix", "--json")
    assert len(ran.json["fixed"]) == 2
    assert all(one["error"] is None for one in ran.json["fixed"])
    after = {check["name"]: check["verdict"] for check in ran.json["checks"]}
    assert (after["modes"], after["locks"], after["keys"]) == ("ok", "ok", "ok")
    assert run("doctor", "--fix", "--json").json["fixed"] == []


@pytest.mark.req("C5")
def test_a_mesh_that_is_named_must_be_there_and_may_be_damaged(run: Run, state_dir: Path) -> None:
    assert run("doctor", "--mesh", "other").code == 2
    (state_dir / "membership.json").unlink()
    checks = run("doctor", "--mesh", "demo", "--json").json["checks"]
    assert {check["verdict"] for check in checks if check["name"] == "membership"} == {"fail"}


HOSTILE = ("config.toml", "pid", "sock", "outbox.db", "keypair.json", "membership.json", "daemon.log", "http.port")


@pytest.mark.req("C5")
@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "garbage", "deep", "nothing"])
def test_whatever_is_in_the_place_of_a_file_every_check_is_run(
    run: Run, home: Home, state_dir: Path, kind: str
) -> None:
    for name in HOSTILE:
        path = state_dir / name
        path.unlink(missing_ok=True)
        match kind:
            case "folder":
                path.mkdir()
            case "pipe":
                os.mkfifo(path)
            case "loop":
                path.symlink_to(path)
            case "garbage":
                path.write_bytes(b"\xff\x00[[\x1b[2J" * 500)
            case "deep":  # JSON and TOML that no reader gets to the end of
                path.write_bytes(b"a = " * name.endswith(".toml") + b"[" * 60_000)
            case _:
                path.touch()
    before = {path.name: stat.S_IFMT(path.lstat().st_mode) for path in state_dir.iterdir()}
    for words in (("doctor",), ("doctor", "--fix"), ("doctor", "--bundle")):
        ran = run(*words, "--json")
        assert ran.code == 1
        assert {check["name"] for check in ran.json["checks"]} == {check.name for check in ALL}
        assert not [check for check in ran.json["checks"] if "did not end" in check["detail"]]
        assert "Traceback" not in ran.err
        assert ran.json["bundle"] or "--bundle" not in words, "whatever cannot be read is left out, and no more"
    after = {path.name: stat.S_IFMT(path.lstat().st_mode) for path in state_dir.iterdir()}
    assert {name: after.get(name) for name in HOSTILE if name not in {"sock", "http.port"}} == {
        name: kind for name, kind in before.items() if name in HOSTILE and name not in {"sock", "http.port"}
    }
    assert "\x1b" not in run("doctor").out
    assert home.root.exists()


@pytest.mark.req("C5")
def test_a_home_that_is_a_file_stays_one(run: Run, home: Home) -> None:
    home.root.write_text("precious")
    assert run("doctor", "--fix", "--json").code == 1
    assert home.root.read_text() == "precious"


# --- the bundle's file ---


@pytest.mark.req("C5")
def test_a_bundle_is_its_owners_alone_and_replaces_nothing(run: Run, state_dir: Path, tmp_path: Path) -> None:
    there = tmp_path / "b.tar.gz"
    assert run("doctor", "--bundle", str(there), "--json").json["bundle"] == str(there)
    assert there.stat().st_mode & 0o777 == 0o600
    with tarfile.open(there) as archive:
        assert {member.mode for member in archive.getmembers()} == {0o600}
    written = there.read_bytes()
    again = run("doctor", "--bundle", str(there), "--json")
    assert (again.code, again.json["bundle"]) == (1, None)
    assert "FileExistsError" in again.json["bundle_error"]
    assert there.read_bytes() == written
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    assert run("doctor", "--bundle", str(link), "--json").json["bundle"] is None
    assert not (tmp_path / "elsewhere").exists()
    assert state_dir.exists()


@pytest.mark.req("C5")
def test_without_a_path_the_bundle_is_in_the_home(run: Run, home: Home, state_dir: Path) -> None:
    written = Path(run("doctor", "--json", "--bundle").json["bundle"])
    assert written.parent == home.root
    assert state_dir.exists()
