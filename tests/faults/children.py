"""Runs pytest in a process of its own, so that neither run sees the other's state."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What the run outside would lend to the one inside: its options, its worker's name, its coverage.
_LEAKS = ("PYTEST_", "COVERAGE_", "HYPOTHESIS_")


def run_pytest(
    args: list[str], *, cwd: Path, scratch: Path, limit_s: float, paths: tuple[Path, ...] = ()
) -> tuple[int, str]:
    """Give the exit code and the output. `paths` come first of all that modules are found in.

    The output goes to a file rather than a pipe: a process that a broken test leaves behind would hold a
    pipe open. A run over its limit ends with everything it started, and raises `TimeoutExpired`.
    """
    inherited = os.environ
    environment = {name: value for name, value in inherited.items() if not name.startswith(_LEAKS)}
    path = [*map(str, (*paths, ROOT)), *filter(None, [inherited.get("PYTHONPATH")])]
    environment |= {
        "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "hypothesis"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(path),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"]
    log = scratch / "log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*command, *args],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(limit_s)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return code, log.read_text(encoding="utf-8", errors="replace")
