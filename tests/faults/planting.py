"""Plants a fault in a copy of the sources and says whether the named test noticed it."""

import ast
import atexit
import compileall
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import cache_from_source
from pathlib import Path

from tests.faults.children import ROOT, run_pytest
from tests.requirements import Fault
from tests.services.postgres import LENT, private_postgres, wheel

_LIMIT_S = 240  # more than the longest single test may take by its own timeout
_PATIENCE = 0.1  # of that of a test which has nothing to fear: what it waits for may never come


class BrokenFaultError(Exception):
    """The fault cannot show anything as it is written."""


@dataclass(frozen=True)
class Run:
    exit_code: int
    output: str
    passed: list[str]
    failed: list[str]
    skipped: list[str]
    errors: list[str]  # in collection, setup or teardown
    broken: list[str]  # ended by an error that says that the code does not run at all
    strays: list[str]  # modules of claudemesh that came from elsewhere


@cache
def _copied(src: Path) -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory(prefix="cm-src-")
    shutil.copytree(src, folder.name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    compileall.compile_dir(folder.name, quiet=2)
    return folder


def copy_sources(src: Path) -> Path:
    """Return the copy of this process, with its bytecode: compiling all of it would take longer than most tests."""
    return Path(_copied(src).name)


@contextmanager
def planted(fault: Fault, src: Path) -> Iterator[None]:
    """Have the fault in a copy for a while."""
    file = src / "claudemesh" / fault.file
    if not file.is_file():
        raise BrokenFaultError(f"{fault.file} is not a file of claudemesh")
    text = file.read_text(encoding="utf-8")
    if (count := text.count(fault.old)) != 1:
        raise BrokenFaultError(f"the old text occurs {count} times in {fault.file}, not once")
    changed = text.replace(fault.old, fault.new)
    if not _says_something_else(text, changed, python=file.suffix == ".py"):
        raise BrokenFaultError(f"the new text leaves {fault.file} as it was")
    bytecode = Path(cache_from_source(file))
    with tempfile.TemporaryDirectory(dir=src) as folder:
        kept = {one: Path(shutil.copy2(one, folder)) for one in (file, bytecode) if one.exists()}
        try:
            bytecode.unlink(missing_ok=True)  # for a text of the same size, it would hide it
            file.write_text(changed, encoding="utf-8")
            yield
        finally:
            bytecode.unlink(missing_ok=True)  # of the fault
            for one, copy in kept.items():
                copy.replace(one)


def _says_something_else(text: str, changed: str, *, python: bool) -> bool:
    if not python:
        return text != changed
    try:
        return _shape(text) != _shape(changed)
    except SyntaxError as error:
        raise BrokenFaultError(f"the new text is not Python: {error}") from error


@lru_cache(maxsize=2)  # most faults of a file stand together
def _shape(text: str) -> str:
    return ast.dump(ast.parse(text))


@cache
def _lent_postgres() -> str:
    """Start a server for all runs of this process: to make one takes longer than most tests on it."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(private_postgres(wheel())).lend()


def run_tests(nodes: list[str], src: Path, scratch: Path, root: Path = ROOT, patience: float | None = None) -> Run:
    """Run tests of the project at `root` on the sources in `src`, and on no others.

    The sources come first on PYTHONPATH, before an editable install; processes that the test starts inherit
    that. The seed of hypothesis is fixed, so that a fault is caught every time or never. With `patience` the
    tests wait for only so much of the time that they would.
    """
    answer = scratch / "witness.json"
    answer.unlink(missing_ok=True)
    plugin = ["-p", "tests.faults.witness", "--witness-to", str(answer), "--witness-src", str(src)]
    plugin += [] if patience is None else [f"--witness-patience={patience}"]
    code, output = run_pytest(
        ["-x", "-q", "--hypothesis-seed=0", *plugin, *nodes],
        cwd=root,
        scratch=scratch,
        limit_s=_LIMIT_S,
        paths=(src,),
        **{LENT: _lent_postgres()},
    )
    if not answer.exists():
        raise BrokenFaultError(f"{nodes} did not run (exit {code}):\n{output}")
    return Run(code, output, **json.loads(answer.read_text(encoding="utf-8")))


def why_not_caught(run: Run) -> str | None:
    """None when a test failed by itself; a fault that stops the code from running at all proves nothing."""
    if run.strays:
        return f"the test did not run on the copy: {run.strays}"
    if run.broken:
        return f"the fault breaks the code instead of its behaviour: {run.broken}"
    if run.exit_code == 1 and run.failed:
        return None
    if run.errors:
        return f"there was an error outside of the test: {run.errors}"
    return f"not caught: exit {run.exit_code}, {len(run.passed)} passed, {len(run.failed)} failed"


def why_not_green(run: Run) -> str | None:
    if run.strays:
        return f"the test did not run on the copy: {run.strays}"
    if run.exit_code == 0 and run.passed and not run.skipped:
        return None
    return f"not green: exit {run.exit_code}, {len(run.passed)} passed, {len(run.skipped)} skipped"


def objection(fault: Fault, *, src: Path, scratch: Path, root: Path = ROOT) -> str | None:
    """Plant the fault and run its test; None when the test turned red, else what is wrong."""
    copy = copy_sources(src)
    try:
        with planted(fault, copy):
            run = run_tests([fault.test], copy, scratch, root, _PATIENCE)
    except BrokenFaultError as error:
        return f"broken: {error}"
    except subprocess.TimeoutExpired:
        return f"{fault.test} did not end within {_LIMIT_S} s"
    why = why_not_caught(run)
    return why and f"{why}\n{run.output}"
