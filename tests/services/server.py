"""A server of the tests' own: a throw-away directory, a bounded start, and an end that is certain.

Start one from the main thread: the kernel ends it as soon as the *thread* that started it is gone.
"""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

PREFIX = "claudemesh-test-"
BOUND_S = 90  # a niced one may be slow to start
POLL_S = 0.02


class ServerError(Exception):
    """The server did not start or did not stop; the message ends with what it logged last."""


class Server(ABC):
    """Knows how to start, stop and crash one process again and again on the same directory."""

    stop_signal = signal.SIGTERM
    crash_signal = signal.SIGKILL

    def __init__(self, directory: Path, command: list[str], user: str | None = None) -> None:
        self.directory = directory
        self._command = command
        self._user = user
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it answers now; asked again and again while it starts."""

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError(f"{self._command[0]} is not running")
        return self._process.pid

    def start(self) -> None:
        # setpriv: without it, a test run that is killed -9 would leave its servers behind.
        command = ["setpriv", "--pdeathsig", self.crash_signal.name, "--", *self._command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **run_as(self._user)
            )
        for _ in range(int(BOUND_S / POLL_S)):
            if self._exited_within(POLL_S):
                raise ServerError(f"{self._command[0]} ended instead of starting:\n{self._last_words()}")
            if self.is_ready():
                return
        self.crash()
        raise ServerError(f"{self._command[0]} did not answer within {BOUND_S} s:\n{self._last_words()}")

    def stop(self) -> None:
        """End in order; nothing happens when it is not running."""
        self._end(self.stop_signal)

    def crash(self) -> None:
        """End as in a crash: nothing is flushed, nobody is told."""
        self._end(self.crash_signal)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        if not self._exited_within(BOUND_S):
            self._process.kill()
            self._process.wait()
            raise ServerError(f"{self._command[0]} did not obey {how.name}:\n{self._last_words()}")
        self._process = None

    def _exited_within(self, seconds: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])


S = TypeVar("S", bound=Server)


@contextmanager
def running(server: S) -> Iterator[S]:
    """Run it for the length of a `with`; what happens to it inside is the test's business."""
    try:
        server.start()
        yield server
    finally:
        server.crash()  # its directory goes too: what it would write in order to stop takes seconds


@contextmanager
def throwaway_directory(owner: str | None = None) -> Iterator[Path]:
    """Lie directly in the system's temporary directory: pytest's own are closed to other users."""
    remove_leftovers()
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        if owner is not None:
            shutil.chown(directory, owner)
        yield directory
    finally:
        shutil.rmtree(directory)


def remove_leftovers() -> None:
    """Remove the directories of test runs that were killed before they could do so themselves."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        made_by = re.match(rf"{PREFIX}(\d+)-", directory.name)
        if made_by and not Path("/proc", made_by[1]).exists():
            shutil.rmtree(directory, ignore_errors=True)


def unprivileged_user() -> str | None:
    """Whom a server that refuses to be root runs as; None is ourselves."""
    return "nobody" if os.geteuid() == 0 else None


def run_as(user: str | None) -> dict[str, Any]:
    """Give the arguments with which subprocess does so."""
    return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
