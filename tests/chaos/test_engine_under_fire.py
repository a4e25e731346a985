"""The SQLite engine in a process of its own that is killed, or whose disk fails. The seed is printed.

The invariant is one: whatever was answered `ok` is there afterwards, once and whole.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from claudemesh.runtime.halt import EXIT_STORE_FAILED
from claudemesh.storage.sqlite import Database
from tests.contract.engine.shelf import SCHEMA, put, rows

ROOT = Path(__file__).parents[2]
BOUND_S = 30


@dataclass
class Told:
    exit_code: int
    ok: set[str]
    full: set[str]
    unknown: set[str]
    stderr: str


def victim(
    path: Path, *arguments: object, before: list[str] | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    command = [*(before or []), sys.executable, "-m", "tests.chaos.victim", str(path), *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,  # so that it can be ended together with a strace around it
    )


def hear(process: subprocess.Popen[str], head: str = "") -> Told:
    """Read to the end. Not by `communicate`, which passes over what is in the buffer already."""
    assert process.stdout is not None
    bound = threading.Timer(BOUND_S, os.killpg, (process.pid, signal.SIGKILL))
    bound.start()
    with process:
        out, err = process.stdout.read(), process.stderr.read() if process.stderr else ""
    bound.cancel()
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
        told = hear(victim(path, 8, 100_000, f"{point}:{count * 3}"))
        assert told.exit_code == -signal.SIGKILL
        stored = check(path, told)
        if point == "sqlite.after_commit":
            assert stored > told.ok  # committed, and nobody was told: only the same id may be tried again


def test_kills_at_random_instants_lose_nothing_that_was_answered(tmp_path: Path, effort: int) -> None:
    seed = random.randrange(2**32)  # noqa: S311  printed, so that a failure can be repeated
    print(f"seed {seed}")  # noqa: T201  shown with a failure
    dice = random.Random(seed)  # noqa: S311  no secret
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


def under_strace(log: Path, injection: str, only: Path | None = None) -> list[str]:
    calls = ",".join({injection.split(":", 1)[0], "fdatasync", "fsync"})
    trace = ["strace", "-f", "-qq", "-y", "-o", str(log), "-e", f"trace={calls}", "-e", f"inject={injection}"]
    return trace + ([] if only is None else ["-P", str(only)])


def expect_the_end(told: Told, log: Path) -> None:
    """Check that it ended by itself, said why, and that after the sync that failed there was no other."""
    assert told.exit_code == EXIT_STORE_FAILED
    assert "stopping at once" in told.stderr
    syncs = [line for line in log.read_text(encoding="utf-8").splitlines() if "sync(" in line]
    assert ["INJECTED" in line for line in syncs] == [False] * (len(syncs) - 1) + [True]


WRITERS = 8


@pytest.mark.parametrize("nth", [8, 12, 25])
def test_the_first_sync_that_fails_stops_the_process_and_is_never_tried_again(tmp_path: Path, nth: int) -> None:
    path, log = tmp_path / "f.db", tmp_path / "strace"
    told = hear(victim(path, WRITERS, 50, before=under_strace(log, f"fdatasync:error=EIO:when={nth}+")))
    expect_the_end(told, log)
    assert len(told.unknown) == WRITERS, "everyone who waited was told that the outcome is unknown"
    assert check(path, told) <= told.ok | told.unknown


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_sync_that_fails_while_the_file_is_made_or_closed_stops_the_process(tmp_path: Path, nth: int) -> None:
    folder, log = tmp_path / "folder", tmp_path / "strace"
    folder.mkdir()
    told = hear(victim(folder / "f.db", 0, 0, before=under_strace(log, f"fdatasync:error=EIO:when={nth}")))
    failed = [line for line in log.read_text(encoding="utf-8").splitlines() if "INJECTED" in line]
    assert len(failed) == 1, "the file is synced at least eight times between its making and its closing"
    if "folder>" in failed[0]:
        assert told.exit_code == 0  # the directory, by SQLite, which does not look; see the next test
    else:
        expect_the_end(told, log)


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_a_directory_that_cannot_be_synced_stops_the_process(tmp_path: Path, call: str) -> None:
    """SQLite does not look at the answer when it syncs the directory; we sync it again, and do."""
    folder, log = tmp_path / "folder", tmp_path / "strace"
    folder.mkdir()
    told = hear(victim(folder / "f.db", 1, 1, before=under_strace(log, f"{call}:error=EIO", only=folder)))
    assert told.exit_code == (EXIT_STORE_FAILED if call == "fsync" else 0)
    assert bool(told.ok) == (call == "fdatasync")


def test_a_sync_that_fails_in_a_checkpoint_stops_the_process_too(tmp_path: Path) -> None:
    path, log = tmp_path / "f.db", tmp_path / "strace"
    # Only the file itself and not its WAL: after the migration, on another thread, checkpoints alone sync it.
    told = hear(victim(path, 8, 1_000, before=under_strace(log, "fdatasync:error=EIO:when=2+", only=path)))
    expect_the_end(told, log)
    assert told.ok, "nothing was written before the checkpoint"
    assert check(path, told) <= told.ok | told.unknown


def full_pipe() -> tuple[int, int]:
    """Return a pipe that nobody reads and that takes no more."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write_end, b"x" * 4096)
    os.set_blocking(write_end, True)
    return read_end, write_end


