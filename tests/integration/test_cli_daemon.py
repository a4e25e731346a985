"""The command line and the real daemon, as processes: started once, asked, told to stop, and gone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from claudemesh.runtime.home import Home, lock_holder, read_private, write_private
from claudemesh.runtime.patience import wait_until
from tests.printed import check_output
from tests.services.server import throwaway_directory
from tests.unit.cli.conftest import join_mesh

BOB = "ab" * 32
WITHIN_S = 30


class Shell:
    """A user's terminal with one home."""

    def __init__(self, home: Home) -> None:
        self.home = home
        kept = ("PATH", "PYTHONPATH")  # the latter has a planted fault be found
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        self.environment["CLAUDEMESH_HOME"] = str(home.root)

    @contextmanager
    def start(self, *words: str, **how: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401 - as Popen has them
        command = [Path(sys.executable).with_name("claudemesh"), *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment, **how
        ) as process:
            try:
                yield process
            finally:
                process.kill()  # a test that failed must not wait for what it did not stop

    def read(self, process: "subprocess.Popen[str]") -> Any:  # noqa: ANN401 - JSON is anything
        """Return the next document of one that was told `--json` and goes on."""
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        check_output("claudemesh", list(process.args)[1:], 0, line)  # type: ignore[arg-type]
        return json.loads(line)

    def run(self, *words: str, code: int = 0, **how: Any) -> Any:  # noqa: ANN401 - JSON is anything
        with self.start(*words, "--json", **how) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == code, err
        check_output("claudemesh", words, code, out)
        return json.loads(out)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    home = Home(tmp_path / "h")
    join_mesh(home, "demo", "http://127.0.0.1:1")  # nobody is there: a daemon works without a broker
    shell = Shell(home)
    yield shell
    shell.run("daemon", "down", "--mesh", "demo")


@pytest.fixture
def lock(shell: Shell) -> Path:
    return shell.home.mesh_dir("demo") / "pid"


@pytest.mark.prints("claudemesh daemon logs")
def test_a_daemon_is_started_asked_and_stopped(shell: Shell, lock: Path) -> None:
    up = shell.run("daemon", "up", "--no-tcp")
    assert (up["running"], up["mesh"], up["connected"]) == (True, "demo", False)
    assert up["pid"] == lock_holder(lock)
    sent = shell.run("send", BOB, "hi", "--id", "build-42")
    assert sent == {"client_message_id": "build-42", "status": "queued"}
    assert shell.run("send", BOB, "hi", "--id", "build-42") == {**sent, "duplicate": True}
    conflict = shell.run("send", BOB, "something else", "--id", "build-42", code=4)
    assert conflict["conflict"] == "outbox_pending_fingerprint_mismatch"
    assert [row["client_message_id"] for row in shell.run("daemon", "outbox", "list")["rows"]] == ["build-42"]
    assert shell.run("trace", "build-42")["state"] == "queued"
    timed_out = shell.run("send", BOB, "2", "--wait", "accepted", "--timeout", "100ms", code=1)
    assert timed_out["state"] == "queued"
    unknown = shell.run("send", "nobody", "hi", code=1)
    assert (unknown["code"], "claudemesh peer list" in unknown["detail"]) == ("unknown_destination", True)
    assert shell.run("inbox") == {"messages": [], "next_cursor": None}
    assert any(line["event"] == "daemon.started" for line in shell.run("daemon", "logs")["lines"])
    down = shell.run("daemon", "down")
    assert (down["stopped"], down["pid"]) == (True, up["pid"])
    assert lock_holder(lock) is None
    assert shell.run("daemon", "down")["stopped"] is False
    assert shell.run("send", BOB, "hi", code=3)["code"] == "no_daemon"


def test_a_second_daemon_is_refused_by_the_lock(shell: Shell) -> None:
    first = shell.run("daemon", "up", "--no-tcp")
    for words in (("daemon", "up"), ("daemon", "up", "--foreground")):
        refused = shell.run(*words, code=1)
        assert (refused["code"], refused["pid"]) == ("already_running", first["pid"])
    assert shell.run("daemon", "status")["pid"] == first["pid"]


def test_a_stale_pid_and_a_stale_socket_do_not_keep_a_daemon_from_starting(shell: Shell, lock: Path) -> None:
    first = shell.run("daemon", "up", "--no-tcp")
    os.kill(first["pid"], signal.SIGKILL)
    assert wait_until(lambda: lock_holder(lock) is None, WITHIN_S)
    assert lock.read_text() == f"{first['pid']}\n"
    assert (lock.parent / "sock").is_socket()
    assert shell.run("daemon", "status", code=3)["code"] == "no_daemon"
    assert shell.run("daemon", "down")["stopped"] is False
    assert shell.run("daemon", "up", "--no-tcp")["pid"] != first["pid"]


def test_a_restart_with_settings_that_are_wrong_leaves_the_daemon_running_and_names_their_file(
    shell: Shell, lock: Path
) -> None:
    first = shell.run("daemon", "up", "--no-tcp")
    (lock.parent / "config.toml").write_text("[disk]\nreserved_byte = 5\n")
    refused = shell.run("daemon", "restart", code=1)
    assert (refused["code"], str(lock.parent / "config.toml") in refused["detail"]) == ("config_invalid", True)
    assert shell.run("daemon", "status")["pid"] == first["pid"]


def test_a_restart_is_another_process_with_the_same_messages(shell: Shell) -> None:
    first = shell.run("daemon", "up", "--no-tcp")
    shell.run("send", BOB, "hi")
    second = shell.run("daemon", "restart", "--no-tcp")
    assert second["pid"] != first["pid"]
    assert (second["queue_depth"], second["member_pubkey"]) == (1, first["member_pubkey"])


@pytest.mark.req("D16")
@pytest.mark.prints("claudemesh daemon accept-host")
def test_a_daemon_that_does_not_start_says_why(shell: Shell, lock: Path) -> None:
    write_private(lock.parent / "host_fingerprint.json", b'{"fingerprint": "00", "made_of": ["mac"]}')
    refused = shell.run("daemon", "up", code=1)
    assert refused["code"] == "host_mismatch"
    assert "accept-host" in refused["detail"]
    shell.run("daemon", "accept-host")
    (lock.parent / "config.toml").write_text("[outbox]\nmax_age_hours_cupp = 3\n")
    refused = shell.run("daemon", "up", code=1)
    assert refused["code"] == "config_invalid"
    assert "max_age_hours_cap" in refused["detail"]
    (lock.parent / "keypair.json").chmod(0o644)
    (lock.parent / "config.toml").unlink()
    assert "chmod 600" in shell.run("daemon", "up", code=1)["detail"]
    (lock.parent / "keypair.json").chmod(0o600)
    assert shell.run("daemon", "up")["running"] is True


@pytest.mark.req("D16")
def test_flags_win_over_the_surroundings(shell: Shell, lock: Path) -> None:
    shell.environment["CI"] = "1"
    shell.run("daemon", "up", "--persistent", "--tcp")
    assert (lock.parent / "http.port").exists()
    shell.run("daemon", "restart", "--persistent", "--no-tcp")
    assert not (lock.parent / "http.port").exists()


@pytest.mark.req("O2", "D15")
@pytest.mark.prints("claudemesh daemon reload", "claudemesh daemon rotate-token", "claudemesh config show")
def test_a_running_daemon_reads_its_configuration_again_and_takes_a_new_token(shell: Shell, lock: Path) -> None:
    up = shell.run("daemon", "up", "--tcp")
    token = read_private(lock.parent / "local_token")
    assert shell.run("daemon", "rotate-token")["file"] == str(lock.parent / "local_token")
    assert read_private(lock.parent / "local_token") != token
    (lock.parent / "config.toml").write_text("[outbox]\nprune_after_days = 7\n[ipc]\nburst = 5\n")
    assert shell.run("daemon", "reload") == {"applied": ["outbox.prune_after_days"], "needs_restart": ["ipc.burst"]}
    assert shell.run("daemon", "status")["pid"] == up["pid"]
    settings = {one["name"]: one for one in shell.run("config", "show")["files"][0]["settings"]}
    assert settings["outbox.prune_after_days"]["value"] == 7


@pytest.mark.prints("claudemesh daemon up --foreground")
def test_in_the_foreground_it_stays_until_it_is_told_to_stop(shell: Shell, lock: Path) -> None:
    with shell.start("daemon", "up", "--foreground", "--no-tcp", "--json") as process:
        ready = shell.read(process)
        assert (ready["mesh"], ready["pid"]) == ("demo", process.pid)
        assert lock_holder(lock) == process.pid
        assert shell.run("daemon", "status")["pid"] == process.pid
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert "daemon.started" in err


def test_nothing_in_the_working_directory_is_loaded(shell: Shell, tmp_path: Path) -> None:
    opened = tmp_path / "repository"
    (opened / "claudemesh").mkdir(parents=True)
    for name in ("claudemesh/__init__.py", "click.py", "orjson.py", "sitecustomize.py"):
        (opened / name).write_text("raise SystemExit('loaded from the working directory')\n")
    (opened / "config.toml").write_text("nonsense\n")
    assert shell.run("daemon", "up", "--no-tcp", cwd=opened)["running"] is True
    assert shell.run("send", BOB, "hi", cwd=opened)["status"] == "queued"


def test_a_home_that_is_too_deep_for_a_socket_works_all_the_same(tmp_path: Path) -> None:
    home = Home(tmp_path / ("d" * 120) / "h")
    join_mesh(home, "demo", "http://127.0.0.1:1")
    shell = Shell(home)
    with throwaway_directory() as short:  # pytest's own are long, in a process beside others longer
        shell.environment["XDG_RUNTIME_DIR"] = str(short)
        shell.run("daemon", "up", "--no-tcp")
        try:
            assert shell.run("send", BOB, "hi")["status"] == "queued"
            assert (home.mesh_dir("demo") / "sock").is_file()
        finally:
            shell.run("daemon", "down")


@pytest.mark.prints("claudemesh daemon logs --follow", "claudemesh daemon down")
def test_a_log_can_be_followed(shell: Shell, lock: Path) -> None:
    shell.run("daemon", "up", "--no-tcp")
    with shell.start("daemon", "logs", "-f", "--json", "--lines", "1000") as following:
        assert shell.read(following)["event"] == "daemon.started"
        shell.run("daemon", "down")
        assert following.stdout is not None
        assert any(json.loads(line)["event"] == "daemon.stopped" for line in following.stdout)
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=WITHIN_S)
    assert following.returncode == 0
    assert lock_holder(lock) is None


def test_a_reader_that_goes_away_is_no_traceback(shell: Shell) -> None:
    shell.run("daemon", "up", "--no-tcp")
    for _ in range(3):
        shell.run("send", BOB, "hi")
    with shell.start("daemon", "outbox", "list") as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=WITHIN_S)
    assert "Traceback" not in err
