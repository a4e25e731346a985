"""A log tells what was published, to its owner only, and never stands in the way."""

import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from claudemesh.kernel.clock import Clock
from claudemesh.runtime.logs import JsonLog, render
from claudemesh.runtime.observe import Level, Observer


class FixedClock(Clock):
    def wall_ms(self) -> int:
        return 1_767_225_600_123

    def monotonic_ms(self) -> int:
        raise NotImplementedError


class State(Enum):
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Settled:
    name: ClassVar[str] = "outbox.row_settled"
    id: str
    state: State = State.DONE
    attempts: int = 1
    reason: str | None = None
    tags: tuple[str, ...] = ("a", "b")


@dataclass(frozen=True, slots=True)
class Received:
    name: ClassVar[str] = "inbox.message_received"
    level: ClassVar[Level] = "debug"
    id: str
    message: object = None


@dataclass(frozen=True, slots=True)
class Liar:
    name: ClassVar[str] = "test.line_faked"
    level: ClassVar[Level] = "error"
    at: str = "never"
    event: str = "test.other"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemon.log"


@pytest.mark.req("O1")
def test_an_event_is_one_line_of_json_with_its_time_level_name_and_fields(path: Path) -> None:
    log = JsonLog(FixedClock(), path)
    log.write(Settled("01J", reason="a\nb\x1b[31m"))
    log.write(Settled("01K"))
    log.close()
    first, second = lines(path)
    assert first == {
        "at": "2026-01-01T00:00:00.123Z",
        "level": "info",
        "event": "outbox.row_settled",
        "id": "01J",
        "state": "done",
        "attempts": 1,
        "reason": "a\nb\x1b[31m",
        "tags": ["a", "b"],
    }
    assert second["id"] == "01K"
    assert b"\x1b" not in path.read_bytes()  # a terminal that shows the file does not obey it


def test_what_an_event_carries_along_that_is_not_a_plain_value_stays_out() -> None:
    line = json.loads(render(Received("01J", message={"body": "the secret"}), 0))
    assert sorted(line) == ["at", "event", "id", "level"]


def test_an_event_may_be_a_struct() -> None:
    class Answered(msgspec.Struct):
        name: ClassVar[str] = "http.request_answered"
        status: int

    line = json.loads(render(Answered(200), 0))
    assert (line["event"], line["status"]) == ("http.request_answered", 200)


def test_a_field_cannot_replace_what_every_line_has() -> None:
    line = json.loads(render(Liar(), 0))
    assert (line["at"], line["event"]) == ("1970-01-01T00:00:00.000Z", "test.line_faked")


def test_a_long_text_is_cut() -> None:
    line = json.loads(render(Settled("x" * 100_000), 0))
    assert line["id"].startswith("xxx")
    assert line["id"].endswith("(100000 characters)")
    assert len(line["id"]) < 2_100


@pytest.mark.req("O1")
def test_only_events_of_its_level_or_above_are_written_and_others_need_not_be_made(path: Path) -> None:
    observer = Observer()
    log = JsonLog(FixedClock(), path)
    log.attach(observer)
    for event in (Settled("1"), Received("2"), Liar()):
        observer.publish(event)
    assert [line["event"] for line in lines(path)] == ["outbox.row_settled", "test.line_faked"]
    assert not observer.hears(Received)
    JsonLog(FixedClock(), path, level="debug").attach(observer)
    assert observer.hears(Received)


@pytest.mark.parametrize("mode", [None, 0o644, 0o400 | 0o200 | 0o020])
def test_the_file_is_its_owner_s_only_even_if_it_was_there_before(path: Path, mode: int | None) -> None:
    if mode:
        path.write_text("before\n")
        path.chmod(mode)
    before = os.umask(0)
    try:
        JsonLog(FixedClock(), path).write(Settled("1"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("before\n" if mode else "{")


def test_a_full_file_becomes_the_one_predecessor(path: Path) -> None:
    size = len(render(Settled("000"), 0))
    log = JsonLog(FixedClock(), path, file_bytes_max=size * 10)
    for number in range(35):
        log.write(Settled(f"{number:03}"))
    older = path.with_name("daemon.log.1")
    assert sorted(file.name for file in path.parent.iterdir()) == ["daemon.log", "daemon.log.1"]
    kept = [line["id"] for line in lines(older) + lines(path)]
    assert kept == [f"{number:03}" for number in range(20, 35)]
    assert stat.S_IMODE(older.stat().st_mode) == 0o600
    assert log.lost == 0


def test_threads_do_not_mix_their_lines_nor_lose_any(path: Path) -> None:
    log = JsonLog(FixedClock(), path)
    barrier = threading.Barrier(8)

    def write(thread: int) -> None:
        barrier.wait(30)
        for number in range(100):
            log.write(Settled(f"{thread}-{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert {line["id"] for line in lines(path)} == {f"{t}-{n}" for t in range(8) for n in range(100)}


@pytest.mark.parametrize("obstacle", ["no directory", "a directory", "a link", "a pipe"])
def test_a_file_that_cannot_be_written_costs_its_lines_and_nothing_else(path: Path, obstacle: str) -> None:
    target = path.with_name("target")
    if obstacle == "no directory":
        path = path.parent / "none" / "daemon.log"
    elif obstacle == "a directory":
        path.mkdir()
    elif obstacle == "a link":
        path.symlink_to(target)
    else:
        os.mkfifo(path)
    log = JsonLog(FixedClock(), path)
    log.write(Settled("1"))
    assert log.lost == 1
    assert not target.exists()


def test_writing_goes_on_when_the_obstacle_is_gone(path: Path) -> None:
    path.mkdir()
    log = JsonLog(FixedClock(), path)
    log.write(Settled("1"))
    path.rmdir()
    log.write(Settled("2"))
    assert [line["id"] for line in lines(path)] == ["2"]


def test_a_line_that_a_full_disk_cut_short_does_not_spoil_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = JsonLog(FixedClock(), path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
    log.write(Settled("1"))
    monkeypatch.setattr(os, "write", write)
    log.write(Settled("2"))
    log.write(Settled("3"))
    torn, *whole = path.read_text().splitlines()
    assert (len(torn), log.lost) == (20, 1)
    assert [json.loads(line)["id"] for line in whole] == ["2", "3"]


def test_an_event_that_cannot_be_written_down_is_counted(path: Path) -> None:
    log = JsonLog(FixedClock(), path)
    log.write(Settled("\ud800"))
    log.write(Settled("2"))
    assert log.lost == 1
    assert [line["id"] for line in lines(path)] == ["2"]


def test_standard_error_gets_the_same_lines(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    JsonLog(FixedClock(), path, stderr=True).write(Settled("1"))
    assert capfd.readouterr().err == path.read_text()
