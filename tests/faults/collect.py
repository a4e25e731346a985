"""What markers say of which test, above all requirement ids: a plugin that notes it, and the run that asks it."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.faults.children import ROOT, run_pytest

# Node id without parameters -> what its markers of a name say: of req, the ids of requirements.
Collected: TypeAlias = Mapping[str, list[str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--collected-to", type=Path, help="write {node id: [what its markers say]} to this file")
    parser.addoption("--collected-of", default="req", help="the markers that are meant")


def pytest_collection_finish(session: pytest.Session) -> None:
    named: dict[str, set[str]] = {}
    for item in session.items:
        ids = named.setdefault(item.nodeid.partition("[")[0], set())
        for marker in item.iter_markers(session.config.getoption("--collected-of")):
            # A marker without an id is noted as the empty id, which no table knows.
            ids.update(str(given) for given in marker.args or ("",))
    collected = {node: sorted(ids) for node, ids in named.items()}
    session.config.getoption("--collected-to").write_text(json.dumps(collected), encoding="utf-8")


def collect(root: Path = ROOT, where: str = "tests", of: str = "req") -> Collected:
    """Collect every test below `where` in a fresh process; an uncollectable one is an error."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        answer = scratch / "collected.json"
        args = ["--collect-only", "-q", "-p", "tests.faults.collect", "--collected-to", str(answer)]
        args += ["--collected-of", of, where]
        code, output = run_pytest(args, cwd=root, scratch=scratch, limit_s=100)
        if code != 0:
            raise RuntimeError(f"The tests could not be collected (exit {code}):\n{output}")
        collected: Collected = json.loads(answer.read_text(encoding="utf-8"))
        return collected
