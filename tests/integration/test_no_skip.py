"""A test that is skipped fails the run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SKIPPED = {
    "by_a_mark": "@pytest.mark.skip(reason='r')\ndef test(): pass",
    "by_a_condition": "@pytest.mark.skipif(True, reason='r')\ndef test(): pass",
    "in_a_fixture": "@pytest.fixture\ndef f(): pytest.skip('r')\ndef test(f): pass",
    "in_its_body": "def test(): pytest.skip('r')",
    "as_a_module": "pytest.importorskip('no_such_module')\ndef test(): pass",
    "for_want_of_parameters": "@pytest.mark.parametrize('x', [])\ndef test(x): pass",
}


def run_pytest(directory: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (directory / f"test_{name}.py").write_text(f"import pytest\n{text}\n")
    command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", f"--config-file={ROOT / 'pyproject.toml'}"]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider", "--continue-on-collection-errors", str(directory)]
    command += ["-rN"]  # no summary: where CI is set it repeats each message in full
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_skipped_test_fails_the_run(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, SKIPPED)
    assert result.returncode == 1
    assert result.stdout.count("No test is skipped here") == len(SKIPPED), result.stdout
    assert " skipped" not in result.stdout.splitlines()[-1]


def test_an_expected_failure_does_not_fail_the_run(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, {"expected": "@pytest.mark.xfail(reason='r')\ndef test(): assert False"})
    assert result.returncode == 0, result.stdout
