"""Whether a process still runs, and is still the one that was meant."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from claudemesh.daemon.processes import Process, is_alive, look_up


def a_stat(proc: Path, pid: int, *, name: str = "python", state: str = "S", started: int = 77) -> None:
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    fields = [state, *("0" for _ in range(18)), str(started), "0", "0"]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


@pytest.mark.req("P10")
def test_this_process_runs() -> None:
    found = look_up(os.getpid())
    assert found is not None
    assert found.started
    assert is_alive(found)


@pytest.mark.req("P10")
def test_a_process_that_ended_is_gone_also_while_nobody_has_asked_for_its_end() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    seen = look_up(child.pid)
    assert seen is not None
    child.communicate(b"\n")
    assert not is_alive(seen)


@pytest.mark.req("P10")
def test_a_number_that_another_process_has_by_now_is_not_it(tmp_path: Path) -> None:
    a_stat(tmp_path, 5, name="a ) b (c", started=77)
    seen = look_up(5, tmp_path)
    assert seen == Process(5, "77")
    assert is_alive(seen, tmp_path)
    a_stat(tmp_path, 5, started=99)
    assert not is_alive(seen, tmp_path)


def test_a_zombie_has_ended(tmp_path: Path) -> None:
    a_stat(tmp_path, 5, state="Z")
    assert look_up(5, tmp_path) is None


@pytest.mark.req("P10")
@pytest.mark.parametrize("text", ["", "\n", "5 (python)", "5 (python) S 0 0"])
def test_a_process_that_shows_nothing_of_itself_has_ended(tmp_path: Path, text: str) -> None:
    a_stat(tmp_path, 5)
    seen = look_up(5, tmp_path)
    assert seen is not None
    (tmp_path / "5" / "stat").write_text(text)
    assert not is_alive(seen, tmp_path)


def test_where_the_system_shows_no_processes_the_kernel_is_asked(tmp_path: Path) -> None:
    found = look_up(os.getpid(), tmp_path)
    assert found == Process(os.getpid(), None)
    assert is_alive(found, tmp_path)
    assert look_up(2**22 + 1, tmp_path) is None


def test_no_number_of_a_group_is_a_process() -> None:
    assert look_up(0) is None
    assert look_up(-1) is None
