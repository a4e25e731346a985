"""What a user would notice is told in fragments, and the fragments make a chapter of the changelog."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHIN_S = 60
FRAGMENTS = sorted((ROOT / "newsfragments").glob("*.md"))


def test_every_fragment_has_its_place_in_the_next_chapter() -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9"]
    draft = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert draft.returncode == 0, draft.stderr
    told = " ".join(draft.stdout.split())
    assert [path.name for path in FRAGMENTS if " ".join(path.read_text(encoding="utf-8").split()) not in told] == []


def test_a_fragment_is_named_after_what_it_is() -> None:
    wrong = [
        path.name for path in FRAGMENTS if not re.fullmatch(r"\d+\.(feature|fix|change)(\.\d+)?\.md", path.name)
    ]
    assert FRAGMENTS
    assert wrong == []
