"""Processes that are measured, and those that measure. Each ends with the one that started it."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec

from benchmarks.load import Load, Task

ROOT = Path(__file__).parent.parent
START_S = 30.0
POLL_S = 0.01


def bound_to_us(*command: str) -> list[str]:
    """Return a command whose process the kernel ends when ours ends."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command]


@dataclass(frozen=True)
class Node:
    """A process of `benchmarks.node`, or another one that is looked at."""

    where: str
    pid: int
    flushes_file: Path | None = None

    def flushes(self) -> int:
        assert self.flushes_file is not None
        return int.from_bytes(self.flushes_file.read_bytes(), sys.byteorder)

    def cpu_s(self) -> float:
        """Return what its threads have run, finer than the clock's ticks."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextmanager
def node(folder: Path, kind: str, place: Path, *rest: str) -> Iterator[Node]:
    """Start a server and wait until it answers; it is told to stop at the end."""
    flushes = folder / f"flushes-{uuid4().hex}"
    command = bound_to_us(sys.executable, "-m", "benchmarks.node", str(flushes), kind, str(place), *rest)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603  our own
    try:
        assert process.stdout is not None
        word, _, where = process.stdout.readline().strip().partition(" ")
        assert word == "ready", f"{kind} did not start"
        yield Node(where, process.pid, flushes)
    finally:
        end(process)


@contextmanager
def server(command: list[str], sock: Path | int) -> Iterator[Node]:
    """Start somebody else's server and wait until it listens on its socket or port."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(bound_to_us(*command), **quiet)  # type: ignore[call-overload]  # noqa: S603  as above
    try:
        until_listening(sock)
        yield Node(str(sock), process.pid)
    finally:
        end(process)


def end(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until_listening(sock: Path | int, poll_s: float = POLL_S) -> None:
    until_s = time.monotonic() + START_S
    while True:
        family = socket.AF_UNIX if isinstance(sock, Path) else socket.AF_INET
        with socket.socket(family) as probe:
            try:
                probe.connect(str(sock) if isinstance(sock, Path) else ("127.0.0.1", sock))
            except OSError:
                assert time.monotonic() < until_s, f"nobody listens at {sock}"
            else:
                return
        time.sleep(poll_s)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def load(task: Task) -> Load:
    """Ask from a process of its own, and return what it found."""
    command = bound_to_us(sys.executable, "-m", "benchmarks.load", msgspec.json.encode(task).decode())
    found = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)  # noqa: S603  as above
    return msgspec.json.decode(found.stdout, type=Load)