@pytest.mark.parametrize("stderr", ["closed", "full", "stuck"])
def test_a_standard_error_that_cannot_be_written_does_not_keep_the_process_alive(
    tmp_path: Path, stderr: str
) -> None:
    read_end, write_end = full_pipe()
    full = os.open("/dev/full", os.O_WRONLY)
    before = under_strace(tmp_path / "strace", "fdatasync:error=EIO:when=12+")
    if stderr == "closed":
        before += ["sh", "-c", 'exec "$@" 2>&-', "sh"]
    try:
        target = {"closed": subprocess.DEVNULL, "full": full, "stuck": write_end}[stderr]
        told = hear(victim(tmp_path / "f.db", WRITERS, 50, before=before, stderr=target))
    finally:
        for descriptor in (read_end, write_end, full):
            os.close(descriptor)
    assert told.exit_code == EXIT_STORE_FAILED
    assert len(told.unknown) == WRITERS


def test_a_program_that_ends_by_itself_after_a_failed_sync_ends_as_we_say(tmp_path: Path) -> None:
    path, log = tmp_path / "f.db", tmp_path / "strace"
    told = hear(victim(path, 4, 50, "leave", before=under_strace(log, "fdatasync:error=EIO:when=9")))
    assert told.unknown
    expect_the_end(told, log)
    check(path, told)


def test_a_full_disk_is_told_loses_nothing_and_is_left_behind_without_a_restart(tmp_path: Path) -> None:
    path, log = tmp_path / "f.db", tmp_path / "strace"
    told = hear(victim(path, 4, 100, before=under_strace(log, "pwrite64:error=ENOSPC:when=60..140")))
    assert told.exit_code == 0
    assert told.full, "nobody was told that the disk is full"
    assert told.ok, "nothing was accepted"
    assert len(told.ok) + len(told.full) == 400
    assert max(int(key.split("-")[1]) for key in told.ok) == 99, "it went on after there was room again"
    assert check(path, told) == told.ok


def test_a_disk_that_is_full_for_checkpoints_alone_stops_nobody(tmp_path: Path) -> None:
    path, log = tmp_path / "f.db", tmp_path / "strace"
    told = hear(victim(path, 8, 1_000, before=under_strace(log, "pwrite64:error=ENOSPC:when=20..60", only=path)))
    assert "INJECTED" in log.read_text(encoding="utf-8")
    assert (told.exit_code, len(told.ok)) == (0, 8_000)
    check(path, told)
