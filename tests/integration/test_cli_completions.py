"""A real bash completes what is typed: the script is read by it, and it asks the programs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.req("C1")

WITHIN_S = 60

# As bash does it when somebody presses Tab: the words so far, and which of them is being typed.
TAB = """
eval "$(claudemesh completions bash)"
complete -p "$1" >/dev/null || exit 9
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
"_${1//-/_}_completion" "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def press_tab(home: Path, *typed: str) -> set[str]:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "CLAUDEMESH_HOME": str(home)}
    ran = subprocess.run(
        ["bash", "-c", TAB, "bash", *typed],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return set(ran.stdout.split())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("claudemesh", "pe"), {"peer"}),
        (("claudemesh", "daemon", "outbox", ""), {"list", "inspect", "requeue", "drop", "prune"}),
        (("claudemesh", "--json", "topic", "j"), {"join"}),
        (("claudemesh", "--version", "que"), {"queue"}),
        (("claudemesh", "send", "bob", "hi", "--pri"), {"--priority"}),
        (("claudemesh", "send", "bob", "hi", "--priority", "n"), {"now", "next"}),
        (("cortex", "cassette", "re"), {"renew", "requeue"}),
        (("statehub", "outbox", "res"), {"resolve"}),
        (("statehub-edge", "--up"), {"--upstream"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bash_offers_what_may_come_next(tmp_path: Path, typed: tuple[str, ...], offered: set[str]) -> None:
    assert press_tab(tmp_path, *typed) == offered
    assert list(tmp_path.iterdir()) == []
