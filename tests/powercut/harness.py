"""Runs a workload once, cuts its power thousands of times, and asks after each cut what is left.

A new store needs a `Subject`: a workload, which runs in a process of its own and marks what clients are told; how
the store is opened again; and what must hold then, given the marks before the cut. `survives` does the rest.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import apsw

from claudemesh.kernel.errors import MeshError
from claudemesh.storage.sqlite.connection import configure, connect
from tests.powercut.recorder import Log, Mark, Past, Payload, SyncBegun, Written, load, save
from tests.powercut.states import Marks, State, last_state, states

ROOT: Final = Path(__file__).parents[2]
MEMORY: Final = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it
BOUND_S: Final = 100  # below that of a test; a machine may stand still for a while

STATES: Final = 2_000  # of one recording; `effort` says how many recordings there are
SURPLUS: Final = 1.02  # is asked for, since some disks turn out to be the same
REOPENED_ONE_IN: Final = 10
SHOWN: Final = 5
FRAME_HEAD_BYTES: Final = 24

CHECKPOINT_PAGES: Final = 24
AS_SHIPPED: Final = 0  # as CHECKPOINT_PAGES: as early, or late, as in production

Tell = Callable[[str, Payload], None]
Workload = Callable[[Path, Tell], None]
Verify = Callable[[apsw.Connection, Marks], list[str]]


@dataclass(frozen=True, slots=True)
class Subject:
    """A store under test.

    `workload` must be importable: it is called by its name, in another process, with a folder and `mark`. `reopen`
    is the next start of the program: it opens and closes the store in this folder, and raises if it refuses.
    `verify` returns a sentence for everything that is wrong; the files are thrown away after it.
    """

    workload: Workload
    reopen: Callable[[Path], None]
    verify: Verify
    file: str  # the name of the store's file in the folder
    shares_commits: bool = True  # whether callers who come at once are written down together


# --- recording ----------------------------------------------------------------------------------------------


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Make a folder in memory, where the system has such a thing: nothing here needs a real disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


def record(
    workload: Workload, log_file: Path, *, onto: State | None = None, checkpoint_pages: int = CHECKPOINT_PAGES
) -> Log:
    """Run it in a process of its own under the recorder, on an empty disk or on one that a cut has left.

    The log stays in the file, to look at a state once more.
    """
    name = f"{workload.__module__}:{workload.__qualname__}"
    with memory_folder() as folder:
        if onto is not None:
            onto.lay_out(folder)
        victim = [sys.executable, "-m", "tests.powercut.victim"]
        command = [*victim, name, str(folder), str(log_file), str(checkpoint_pages)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, f"the workload ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    if onto is None:
        return load(log_file)
    log = [Past(tuple(onto.marks)), *load(log_file)]
    save(log, log_file)
    return log


@dataclass(frozen=True, slots=True)
class Shape:
    """What a recording has in it: a workload that never checkpoints, for one, shows little."""

    marks: int
    commits: int
    checkpoints: int  # syncs of the file
    wal_beginnings: int


def shape_of(log: Log, file: str) -> Shape:
    syncs = [event for event in log if isinstance(event, SyncBegun)]
    wals = {sync.file for sync in syncs if sync.name == file + "-wal"}
    to_wal = [event for event in log if isinstance(event, Written) and event.file in wals]
    # In the head of a frame these bytes are the size of the file after the commit; 0 if it is not the last one.
    commits = sum(len(event.data) == FRAME_HEAD_BYTES and any(event.data[4:8]) for event in to_wal)
    beginnings = sum(event.offset == 0 for event in to_wal)
    marks = sum(isinstance(event, Mark) for event in log)
    return Shape(marks, commits, [sync.name for sync in syncs].count(file), beginnings)


# --- checking -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Violation:
    number: str
    moment: str
    how: str
    problems: list[str]

    def __str__(self) -> str:
        return f"state {self.number}, {self.moment} ({self.how}): {'; '.join(self.problems)}"


@dataclass(slots=True)
class Report:
    seed: int
    states: int = 0
    torn: int = 0  # what was not synced is neither all there nor all gone
    reopened: int = 0  # by the store itself, and with an integrity check
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.states:,} states checked ({self.torn:,} torn, {self.reopened:,} reopened by the store), "
            f"{len(self.violations):,} violations; seed {self.seed}, {self.states / self.seconds:,.0f} states/s"
        )


def check(  # noqa: PLR0913  all by name
    subject: Subject, log: Log, *, seed: int, count: int, since: int = 0, enough: int | None = None
) -> Report:
    """Check so many states of the cuts from `since` on, or stop when there are enough violations."""
    report = Report(seed)
    began = time.perf_counter()
    with memory_folder() as folder:
        examiner = Examiner(subject, log, folder)
        for state in states(log, seed, count, since=since):
            by_store, problems = examiner.examine(state, by_store=report.states % REOPENED_ONE_IN == 0)
            report.states += 1
            report.torn += state.is_torn
            report.reopened += by_store
            if problems:
                report.violations.append(Violation(state.number, state.moment, state.how, problems))
                if len(report.violations) == enough:
                    break
    report.seconds = time.perf_counter() - began
    return report


class Examiner:
    """Opens a state and asks what is wrong with it.

    By a plain connection, which is quick; one state in ten by the store first. And by the store always when the
    file is not one that it would hand to a query: cut off while it was made, or before a migration.
    """

    def __init__(self, subject: Subject, log: Log, folder: Path) -> None:
        self._subject = subject
        self._folder = folder
        self._path = folder / subject.file
        last_state(log).lay_out(folder)
        with connected(self._path) as connection:
            self._version = connection.pragma("user_version")

    def examine(self, state: State, *, by_store: bool) -> tuple[bool, list[str]]:
        """Return whether the store itself opened it, and what is wrong."""
        state.lay_out(self._folder)
        try:
            if not by_store and state.files.get(self._subject.file):
                with connected(self._path) as connection:
                    if connection.pragma("user_version") == self._version:
                        return False, self._subject.verify(connection, state.marks)
                state.lay_out(self._folder)
            by_store = True
            self._subject.reopen(self._folder)
            with connected(self._path) as connection:
                integrity = connection.pragma("integrity_check")
                problems = [] if integrity == "ok" else [f"integrity_check: {integrity}"]
                return True, problems + self._subject.verify(connection, state.marks)
        except (apsw.Error, MeshError) as error:
            return by_store, [f"refused: {error!r}"]
        except Exception as error:  # noqa: BLE001  rows that no store writes can make a `verify` stumble
            return by_store, [f"not even to be checked: {error!r}"]


@contextmanager
def connected(path: Path) -> Iterator[apsw.Connection]:
    connection = connect(path, read_only=False)
    try:
        configure(connection)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the file is thrown away, tidy or not
        yield connection
    finally:
        connection.close()


def survives(  # noqa: PLR0913  all by name
    subject: Subject,
    folder: Path,
    *,
    rounds: int,
    count: int = STATES,
    onto: State | None = None,
    checkpoint_pages: int = CHECKPOINT_PAGES,
) -> None:
    """Record `rounds` times and check `count` states of each; a failure says how to look at the state again."""
    for round_ in range(rounds):
        seed = random.randrange(2**32)  # noqa: S311  printed, so that a failure can be repeated
        log_file = folder / f"{round_}.log"
        log = record(subject.workload, log_file, onto=onto, checkpoint_pages=checkpoint_pages)
        shape = shape_of(log, subject.file)
        assert shape.checkpoints >= 2, f"the workload never checkpoints: {shape}"
        assert shape.wal_beginnings >= 2, f"the WAL never begins anew: {shape}"
        if subject.shares_commits:
            assert shape.marks > 2 * shape.commits, f"hardly any two callers share a commit: {shape}"
        report = check(subject, log, seed=seed, count=int(count * SURPLUS))
        print(report)  # noqa: T201  shown with a failure, and with -s
        assert not report.violations, failure(report, log_file)
        assert report.states >= count, f"the workload is too small: {report}"
        log_file.unlink()


def failure(report: Report, log_file: Path) -> str:
    shown = "\n".join(f"  {violation}" for violation in report.violations[:SHOWN])
    first = report.violations[0].number
    command = f"python -m tests.powercut.replay {log_file} {report.seed} {first} FOLDER"
    return f"{report}\n{shown}\n  lay it out in FOLDER: {command}"
