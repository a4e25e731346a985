"""Rules of this project that no linter has. Each names what to do instead."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# pattern -> what to do instead
FORBIDDEN = {
    r"https?://(?!127\.0\.0\.1|localhost|\[::1\])[\w.-]*(?:pypi|pythonhosted|npmjs|debian|ubuntu)": (
        "no registry's host is written down: name the package, and let the machine's settings find it"
    ),
    r"(?<![\w.])/(?:root|home|work)/\w": "no path of one machine: relative to the project, or temporary",
    r"\b(?:class \w*(?:Manager|Helper)\b|(?:utils|common|helpers)\.py\b)": (
        "a name that says nothing: put it beside its one caller, or in the kernel"
    ),
}
NOT_OURS = {"LICENSE", "requirements/base.txt", "requirements/dev.txt", "requirements/uv.txt"}
LINES_MAX = 500


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [ROOT / name for name in listed if name not in NOT_OURS and (ROOT / name).is_file()]


def problems(text: str) -> list[str]:
    return [instead for pattern, instead in FORBIDDEN.items() if re.search(pattern, text)]


def test_no_file_holds_what_is_forbidden() -> None:
    found = {str(path.relative_to(ROOT)): problems(path.read_text(encoding="utf-8")) for path in tracked()}
    del found[str(Path(__file__).relative_to(ROOT))]
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "text",
    ["https://files.pythonhosted.org/x", "see /root/x", "class JobManager:", "from x import utils.py"],
)
def test_each_rule_can_fail(text: str) -> None:
    assert problems(text)


def test_pins_name_no_host_and_no_path() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"://|--index-url|--find-links|(?<!\w)/\w+/", path.read_text(encoding="utf-8")), (
            path.name
        )


def test_no_module_is_so_long_that_it_must_answer_several_questions() -> None:
    long = {
        path.name: lines
        for path in tracked()
        if path.suffix == ".py" and (lines := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert long == {}


def test_no_folder_is_a_placeholder() -> None:
    empty = [
        str(path.relative_to(ROOT)) for path in tracked() if path.stat().st_size == 0 and path.name != "py.typed"
    ]
    assert empty == []
