"""The SQLite engine after power cuts: whatever was answered is there, and nothing is there by half.

The second half shows that this can fail: a build that is weaker, or a disk that lies, is found out.
"""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.powercut import replay
from tests.powercut.harness import AS_SHIPPED, Workload, check, record, survives
from tests.powercut.recorder import Log, Mark, SyncBegun, SyncEnded, Written
from tests.powercut.shelves import (
    FILE,
    SHELF,
    alone,
    broken,
    idle,
    long_lives,
    third_life,
    two_lives,
    with_early_answers,
    with_sync_normal,
    with_sync_off,
)
from tests.powercut.states import states, with_lie

SEED = 7
WAL = FILE + "-wal"
TOLD = {"ack", "dropped"}


def test_no_power_cut_loses_what_was_answered_or_leaves_anything_by_half(tmp_path: Path, effort: int) -> None:
    survives(SHELF, tmp_path, rounds=effort)


def test_nor_does_one_when_checkpoints_come_as_in_production(tmp_path: Path, effort: int) -> None:
    subject = replace(SHELF, workload=long_lives)
    survives(subject, tmp_path, rounds=effort, count=1_000, checkpoint_pages=AS_SHIPPED)


def test_nor_does_a_second_power_cut_on_what_the_first_one_left(tmp_path: Path, effort: int) -> None:
    seed = random.randrange(2**32)  # noqa: S311  printed, so that a failure can be repeated
    print(f"seed of the first cut {seed}")  # noqa: T201  shown with a failure
    first = list(states(record(two_lives, tmp_path / "first.log"), seed, 300))
    for state in random.Random(seed).sample([state for state in first if state.is_torn], 3):  # noqa: S311
        print(f"the first cut: {state.number}")  # noqa: T201
        survives(replace(SHELF, workload=third_life), tmp_path, rounds=effort, count=300, onto=state)


# --- it can fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [with_sync_normal, with_sync_off, with_early_answers])
def test_a_build_that_answers_before_the_sync_is_found_out(tmp_path: Path, workload: Workload) -> None:
    report = check(SHELF, record(workload, tmp_path / "log"), seed=SEED, count=300)
    lost = [each for each in report.violations if "acknowledged and lost" in str(each)]
    assert len(lost) > 30, report


def test_a_build_that_never_syncs_leaves_files_that_are_broken(tmp_path: Path) -> None:
    report = check(SHELF, record(with_sync_off, tmp_path / "log"), seed=SEED, count=1_000)
    broken = [each for each in report.violations if "refused" in str(each) or "integrity_check" in str(each)]
    assert broken, report


def test_a_disk_that_lies_about_the_sync_of_a_commit_is_found_out_each_time(tmp_path: Path) -> None:
    log = record(alone, tmp_path / "log")
    lies = lies_about_commits(log)
    assert len(lies) > 20
    for number, position in lies[::4]:
        report = check(SHELF, with_lie(log, number), seed=SEED, count=2_000, since=position, enough=1)
        assert report.violations, f"nobody noticed that sync {number} was none"


def test_a_disk_that_lies_about_the_sync_of_a_checkpoint_is_found_out_each_time(tmp_path: Path) -> None:
    log = record(alone, tmp_path / "log")
    lies = lies_about_checkpoints(log)
    assert len(lies) > 4
    for number, position in lies:
        report = check(SHELF, with_lie(log, number), seed=SEED, count=2_000, since=position, enough=1)
        assert report.violations, f"nobody noticed that sync {number} was none"


def lies_about_commits(log: Log) -> list[tuple[int, int]]:
    """Return the syncs of a commit whose client was told before another sync made good for them."""
    wals, lies = files_named(log, WAL), []
    for before, end, after in windows(log, WAL):
        is_commit = any(isinstance(event, Written) and event.file in wals for event in log[before:end])
        if is_commit and any(isinstance(event, Mark) and event.kind in TOLD for event in log[end:after]):
            lies.append((log[end].number, end))
    return lies


def lies_about_checkpoints(log: Log) -> list[tuple[int, int]]:
    """Return the syncs of the file after which the WAL began anew, and was synced, before the file's next one."""
    wals, lies = files_named(log, WAL), []
    for _, end, after in windows(log, FILE):
        writes = [n for n in range(end, after) if isinstance(log[n], Written) and log[n].file in wals]
        heads = [n for n in writes if log[n].offset == 0]
        if heads and any(heads[0] < wal_end < after for _, wal_end, _ in windows(log, WAL)):
            lies.append((log[end].number, end))
    return lies


def files_named(log: Log, name: str) -> set[int]:
    return {event.file for event in log if isinstance(event, SyncBegun) and event.name == name}


def windows(log: Log, name: str) -> list[tuple[int, int, int]]:
    """Return where each sync of the file ended in the log, with the end of the one before and the one after."""
    numbers = {event.number for event in log if isinstance(event, SyncBegun) and event.name == name}
    ends = [n for n, event in enumerate(log) if isinstance(event, SyncEnded) and event.number in numbers]
    return list(zip([0, *ends], ends, [*ends[1:], len(log)], strict=False))


# --- a failure tells what is wrong, and can be looked at --------------------------------------------------------


def test_a_failure_says_how_to_lay_out_the_state_and_it_is_wrong_there_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError) as caught:
        survives(replace(SHELF, workload=with_early_answers), tmp_path, rounds=1, count=300)
    message = str(caught.value)
    assert "acknowledged and lost" in message
    *_, log_file, seed, number, _ = message.split()
    capsys.readouterr()
    replay.main(log_file, seed, number, str(tmp_path / "state"), "tests.powercut.shelves:SHELF")
    assert (tmp_path / "state" / FILE).exists()
    told = capsys.readouterr().out
    assert told.startswith(f"{number}: ")
    assert told.count("acknowledged and lost") == 2, "as it is, and opened by the store"


@pytest.mark.parametrize(
    ("workload", "why"),
    [(idle, "never checkpoints"), (alone, "share a commit"), (broken, "ZeroDivisionError")],
    ids=["idle", "alone", "broken"],
)
def test_a_workload_that_shows_nothing_is_a_failure(tmp_path: Path, workload: Workload, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        survives(replace(SHELF, workload=workload), tmp_path, rounds=1)
