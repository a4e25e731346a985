"""The end of the process does not wait for anybody."""

import subprocess
import sys

import pytest

from claudemesh.runtime.halt import EXIT_STORE_FAILED

PROGRAM = """
import threading
from claudemesh.runtime.halt import halt

def never_ends():
    threading.Event().wait()

def fails():
    raise SystemExit(3)

halt("because", {last_words})
"""


@pytest.mark.parametrize("last_words", ["never_ends", "fails"])
def test_last_words_that_never_end_or_fail_do_not_keep_the_process_alive(last_words: str) -> None:
    program = PROGRAM.format(last_words=last_words)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == EXIT_STORE_FAILED
    assert "because" in run.stderr
