"""What holds for every test: how hard to try, that none is skipped, and that Ctrl-C means the same to all."""

import signal
from collections.abc import Generator
from typing import Any

import pytest

pytest_plugins = ["tests.services.fixtures", "tests.printed"]

EFFORTS = {"ci": 1, "chaos": 20, "soak": 400}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--effort", choices=tuple(EFFORTS), default="ci", help="how many rounds: %(choices)s")


def pytest_configure() -> None:
    # A script's background jobs ignore SIGINT, and so would every program that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def effort(pytestconfig: pytest.Config) -> int:
    """By how much a test multiplies its rounds: `for _ in range(5 * effort)`."""
    return EFFORTS[pytestconfig.getoption("--effort")]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_if_skipped(report)
    return report


def fail_if_skipped(report: Any) -> None:  # noqa: ANN401 - pytest's two kinds of report share no public base
    """Fail it: a backend that is quietly left out looks like one that works."""
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr}\nNo test is skipped here: provide what it needs, or remove it."
