"""The SQLite engine in a process of its own that is killed, or whose disk fails. The seed is printed.

The invariant is one: whatever was answered `ok` is there afterwards, once and whole.
"""

import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from claudemesh.runtime.halt import EXIT_STORE_FAILED
from claudemesh.storage.sqlite import Database
from tests.contract.engine.shelf import SCHEMA, put, rows

ROOT = Path(__file__).parents[2]
BOUND_S = 60


@dataclass
class Told:
    exit_code: int
    ok: set[str]
    full: set[str]
    unknown: set[str]
    stderr: str


def victim(path: Path, *arguments: object, before: list[str] | None = None) -> subprocess.Popen[str]:
    command = [*(before or []), sys.executable, "-m", "tests.chaos.victim", str(path), *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def hear(process: subprocess.Popen[str], head: str = "") -> Told:
    out, err = process.communicate(timeout=BOUND_S)
    told: dict[str, set[str]] = {"ok": set(), "full": set(), "unknown": set()}
    for line in (head + out).splitlines():
        word, key = line.split(" ")
        told[word].add(key)
    return Told(process.returncode, **told, stderr=err)


def check(path: Path, told: Told) -> set[str]:
    """Open the file as the next start would; return the keys that are there."""
    with Database.open(path, SCHEMA) as database:
        assert database.read_blocking(lambda c: c.pragma("integrity_check")) == "ok"
        found = database.read_blocking(rows)
        keys = [key for _, key, _ in found]
        assert len(keys) == len(set(keys))
        assert told.ok <= set(keys), f"acknowledged and lost: {sorted(told.ok - set(keys))}"
        assert not told.full & set(keys), "refused for want of room, and yet stored"
        assert all(text == key * 50 for _, key, text in found)
        assert database.write_blocking(put, ("the next start", "works")) == "works"
    return set(keys)


def test_a_process_that_is_left_alone_keeps_everything(tmp_path: Path) -> None:
    told = hear(victim(tmp_path / "f.db", 4, 50))
    assert (told.exit_code, len(told.ok)) == (0, 200)
    assert check(tmp_path / "f.db", told) == told.ok


@pytest.mark.parametrize("point", ["sqlite.before_commit", "sqlite.after_commit"])
def test_a_kill_around_the_commit_loses_nothing_that_was_answered(tmp_path: Path, point: str, effort: int) -> None:
    for count in range(1, 1 + 4 * effort):
        path = tmp_path / f"{count}.db"
        told = hear(victim(path, 8, 50, f"{point}:{count * 3}"))
        assert told.exit_code == -signal.SIGKILL
        stored = check(path, told)
        if point == "sqlite.after_commit":
            assert stored > told.ok  # committed, and nobody was told: only the same id may be tried again


def test_kills_at_random_instants_lose_nothing_that_was_answered(tmp_path: Path, effort: int) -> None:
    seed = random.randrange(2**32)  # noqa: S311  printed, so that a failure can be repeated
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)  # noqa: S311
    acknowledged = 0
    for round_ in range(8 * effort):
        path = tmp_path / f"{round_}.db"
        process = victim(path, 8, 100_000)
        assert process.stdout is not None
        head = "".join(process.stdout.readline() for _ in range(dice.randrange(1, 400)))
        process.kill()
        told = hear(process, head)
        check(path, told)
        acknowledged += len(told.ok)
    assert acknowledged > 8 * effort


def under_strace(log: Path, *injections: str) -> list[str]:
    calls = sorted({injection.split(":", 1)[0] for injection in injections} | {"fdatasync", "fsync"})
    return [
        "strace", "-f", "-qq", "-y", "-o", str(log), "-e", f"trace={','.join(calls)}",
        *(part for injection in injections for part in ("-e", f"inject={injection}")),
    ]  # fmt: skip


@pytest.mark.parametrize("nth", [8, 12, 25])
def test_the_first_sync_that_fails_stops_the_process_and_is_never_tried_again(tmp_path: Path, nth: int) -> None:
    path, log = tmp_path / "f.db", tmp_path / "strace"
    told = hear(victim(path, 8, 50, before=under_strace(log, f"fdatasync:error=EIO:when={nth}+")))
    assert told.exit_code == EXIT_STORE_FAILED
    assert "stopping at once" in told.stderr
    assert told.unknown, "whoever waited was told that the outcome is unknown"
    syncs = [line for line in log.read_text(encoding="utf-8").splitlines() if "sync(" in line]
    assert sum("INJECTED" in line for line in syncs) == 1, "a sync was tried again after one had failed"
    assert "INJECTED" in syncs[-1]
    stored = check(path, told)
    assert stored <= told.ok | told.unknown


def test_a_program_that_ends_by_itself_after_a_failed_sync_does_not_sync_again(tmp_path: Path) -> None:
    path, log = tmp_path / "f.db", tmp_path / "strace"
    told = hear(victim(path, 4, 50, "leave", before=under_strace(log, "fdatasync:error=EIO:when=9")))
    assert told.unknown
    syncs = [line for line in log.read_text(encoding="utf-8").splitlines() if "sync(" in line]
    assert "INJECTED" in syncs[-1], "the file was synced once more when the interpreter closed it"
    check(path, told)


def test_a_sync_that_fails_in_a_checkpoint_stops_the_process_too(tmp_path: Path) -> None:
    path, log = tmp_path / "f.db", tmp_path / "strace"
    # Only the file itself and not its WAL: after the migration, on another thread, checkpoints alone sync it.
    only_the_file = [*under_strace(log, "fdatasync:error=EIO:when=2+"), "-P", str(path)]
    told = hear(victim(path, 8, 1_000, before=only_the_file))
    assert told.exit_code == EXIT_STORE_FAILED
    syncs = log.read_text(encoding="utf-8").splitlines()
    assert ["INJECTED" in line for line in syncs] == [False] * (len(syncs) - 1) + [True]
    assert told.ok, "nothing was written before the checkpoint"
    assert check(path, told) <= told.ok | told.unknown


def test_a_full_disk_is_told_loses_nothing_and_is_left_behind_without_a_restart(tmp_path: Path) -> None:
    path, log = tmp_path / "f.db", tmp_path / "strace"
    told = hear(victim(path, 4, 100, before=under_strace(log, "pwrite64:error=ENOSPC:when=60..140")))
    assert told.exit_code == 0
    assert told.full, "nobody was told that the disk is full"
    assert told.ok, "nothing was accepted"
    assert len(told.ok) + len(told.full) == 400
    assert max(int(key.split("-")[1]) for key in told.ok) == 99, "it went on after there was room again"
    assert check(path, told) == told.ok
