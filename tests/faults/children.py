"""Runs pytest in a process of its own, so that neither run sees the other's state."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.services.postgres import EVERY

ROOT = Path(__file__).resolve().parents[2]

# What the run outside would lend to the one inside: its options, its worker's name, its coverage.
_LEAKS = ("PYTEST_", "COVERAGE_", "HYPOTHESIS_", "PYTHONDONTWRITEBYTECODE", EVERY)


def run_pytest(
    args: list[str], *, cwd: Path, scratch: Path, limit_s: float, paths: tuple[Path, ...] = (), **variables: str
) -> tuple[int, str]:
    """Give the exit code and the output. `paths` come first of all that modules are found in.

    The output goes to a file rather than a pipe: a process that a broken test leaves behind would hold a
    pipe open. A run over its limit ends with everything it started, and raises `TimeoutExpired`.
    """
    path = [*map(str, (*paths, ROOT)), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = _environment() | {
        "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "hypothesis"),
        "PYTHONPATH": os.pathsep.join(path),
        **variables,
    }
    log = scratch / "log"
    # A short name, since sockets are made in it, and one that goes with the run.
    with tempfile.TemporaryDirectory(prefix="cm-", ignore_cleanup_errors=True) as folder:
        order = {
            "args": [f"--basetemp={folder}/t", *args],
            "cwd": str(cwd),
            "environment": environment,
            "limit_s": limit_s,
            "log": str(log),
            "paths": [str(path) for path in (*paths, ROOT)],
        }
        answer = _warm.ask(order)
    if not answer["is_over"]:
        raise subprocess.TimeoutExpired(args, limit_s)
    return answer["code"], log.read_text(encoding="utf-8", errors="replace")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_LEAKS)}


class _Warm:
    """The process of `warm.py`, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._n = 0
        atexit.register(self.stop)

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        self._n += 1
        try:
            answer = self._exchange(json.dumps({"n": self._n, **order}).encode() + b"\n")
        except BaseException:  # its answer may still come, and would be taken for the next one's
            self.stop()
            raise
        if answer["n"] != self._n:
            raise RuntimeError(f"asked for run {self._n}, and heard of {answer}")
        return answer

    def _exchange(self, line: bytes) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.warm"],
                cwd=ROOT,
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line)
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of warm.py ended with {self._process.wait()}")
        parsed: dict[str, Any] = json.loads(answer)
        return parsed

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()  # its input ends, and so does it
            self._process = None


_warm = _Warm()
