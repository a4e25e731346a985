"""Is a process still there, and still the same? Its number alone does not tell: another may have it by now."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")

_STATE, _STARTED = 0, 19  # fields of /proc/<pid>/stat, counted behind the name
_ENDED: Final = frozenset({"Z", "X", "x"})


@dataclass(frozen=True, slots=True)
class Process:
    """A process as it was seen: its number, and when it began in ticks since the boot, where the system tells."""

    pid: int
    started: str | None


def look_up(pid: int, proc: Path = PROC) -> Process | None:
    """Return a process that runs; None for one that is not there, or has ended and waits for its parent."""
    if pid <= 0:
        return None  # to kill(2) these mean whole groups
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Process(pid, None) if not (proc / "self").exists() and _answers(pid) else None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    if len(fields) <= _STARTED or fields[_STATE] in _ENDED:
        return None  # cut short it is shown by a process that is ending
    return Process(pid, fields[_STARTED])


def is_alive(process: Process, proc: Path = PROC) -> bool:
    found = look_up(process.pid, proc)
    return found is not None and found.started == process.started


def _answers(pid: int) -> bool:
    """Ask the kernel, where there is no /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
