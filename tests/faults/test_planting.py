"""The machinery itself, on a small project of its own: it must be able to say no."""

import subprocess
import textwrap
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.faults.children import run_pytest
from tests.faults.planting import copy_sources, objection, planted, run_tests, why_not_green
from tests.requirements import Fault

SUMS = """
    STEPS = {"up": 1, "down": -1}

    if len(STEPS) != 2:
        raise RuntimeError("a step is missing")


    def add(a, b):
        return a + b  # the sum


    def double(a):
        return 2 * a
"""

CHECKS = """
    import os
    from pathlib import Path

    import pytest
    from claudemesh.sums import add, double
    from hypothesis import given, strategies


    @pytest.fixture
    def two():
        return 2 // (double(1) // 2)


    def test_add():
        assert add(2, 3) == 5


    def test_double(two):
        assert double(two) == 4


    @pytest.mark.parametrize("a", [0, 1])
    def test_some_double(a):
        assert double(a) == a + a


    @given(strategies.integers())
    def test_any_double(a):
        assert double(a) == a + a


    def test_nothing():
        add(2, 3)


    def test_skipped():
        pytest.skip("never run")


    def test_the_run_outside_lends_nothing():
        assert not [name for name in os.environ if name.startswith("COVERAGE_")]
        assert "PYTEST_ADDOPTS" not in os.environ
        assert Path(os.environ["HYPOTHESIS_STORAGE_DIRECTORY"]).name == "hypothesis"
"""

SUM_IS_A_DIFFERENCE = Fault(
    what="The sum is a difference.",
    file="sums.py",
    old="a + b",
    new="a - b",
    test="checks/check_sums.py::test_add",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in {
        "src/claudemesh/__init__.py": "",
        "src/claudemesh/sums.py": SUMS,
        "checks/check_sums.py": CHECKS,
        "pytest.ini": "[pytest]\npython_files = check_*.py\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return root


def judge(fault: Fault, project: Path, tmp_path: Path) -> str:
    return objection(fault, src=project / "src", scratch=tmp_path, root=project) or "caught"


def test_a_fault_that_its_test_notices_is_caught(project: Path, tmp_path: Path) -> None:
    assert judge(SUM_IS_A_DIFFERENCE, project, tmp_path) == "caught"
    assert "a + b" in (project / "src/claudemesh/sums.py").read_text(), "the sources themselves stay as they are"


@pytest.mark.parametrize("name", ["test_some_double", "test_any_double"])
def test_a_fault_is_caught_by_a_test_that_tries_many_values(name: str, project: Path, tmp_path: Path) -> None:
    fault = Fault("Doubling adds two.", "sums.py", "2 * a", "2 + a", f"checks/check_sums.py::{name}")
    assert judge(fault, project, tmp_path) == "caught"
    assert not (project / ".hypothesis").exists(), "examples of a mutated run are not kept"


def test_a_fault_that_its_test_does_not_notice_is_reported_as_not_caught(project: Path, tmp_path: Path) -> None:
    unnoticed = replace(SUM_IS_A_DIFFERENCE, test="checks/check_sums.py::test_nothing")
    assert judge(unnoticed, project, tmp_path).startswith("not caught: exit 0, 1 passed")


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("a * b", "a - b", "broken: the old text occurs 0 times"),
        ("a", "b", "broken: the old text occurs"),
        ("the sum", "a difference", "broken: the new text leaves"),
        ("a + b", "a +", "broken: the new text is not Python"),
        ("a + b", "a + c", "the fault breaks the code"),
        ("a + b", "__import__('nowhere')", "the fault breaks the code"),
        ('"down": -1', "", "there was an error outside of the test"),
    ],
)
def test_a_fault_that_only_breaks_the_code_is_not_caught(
    old: str, new: str, verdict: str, project: Path, tmp_path: Path
) -> None:
    broken = replace(SUM_IS_A_DIFFERENCE, old=old, new=new)
    assert judge(broken, project, tmp_path).startswith(verdict)


def test_a_fault_that_only_breaks_a_fixture_is_not_caught(project: Path, tmp_path: Path) -> None:
    broken = Fault("Doubling is zero.", "sums.py", "2 * a", "0 * a", "checks/check_sums.py::test_double")
    assert judge(broken, project, tmp_path).startswith("there was an error outside of the test")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("file", "differences.py"),
        ("test", "checks/check_sums.py::test_gone"),
        ("test", "checks/check_gone.py::test_add"),
    ],
)
def test_a_fault_that_points_nowhere_is_broken(field: str, value: str, project: Path, tmp_path: Path) -> None:
    lost = replace(SUM_IS_A_DIFFERENCE, **{field: value})
    assert judge(lost, project, tmp_path).startswith(("broken:", "not caught: exit 4"))


def test_a_test_that_runs_on_other_sources_than_the_copy_is_not_caught(project: Path, tmp_path: Path) -> None:
    check = project / "checks/check_sums.py"
    first = f"import sys\nsys.path.insert(0, {str(project / 'src')!r})\n"
    check.write_text(first + check.read_text())
    assert judge(SUM_IS_A_DIFFERENCE, project, tmp_path).startswith("the test did not run on the copy")


def test_a_run_on_code_as_it_is_must_pass_and_not_skip(project: Path, tmp_path: Path) -> None:
    copy = copy_sources(project / "src")
    green = run_tests(["checks/check_sums.py::test_add"], copy, tmp_path, project)
    assert why_not_green(green) is None
    skipped = run_tests(["checks/check_sums.py::test_skipped"], copy, tmp_path, project)
    assert why_not_green(skipped) == "not green: exit 0, 0 passed, 1 skipped"


def test_a_fault_is_there_for_a_while_and_leaves_the_copy_as_it_was(project: Path, tmp_path: Path) -> None:
    copy = copy_sources(project / "src")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}

    def is_green() -> bool:
        return why_not_green(run_tests(["checks/check_sums.py::test_add"], copy, tmp_path, project)) is None

    assert is_green()
    with planted(SUM_IS_A_DIFFERENCE, copy):
        assert not is_green()
    assert is_green()
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("has_bytecode", [True, False])
def test_a_fault_that_cannot_be_planted_leaves_the_copy_as_it_was(
    has_bytecode: bool,  # noqa: FBT001 - a parameter
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = copy_sources(project / "src")
    if not has_bytecode:
        Path(cache_from_source(copy / "claudemesh" / SUM_IS_A_DIFFERENCE.file)).unlink()
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}

    def write_half(path: Path, text: str, **_: str) -> None:
        path.write_bytes(text.encode()[:9])
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OSError, match="the disk is full"), planted(SUM_IS_A_DIFFERENCE, copy):
        pass
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_run_that_does_not_end_is_ended(project: Path, tmp_path: Path) -> None:
    (project / "checks/check_endless.py").write_text("def test_endless():\n    while True: ...\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run_pytest(["checks/check_endless.py"], cwd=project, scratch=tmp_path, limit_s=2)


def test_a_run_inherits_neither_options_nor_coverage(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVERAGE_PROCESS_START", "/nowhere/pyproject.toml")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    copy = copy_sources(project / "src")
    run = run_tests(["checks/check_sums.py::test_the_run_outside_lends_nothing"], copy, tmp_path, project)
    assert why_not_green(run) is None, run.output
