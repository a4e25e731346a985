"""Processes that hang, were killed, or are somebody else's: real ones."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claudemesh.cli.doctor import scene
from claudemesh.cli.doctor.checks import processes, relay
from claudemesh.cli.doctor.model import Verdict
from claudemesh.edge import desk
from claudemesh.edge.stores.sqlite.outbox import SCHEMA as EDGE
from claudemesh.runtime.home import Home, InstanceLock, lock_holder, write_private
from claudemesh.storage.sqlite.database import Database
from tests.unit.cli.doctor.conftest import Judge, Look, Mend
from tests.unit.cli.doctor.test_stores import ROW, change
from tests.unit.cli.scripted import respond, scripted_daemon
from tests.unit.edge.well import WELL

WITHIN_S = 30

# Takes the lock of a state directory, listens at its socket, and answers nobody.
MUTE = """
import socket, sys, time
from pathlib import Path
from claudemesh.runtime.home import InstanceLock
folder = Path(sys.argv[1])
with InstanceLock(folder / "pid"), socket.socket(socket.AF_UNIX) as listener:
    listener.bind(str(folder / "sock"))
    listener.listen()
    (folder / "http.port").write_text("1")
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def mute(state_dir: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", MUTE, str(state_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.mark.req("C5")
def test_a_daemon_that_does_not_run_and_one_that_hangs_are_told_apart(
    look: Look, state_dir: Path, mute: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene, "ASK_S", 0.2)
    (found,) = look(processes.daemon)
    assert found.verdict is Verdict.FAIL
    assert f"process {mute.pid} runs" in found.detail
    assert "daemon restart --mesh demo" in found.fix
    mute.send_signal(signal.SIGKILL)
    mute.wait(WITHIN_S)
    (found,) = look(processes.daemon)
    assert "daemon up --mesh demo" in found.fix
    assert state_dir.exists()


@pytest.mark.req("C5")
def test_what_a_killed_process_left_is_removed_and_a_running_one_keeps_what_it_has(
    verdict: Judge, mend: Mend, state_dir: Path, mute: "subprocess.Popen[str]"
) -> None:
    assert verdict(processes.stale_locks) is Verdict.OK
    assert verdict(processes.sockets) is Verdict.OK
    assert mend(processes.sockets) == mend(processes.stale_locks) == []
    mute.send_signal(signal.SIGKILL)
    mute.wait(WITHIN_S)
    assert verdict(processes.stale_locks) is Verdict.WARN
    assert verdict(processes.sockets) is Verdict.WARN
    assert len(mend(processes.stale_locks) + mend(processes.sockets)) == 2
    assert (state_dir / "pid").read_bytes() == b""
    assert not (state_dir / "sock").exists()
    assert not (state_dir / "http.port").exists()
    assert verdict(processes.stale_locks) is Verdict.OK
    assert verdict(processes.sockets) is Verdict.OK


@pytest.mark.req("C5")
def test_a_repair_that_comes_too_late_takes_nothing_from_a_daemon_that_started_meanwhile(
    look: Look, state_dir: Path
) -> None:
    write_private(state_dir / "http.port", b"1")
    (found,) = look(processes.sockets)
    with scripted_daemon(state_dir / "sock"):
        (late,) = look(processes.sockets)
        assert (late.verdict, late.repairs) == (Verdict.FAIL, ()), "it has no lock: it is not the daemon"
    command = [sys.executable, "-c", MUTE, str(state_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            with pytest.raises(Exception, match="holds"):
                found.repairs[0].run()
            assert (state_dir / "sock").exists()
            assert lock_holder(state_dir / "pid") == process.pid
        finally:
            process.kill()


@pytest.mark.req("C5")
def test_a_lock_that_is_a_link_is_told_and_not_followed(
    look: Look, mend: Mend, state_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "theirs").write_text("123")
    (state_dir / "pid").symlink_to(tmp_path / "theirs")
    assert Verdict.FAIL in {one.verdict for one in look(processes.stale_locks)}
    mend(processes.stale_locks)
    assert (tmp_path / "theirs").read_text() == "123"


# --- the relay ---------------------------------------------------------------------------------------------


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Verdict.OK),
        ({"upstream_reachable": False, "upstream_state": "offline", "pending": 3}, Verdict.WARN),
        ({"upstream_state": "refused"}, Verdict.FAIL),
        ({"conflicts": 1}, Verdict.FAIL),
        ({"dead": 1}, Verdict.FAIL),
        ({"outbox_usable": False}, Verdict.FAIL),
    ],
)
def test_a_relay_that_runs_is_judged_by_what_it_says(
    verdict: Judge, home: Home, changes: dict[str, object], expected: Verdict
) -> None:
    home.ensure_dir(home.edge_dir)
    with scripted_daemon(home.edge_dir / "sock") as daemon:
        daemon.on("GET", "/status", respond(200, {**WELL, **changes}))
        assert verdict(relay.relay) is expected


@pytest.mark.req("C5")
def test_a_relay_that_does_not_run_is_judged_by_its_file(verdict: Judge, home: Home) -> None:
    assert verdict(relay.relay) is Verdict.NOT_APPLICABLE
    path = home.ensure_dir(home.edge_dir) / "outbox.db"
    Database.open(path, EDGE).close()
    assert verdict(relay.relay) is Verdict.OK
    change(path, ROW, values=(1, "pending"))
    assert verdict(relay.relay) is Verdict.FAIL


@pytest.mark.req("C5")
def test_a_relay_hangs_if_its_lock_stays_held_and_not_if_somebody_held_it_for_a_moment(
    verdict: Judge, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    Database.open(home.ensure_dir(home.edge_dir) / "outbox.db", EDGE).close()
    lock = InstanceLock(home.edge_dir / "pid")
    with lock, monkeypatch.context() as impatient:
        impatient.setattr(desk, "PATIENCE_S", 0)
        assert verdict(relay.relay) is Verdict.FAIL

    def seen(path: Path) -> int | None:
        holder = lock_holder(path)
        lock.release()
        return holder

    lock.acquire()
    monkeypatch.setattr(desk, "lock_holder", seen)
    assert verdict(relay.relay) is Verdict.OK
