"""The supervisor of `up`: keeps its children running, stops them in order, and never leaves them behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from claudemesh.runtime.patience import wait_until
from claudemesh.runtime.processes import signal_holder, wait_released

WITHIN_S = 30

SUPERVISE = """
import sys
from pathlib import Path
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.processes import Supervisor

folder, *scripts = sys.argv[1:]
say = lambda text: print(text, flush=True)
with Supervisor(SystemClock(), say, jitter=lambda: 0.2) as supervisor:
    for script in scripts:
        name = Path(script).stem
        supervisor.start(name, [sys.executable, script, folder])
        if not supervisor.wait_ready(name, (Path(folder) / f"{name}.ready").exists, 20):
            say(f"{name} not ready, stopping {supervisor.is_stopping}")
            sys.exit(1)
    say("ready")
    supervisor.run()
say("done")
"""

CHILD = """
import os, signal, sys
from pathlib import Path
from claudemesh.runtime.patience import wait_until
from claudemesh.runtime.processes import signal_holder, wait_released
folder, name = Path(sys.argv[1]), Path(sys.argv[0]).stem
PREPARE
with (folder / "log").open("a") as log:
    log.write(f"{name} started {os.getpid()}\\n")
(folder / f"{name}.ready").touch()
WORK
with (folder / "log").open("a") as log:
    log.write(f"{name} stopped\\n")
"""

# What a child does before it says that it is ready, and after.
OBEYS = ("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})", "signal.sigwait({signal.SIGTERM})")
IS_DEAF = ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "while True: signal.pause()")
FAILS = ("", 'wait_until((folder / "go").exists, 30); sys.exit(7)')


def script(folder: Path, name: str, behaviour: tuple[str, str]) -> Path:
    path = folder / f"{name}.py"
    path.write_text(CHILD.replace("PREPARE", behaviour[0]).replace("WORK", behaviour[1]))
    return path


@contextmanager
def supervised(folder: Path, *scripts: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SUPERVISE, str(folder), *map(str, scripts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            for pid in pids(folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def read(folder: Path) -> list[str]:
    path = folder / "log"
    return path.read_text().splitlines() if path.exists() else []


def pids(folder: Path) -> list[int]:
    return [int(line.split()[2]) for line in read(folder) if " started " in line]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_signal_stops_the_last_started_first(tmp_path: Path) -> None:
    with supervised(tmp_path, script(tmp_path, "a", OBEYS), script(tmp_path, "b", OBEYS)) as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGINT)
        assert line(process) == "done"
        assert process.wait(WITHIN_S) == 0
    assert [text for text in read(tmp_path) if "stopped" in text] == ["b stopped", "a stopped"]


def test_ctrl_c_reaches_the_children_only_through_the_supervisor(tmp_path: Path) -> None:
    with supervised(tmp_path, script(tmp_path, "a", OBEYS)) as process:
        assert line(process) == "ready"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(WITHIN_S) == 0
    assert read(tmp_path)[-1] == "a stopped"


def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path, script(tmp_path, "a", OBEYS), script(tmp_path, "b", OBEYS)) as process:
        assert line(process) == "ready"
        first = pids(tmp_path)
        os.kill(first[0], signal.SIGKILL)
        assert line(process).startswith("a ended with -9")
        assert wait_until(lambda: len(pids(tmp_path)) == 3, WITHIN_S)
        assert not is_gone(first[1])
        process.terminate()
        assert process.wait(WITHIN_S) == 0
    assert all(is_gone(pid) for pid in pids(tmp_path))


def test_a_child_that_keeps_failing_is_tried_ever_later(tmp_path: Path) -> None:
    with supervised(tmp_path, script(tmp_path, "a", FAILS)) as process:
        assert line(process) == "ready"
        (tmp_path / "go").touch()
        said = [line(process) for _ in range(4)]
        process.terminate()
        assert process.wait(WITHIN_S) == 0
    assert all(text.startswith("a ended with 7") for text in said)
    waits = [text.rpartition(" in ")[2] for text in said]
    assert waits == ["0.1 s", "0.2 s", "0.4 s", "0.8 s"]


def test_a_child_that_ends_before_it_is_ready_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("raise SystemExit(3)")
    with supervised(tmp_path, path) as process:
        assert line(process) == "a not ready, stopping False"
        assert process.wait(WITHIN_S) == 1


def test_a_second_signal_ends_a_child_that_does_not_hear(tmp_path: Path) -> None:
    with supervised(tmp_path, script(tmp_path, "a", IS_DEAF)) as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGINT)
        assert not wait_until(lambda: process.poll() is not None, 0.3)
        process.send_signal(signal.SIGINT)
        assert line(process) == "a is killed, as you asked again"
        assert process.wait(WITHIN_S) == 0
    assert is_gone(pids(tmp_path)[0])


def test_children_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with supervised(tmp_path, script(tmp_path, "a", OBEYS)) as process:
        assert line(process) == "ready"
        process.kill()
        process.wait(WITHIN_S)
        assert wait_until(lambda: read(tmp_path)[-1] == "a stopped", WITHIN_S)


# --- whoever holds a lock ------------------------------------------------------------------------------

HOLD = """
import signal, sys
from pathlib import Path
from claudemesh.runtime.home import InstanceLock
with InstanceLock(Path(sys.argv[1])):
    print("held", flush=True)
    signal.sigwait({signal.SIGUSR1})
"""


@contextmanager
def holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert line(process) == "held"
            yield process
        finally:
            process.kill()


def test_a_signal_goes_to_the_holder_of_the_lock(tmp_path: Path) -> None:
    with holding(tmp_path / "pid") as process:
        assert signal_holder(tmp_path / "pid", signal.SIGTERM) == process.pid
        assert process.wait(WITHIN_S) == -signal.SIGTERM
        assert wait_released(tmp_path / "pid", process.pid, WITHIN_S)
    assert signal_holder(tmp_path / "pid", signal.SIGTERM) is None


def test_no_signal_goes_to_a_process_that_only_has_the_number_in_the_file(tmp_path: Path) -> None:
    with (
        holding(tmp_path / "pid") as process,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander,
    ):
        (tmp_path / "pid").write_text(f"{bystander.pid}\n")
        assert signal_holder(tmp_path / "pid", signal.SIGKILL) is None
        assert (process.poll(), bystander.poll()) == (None, None)
        bystander.kill()


def test_a_lock_that_is_being_left_is_waited_for(tmp_path: Path) -> None:
    with holding(tmp_path / "pid") as process:
        (tmp_path / "pid").write_text("")  # as between its last words and its end
        assert not wait_released(tmp_path / "pid", process.pid, 0.05)
        process.kill()
        assert wait_released(tmp_path / "pid", process.pid, WITHIN_S)
