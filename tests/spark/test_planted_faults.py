"""Faults in what runs on Spark turn their tests red too: planted in this process, since a JVM takes seconds."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tests.faults.choice import FIRST_ON_SPARK, OTHERS_ON_SPARK
from tests.faults.witness import BROKEN
from tests.requirements import Fault


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fault" in metafunc.fixturenames:
        is_all = metafunc.config.getoption("--effort") != "ci"  # `make mutants`
        faults = [*FIRST_ON_SPARK, *(OTHERS_ON_SPARK if is_all else ())]
        metafunc.parametrize("fault", [pytest.param(fault, id=fault.what) for fault in faults])


@pytest.mark.usefixtures("spark")  # for the tests inside
def test_a_planted_fault_turns_its_test_red(fault: Fault) -> None:
    witness = watch(fault)
    assert "call" in witness.failed
    assert witness.failed <= {"call"}, "what failed is the test, and not its place"
    assert witness.broken == [], "the fault breaks the code instead of its behaviour"


@pytest.mark.usefixtures("spark")  # as above
def test_a_fault_that_only_breaks_the_code_is_seen_to_do_so() -> None:
    fault = next(fault for fault in (*FIRST_ON_SPARK, *OTHERS_ON_SPARK) if fault.file == "pipeline/jobs/audit.py")
    assert watch(replace(fault, new="nobody_knows_this")).broken == ["NameError"]


def watch(fault: Fault) -> "Witness":
    """Plant the fault, and run its test in here."""
    quiet = ["-q", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider"]
    witness = Witness()
    with planted(fault):
        pytest.main([*quiet, fault.test], plugins=[witness])
    return witness


class Witness:
    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.broken: list[str] = []  # by errors that say that the code does not run at all

    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        if call.excinfo is not None and issubclass(call.excinfo.type, BROKEN):
            self.broken.append(call.excinfo.typename)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.when)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Let the functions of a module do what they would with the fault, whoever has imported them."""
    module = importlib.import_module(f"claudemesh.{fault.file.removesuffix('.py').replace('/', '.')}")
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, f"the old text of {fault.what!r}"
    wrong = ModuleType(module.__name__)
    exec(compile(text.replace(fault.old, fault.new), str(module.__file__), "exec"), vars(wrong))  # noqa: S102 - our own
    codes = dict(_functions(vars(module)))
    right = {name: function.__code__ for name, function in codes.items()}
    constants = {name: value for name, value in vars(module).items() if _is_constant(name, value)}
    try:
        for name, function in _functions(vars(wrong)):
            codes[name].__code__ = function.__code__
        vars(module).update({name: vars(wrong)[name] for name in constants})
        yield
    finally:
        for name, code in right.items():
            codes[name].__code__ = code
        vars(module).update(constants)


def _functions(names: Mapping[str, Any]) -> Iterator[tuple[str, FunctionType]]:
    for name, value in names.items():
        if isinstance(value, FunctionType) and value.__module__ == names["__name__"]:
            yield name, value


def _is_constant(name: str, value: object) -> bool:
    return name.lstrip("_").isupper() and not callable(value)
