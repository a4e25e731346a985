"""The home: who can read it, whose it is, what was left in it."""

import os
import shutil
from pathlib import Path

import pytest

from claudemesh.cli.doctor.checks import home as checks
from claudemesh.cli.doctor.model import Verdict
from claudemesh.runtime.home import Home, write_private
from tests.unit.cli.doctor.conftest import Judge, Look, Mend


@pytest.mark.req("C5")
def test_a_home_that_is_not_there_is_made_by_a_repair(verdict: Judge, mend: Mend, home: Home) -> None:
    assert verdict(checks.home) is Verdict.WARN
    mend(checks.home)
    assert verdict(checks.home) is Verdict.OK
    assert home.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.req("C5")
def test_a_home_that_others_can_write_to_is_closed(verdict: Judge, mend: Mend, home: Home) -> None:
    home.ensure()
    home.root.chmod(0o777)
    assert verdict(checks.home) is Verdict.FAIL
    mend(checks.home)
    assert verdict(checks.home) is Verdict.OK


@pytest.mark.req("C5")
def test_a_file_or_a_folder_of_all_users_is_no_home_and_is_not_touched(look: Look, home: Home) -> None:
    home.root.write_text("precious")
    (found,) = look(checks.home)
    assert (found.verdict, found.repairs) == (Verdict.FAIL, ())
    home.root.unlink()
    home.root.mkdir()
    home.root.chmod(0o1777)
    (found,) = look(checks.home)
    assert (found.verdict, found.repairs) == (Verdict.FAIL, ())


@pytest.mark.req("C5")
def test_what_others_can_read_is_named_and_closed_and_settings_may_be_read(
    look: Look, mend: Mend, verdict: Judge, state_dir: Path
) -> None:
    assert verdict(checks.modes) is Verdict.OK
    (state_dir / "config.toml").write_text("")
    (state_dir / "config.toml").chmod(0o644)
    assert verdict(checks.modes) is Verdict.OK
    (state_dir / "keypair.json").chmod(0o644)
    state_dir.chmod(0o755)
    (found,) = look(checks.modes)
    assert found.verdict is Verdict.FAIL
    assert "daemon/demo/keypair.json" in found.detail
    assert len(mend(checks.modes)) == 2
    assert verdict(checks.modes) is Verdict.OK
    assert ((state_dir / "keypair.json").stat().st_mode & 0o777, state_dir.stat().st_mode & 0o777) == (0o600, 0o700)
    assert mend(checks.modes) == []


@pytest.mark.req("C5")
def test_settings_with_a_key_in_them_must_be_private(
    verdict: Judge, mend: Mend, home: Home, state_dir: Path
) -> None:
    toml = home.root / "broker.toml"
    toml.write_text(f'resume_token_key = "{"ab" * 32}"\n')
    toml.chmod(0o644)
    assert state_dir.exists()
    assert verdict(checks.modes) is Verdict.FAIL
    mend(checks.modes)
    assert verdict(checks.modes) is Verdict.OK


@pytest.mark.req("C5")
def test_a_link_is_found_and_what_it_leads_to_is_never_changed(
    look: Look, mend: Mend, tmp_path: Path, state_dir: Path
) -> None:
    outside = tmp_path / "not ours"
    outside.write_text("theirs")
    outside.chmod(0o644)
    (state_dir / "local_token").symlink_to(outside)
    (found,) = look(checks.links)
    assert (found.verdict, found.repairs) == (Verdict.FAIL, ())
    assert "daemon/demo/local_token" in found.detail
    assert mend(checks.modes) == []
    assert outside.stat().st_mode & 0o777 == 0o644


