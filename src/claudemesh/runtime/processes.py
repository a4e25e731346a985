"""Other processes: started, watched, told to stop; and this one, sleeping.

A process is told to stop through a handle on that very process, never by a number that may be somebody else's by
now. Commands are lists of words: none goes through a shell.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from claudemesh.kernel.clock import Clock
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.runtime.dice import roll
from claudemesh.runtime.home import lock_holder
from claudemesh.runtime.patience import wait_until

if TYPE_CHECKING:
    from subprocess import Popen

PID_PATIENCE_S: Final = 1.0
HEALTHY_MS: Final = 60_000  # what ran this long did not fail at its start
PROBE_S: Final = 0.02
STOP_S: Final = 20.0

_STOP: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_HEARD: Final = _STOP | {signal.SIGCHLD}
_PR_SET_PDEATHSIG: Final = 1  # of prctl(2)


def pause(seconds: float) -> None:
    time.sleep(seconds)


def settled_holder(lock: Path) -> int | None:
    """Return who holds a lock, or None; whoever is just taking or leaving it is given a moment."""
    wait_until(lambda: lock_holder(lock) != 0, PID_PATIENCE_S)
    return lock_holder(lock)


def signal_holder(lock: Path, number: signal.Signals) -> int | None:
    """Signal the process that holds a lock, and return its pid; None if nobody does."""
    pid = settled_holder(lock)
    if not pid:
        return None
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        # From here on the handle is of one process. Is it the one? Its number may have been another's a moment ago.
        if lock_holder(lock) != pid or not _has_open(pid, lock):
            return None
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)
    return pid


def wait_released(lock: Path, pid: int, within_s: float) -> bool:
    """Wait until a process no longer holds a lock; False if it still does."""
    return wait_until(lambda: lock_holder(lock) not in (pid, 0), within_s)


def _has_open(pid: int, path: Path) -> bool:
    with suppress(OSError):
        wanted = path.stat()
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - numbers, not paths
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), wanted):  # noqa: PTH116 - follows to the file
                    return True
    return False


def start_detached(argv: Sequence[str], output: Path) -> "Popen[bytes]":
    """Start a process that outlives this one and its terminal; all that it says goes into a private file."""
    import subprocess  # noqa: PLC0415 - as slow to import as all that most commands need

    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(output, flags, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - our own program, as a list of words
            argv, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
        )
    finally:
        os.close(descriptor)


def start_heard(argv: Sequence[str], environment: Mapping[str, str], log: Path) -> "Popen[str]":
    """Start a process whose output is read here, in a group of its own; the kernel stops it when we are gone."""
    import subprocess  # noqa: PLC0415 - as above

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - our own program, as a list of words
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=descriptor,
            env=environment,
            text=True,
            process_group=0,
            preexec_fn=_binding(),  # noqa: PLW1509 - whoever starts one has one thread
        )
    finally:
        os.close(descriptor)


def read_line(process: "Popen[str]", within_s: float) -> str:
    """Return the next line that a process says; nothing, if it ends without one or takes too long."""
    if process.stdout is None or not select.select([process.stdout], [], [], within_s)[0]:
        return ""
    return process.stdout.readline()


def run_heard(argv: Sequence[str], environment: Mapping[str, str], within_s: float) -> tuple[int, str, str]:
    """Run a program to its end; return its status, what it printed and what it said beside that."""
    import subprocess  # noqa: PLC0415 - as above

    try:
        done = subprocess.run(  # noqa: S603 - our own program, as a list of words
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            text=True,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL, "", f"it did not end within {within_s:g} s"
    return done.returncode, done.stdout, done.stderr


def run_fed(argv: Sequence[str], text: str, every_s: float, beat: Callable[[], None]) -> tuple[int, str]:
    """Run a program to its end with a text as its input; return its status and what it printed.

    `beat` is called now and then meanwhile. Should it raise, the program is killed.
    """
    import subprocess  # noqa: PLC0415 - as above

    with subprocess.Popen(  # noqa: S603 - a command of the user's, as a list of words
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=_binding(),  # noqa: PLW1509 - whoever runs one has one thread
    ) as process:
        unsent: bytes | None = text.encode()
        try:
            while True:
                try:
                    printed, _ = process.communicate(unsent, timeout=every_s)
                except subprocess.TimeoutExpired:
                    unsent = None  # it goes on with what it was given at first
                    beat()
                else:
                    return process.returncode, printed.decode(errors="replace")
        except BaseException:
            process.kill()
            raise


# --- a supervisor ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Child:
    name: str
    argv: Sequence[str]
    process: "Popen[bytes]"
    started_ms: int
    failures: int = 0
    due_ms: int | None = None  # when it is started again, after it ended


class Supervisor:
    """Keeps processes running until this one is told to stop; use it as a context.

    A child that ends is started again, after a pause that grows while it keeps failing. Children are in groups of
    their own, so that Ctrl-C reaches only the supervisor, which stops the last started first; should the supervisor
    itself be killed, the kernel stops them. Signals are waited for, not handled: nothing happens in between.
    """

    def __init__(self, clock: Clock, say: Callable[[str], None], jitter: Callable[[], float] = roll) -> None:
        self._clock = clock
        self._say = say
        self._jitter = jitter
        self._children: list[_Child] = []
        self._mask: set[signal.Signals | int] = set()
        self.is_stopping = False

    def __enter__(self) -> Self:
        self._mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stop_all()
        finally:
            while signal.sigtimedwait(_HEARD, 0):
                pass  # what was said to us meanwhile has been obeyed
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def start(self, name: str, argv: Sequence[str]) -> None:
        process = _start_bound(argv)
        self._children.append(_Child(name, argv, process, self._clock.monotonic_ms()))

    def wait_ready(self, name: str, probe: Callable[[], bool], within_s: float) -> bool:
        """Wait until the probe succeeds; False if the child ended, this process is to stop, or time is up."""
        child = next(child for child in self._children if child.name == name)
        deadline_ms = self._clock.monotonic_ms() + int(within_s * 1000)
        while not self.is_stopping and child.process.poll() is None and self._clock.monotonic_ms() < deadline_ms:
            if probe():
                return True
            self._listen(PROBE_S)
        return False

    def run(self) -> None:
        """Return when this process was told to stop; the children are stopped at the end of the context."""
        while not self.is_stopping:
            now_ms = self._clock.monotonic_ms()
            for child in self._children:
                if child.due_ms is None and child.process.poll() is not None:
                    self._note_end(child, now_ms)
                if child.due_ms is not None and child.due_ms <= now_ms:
                    child.process, child.started_ms, child.due_ms = _start_bound(child.argv), now_ms, None
            due = [child.due_ms - now_ms for child in self._children if child.due_ms is not None]
            self._listen(max(min(due, default=HEALTHY_MS), 0) / 1000)

    def _note_end(self, child: _Child, now_ms: int) -> None:
        has_been_well = now_ms - child.started_ms >= HEALTHY_MS
        child.failures = 1 if has_been_well else child.failures + 1
        wait_ms = derive_backoff_ms(child.failures, self._jitter())
        child.due_ms = now_ms + wait_ms
        self._say(
            f"{child.name} ended with {child.process.returncode}; it is started again in {wait_ms / 1000:.1f} s"
        )

    def _listen(self, seconds: float) -> None:
        heard = signal.sigtimedwait(_HEARD, seconds)
        if heard is not None and heard.si_signo in _STOP:
            self.is_stopping = True

    def _stop_all(self) -> None:
        self.is_stopping = False  # from here on a stop signal means: at once
        for child in reversed(self._children):
            child.process.terminate()
            deadline_ms = self._clock.monotonic_ms() + int(STOP_S * 1000)
            while child.process.poll() is None:
                if self.is_stopping or self._clock.monotonic_ms() >= deadline_ms:
                    why = "as you asked again" if self.is_stopping else "since it does not stop"
                    self._say(f"{child.name} is killed, {why}")
                    child.process.kill()
                    child.process.wait()
                else:
                    self._listen(PROBE_S)


def _start_bound(argv: Sequence[str]) -> "Popen[bytes]":
    """Start a child that hears signals, in a group of its own, and that the kernel stops when we are gone.

    What it prints goes to standard error: standard output is for our own answer.
    """
    import subprocess  # noqa: PLC0415 - as above

    return subprocess.Popen(  # noqa: S603 - our own program, as a list of words
        argv,
        stdin=subprocess.DEVNULL,
        stdout=2,
        process_group=0,
        preexec_fn=_binding(),  # noqa: PLW1509 - the supervisor has one thread
    )


def _binding() -> Callable[[], None]:
    """Return what a child does first, so that it hears signals and is stopped when we are gone."""
    import ctypes  # noqa: PLC0415 - as subprocess above

    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def bind() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:  # gone before it could be noticed
            os._exit(1)

    return bind
