"""A pytest plugin that reports what the exit code does not tell: what failed, why, and on which code."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings

# A test that ends by one of these did not notice the fault: the fault's own text does not run.
BROKEN = (ImportError, SyntaxError, NameError)

_BOUNDS = ("WITHIN_S", "BOUND_S")  # what the tests' modules call the longest that they wait for anything
_OF_PROCESSES = ("tests.chaos.", "tests.powercut.", "tests.services.")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--witness-to", type=Path, help="write the report to this file")
    parser.addoption("--witness-src", type=Path, help="the only folder that claudemesh may come from")
    parser.addoption("--witness-patience", type=float, help="which part of their patience the tests have")


def pytest_configure(config: pytest.Config) -> None:
    src = config.getoption("--witness-src").resolve()
    spec = importlib.util.find_spec("claudemesh")  # finds it without running any of it
    if spec is None or spec.origin is None or not Path(spec.origin).resolve().is_relative_to(src):
        raise pytest.UsageError(f"claudemesh would come from {spec and spec.origin}, not from {src}")
    # One example that fails is enough: nobody reads the smallest.
    settings.register_profile("witness", phases=(Phase.explicit, Phase.generate))
    settings.load_profile("witness")
    config.pluginmanager.register(_Witness(src, config.getoption("--witness-to")))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Cut the bounds of all waits short: with a fault, what a test waits for may well never come."""
    patience = session.config.getoption("--witness-patience")
    for name, module in list(sys.modules.items()) if patience is not None else ():
        if not name.startswith("tests."):
            continue
        for bound in _BOUNDS:
            if isinstance(getattr(module, bound, None), int | float):
                # Processes that do a lot of work are given more time for it.
                share = min(1, 3 * patience) if name.startswith(_OF_PROCESSES) else patience
                setattr(module, bound, share * getattr(module, bound))


class _Witness:
    def __init__(self, src: Path, to: Path) -> None:
        self._src = src
        self._to = to
        self._report: dict[str, list[str]] = {
            "passed": [],
            "failed": [],
            "skipped": [],
            "errors": [],
            "broken": [],
            "strays": [],
        }

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._report["errors"].append(f"{report.nodeid} (collection)")

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.excinfo is not None and issubclass(call.excinfo.type, BROKEN):
            self._report["broken"].append(f"{item.nodeid} ({call.excinfo.typename})")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.skipped:
            self._report[report.outcome].append(report.nodeid)
        elif report.failed:
            self._report["errors"].append(f"{report.nodeid} ({report.when})")

    def pytest_sessionfinish(self) -> None:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name.partition(".")[0] == "claudemesh" and file and not self._is_ours(file):
                self._report["strays"].append(file)
        self._to.write_text(json.dumps(self._report), encoding="utf-8")

    def _is_ours(self, file: str) -> bool:
        return Path(file).resolve().is_relative_to(self._src)