@pytest.mark.req("C5")
def test_what_belongs_to_another_user_is_found(
    look: Look, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [found.verdict for found in look(checks.owners)] == [Verdict.OK]
    monkeypatch.setattr(os, "geteuid", lambda: state_dir.stat().st_uid + 1)  # as it looks to somebody else
    assert [found.verdict for found in look(checks.owners)] == [Verdict.FAIL]
    assert [found.verdict for found in look(checks.home)] == [Verdict.FAIL]


@pytest.mark.req("C5")
def test_old_half_written_files_are_removed_and_young_ones_are_somebodys(
    look: Look, mend: Mend, verdict: Judge, state_dir: Path
) -> None:
    old, young = state_dir / ".keypair.json.0123456789abcdef.tmp", state_dir / ".pid.fedcba9876543210.tmp"
    for path in (old, young):
        write_private(path, b"half")
    os.utime(old, (1, 1))
    assert verdict(checks.leftovers) is Verdict.WARN
    assert len(mend(checks.leftovers)) == 1
    assert (old.exists(), young.exists()) == (False, True)
    assert verdict(checks.leftovers) is Verdict.OK
    aside = [state_dir / f"{name}.db.corrupt-1" for name in ("inbox", "outbox")]
    for path in aside:
        write_private(path, b"damaged")
    (found,) = look(checks.leftovers)
    assert (found.verdict, found.repairs) == (Verdict.WARN, ())
    assert found.fix is not None
    assert f"`rm {aside[0]} {aside[1]}`" in found.fix, "one command for all of them"


def test_what_only_looks_like_a_half_written_file_is_not_touched_and_one_that_vanishes_is_no_failure(
    verdict: Judge, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home.root / ".host.json.0123456789abcdef.tmp"
    folder.mkdir(parents=True)
    os.utime(folder, (1, 1))
    gone = home.root / ".up.pid.0123456789abcdef.tmp"  # listed, and renamed to its place before it is looked at
    monkeypatch.setattr(checks, "_listed", lambda root: [*root.iterdir(), gone])
    assert verdict(checks.leftovers) is Verdict.OK


@pytest.mark.req("C5")
@pytest.mark.parametrize(("free", "expected"), [(1, Verdict.FAIL), (1 << 29, Verdict.WARN), (1 << 40, Verdict.OK)])
def test_a_disk_that_is_filling_up_is_told(
    verdict: Judge, monkeypatch: pytest.MonkeyPatch, free: int, expected: Verdict
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    assert verdict(checks.disk) is expected


@pytest.mark.req("C5")
def test_without_a_mesh_nothing_works_unless_others_are_served(verdict: Judge, home: Home) -> None:
    assert verdict(checks.mesh) is Verdict.WARN
    home.ensure()
    write_private(home.broker_db, b"")
    assert verdict(checks.mesh) is Verdict.NOT_APPLICABLE


@pytest.mark.req("C5")
@pytest.mark.parametrize("name", ["mcp-servers", "edge-cases", "daemon.old", "broker.d", "hub.db-backups", ".x"])
def test_a_directory_whose_name_only_begins_as_one_of_ours_is_left_alone(look: Look, home: Home, name: str) -> None:
    theirs = home.root / name
    (theirs / "bin").mkdir(parents=True)
    half = (theirs / ".note.0123456789abcdef.tmp", home.root / ".note.0123456789abcdef.tmp")
    for path in (theirs / "bin" / "run", *half):
        path.write_text("theirs")
        path.chmod(0o755)
        os.utime(path, (1, 1))
    (theirs / "link").symlink_to("/")
    theirs.chmod(0o755)
    home.root.chmod(0o755)
    assert [repair.says for check in checks.CHECKS for found in look(check) for repair in found.repairs] == []
    assert not [found for check in (checks.modes, checks.links) for found in look(check) if name in found.detail]
    home.ensure()
    assert home.root.stat().st_mode & 0o777 == 0o755, "and it stays open to whom it is"


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    "name",
    ["broker.db", "broker.db-wal", "hub.db.lock", "ledger.db.corrupt-1", "ledger.key", "host.json", "up.pid",
     "doctor-20260131T000000Z.tar.gz"],
)  # fmt: skip
def test_what_stands_beside_our_databases_is_ours(verdict: Judge, mend: Mend, home: Home, name: str) -> None:
    home.ensure()
    (home.root / name).write_text("ours")
    (home.root / name).chmod(0o644)
    half = home.root / f".{name}.0123456789abcdef.tmp"
    write_private(half, b"half")
    os.utime(half, (1, 1))
    assert (verdict(checks.modes), len(mend(checks.modes))) == (Verdict.FAIL, 1)
    mend(checks.leftovers)
    assert not half.exists()


def test_what_is_not_ours_in_the_home_is_neither_named_nor_changed(look: Look, mend: Mend, home: Home) -> None:
    home.ensure()
    (home.root / "private-diary.txt").write_text("x")
    (home.root / "private-diary.txt").chmod(0o666)
    (home.root / "link-of-mine").symlink_to("/")
    found = [finding for check in checks.CHECKS for finding in look(check)]
    assert not any("diary" in one.detail or "link-of-mine" in one.detail for one in found)
    for check in checks.CHECKS:
        mend(check)
    assert (home.root / "private-diary.txt").stat().st_mode & 0o777 == 0o666
