"""A process that has imported pytest and what tests use, but nothing of ours, and forks for each run.

    python -m tests.faults.warm

Starting pytest takes longer than most tests do, and here it is done once. Each line of standard input is an order,
each line of standard output says how its run ended; when the input ends, so does this process, with the run under
way. What a run leaves behind in its process group is ended with it.
"""

import gc
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

# What the tests and the product import; one that is missing here only costs its time again in each run.
LIBRARIES = (
    "apsw",
    "asyncio",
    "asyncpg",
    "click",
    "hypothesis.stateful",
    "httptools",
    "msgspec",
    "nacl.signing",
    "orjson",
    "prometheus_client.parser",
    "redis",
    "urllib.request",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "uvicorn.server",
    "uvloop",
    "websockets.asyncio.client",
)
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"  # without it pytest-asyncio warns
OPTIONS = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")


def warm_up() -> None:
    """Go once through the whole of pytest, in a place without any configuration.

    The libraries are imported in there: pytest rewrites its plugins as they are imported, and objects to one that
    was imported before.
    """
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        Path(folder, "pytest.ini").write_text(INI, encoding="utf-8")
        imports = "".join(f"import {name}\n" for name in LIBRARIES)
        Path(folder, "test_nothing.py").write_text(f"{imports}def test_nothing(): ...\n", encoding="utf-8")
        out, sys.stdout = sys.stdout, nowhere
        code = pytest.main([*OPTIONS, "-q", f"--rootdir={folder}", folder])
        sys.stdout = out
    ours = [name for name in sys.modules if name.partition(".")[0] == "claudemesh"]
    if code != 0 or ours:
        raise RuntimeError(f"pytest could not be warmed up: exit {code}, {ours}")
    gc.freeze()


def serve() -> None:
    """Make the runs that are asked for, one after the other."""
    while line := sys.stdin.buffer.readline():
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            run(order)
        is_over = wait_for(child, order["limit_s"])
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        answer = {"n": order["n"], "code": os.waitstatus_to_exitcode(status), "is_over": is_over}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def wait_for(child: int, limit_s: float) -> bool:
    """Return whether it ended by itself in time. Input that is there meanwhile can only be its end."""
    descriptor = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([descriptor, sys.stdin.fileno()], [], [], limit_s)
    finally:
        os.close(descriptor)
    return descriptor in ready


def run(order: dict[str, Any]) -> NoReturn:
    """In the child: be the process that `python -m pytest` would have been."""
    code: int = pytest.ExitCode.INTERNAL_ERROR
    try:
        os.setsid()
        with Path(os.devnull).open("rb") as nothing, Path(order["log"]).open("wb") as log:
            os.dup2(nothing.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["environment"])
        sys.path[:0] = [order["cwd"], *order["paths"]]
        importlib.invalidate_caches()
        code = pytest.main([*OPTIONS, *order["args"]])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001  whatever it was, it must not go on as the parent
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    warm_up()
    serve()
