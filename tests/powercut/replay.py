"""Lays out one state in a folder, to be looked at with any tool.

    python -m tests.powercut.replay LOG SEED STATE FOLDER [MODULE:SUBJECT]

The first four are in the message of a test that failed. With a subject the state is checked again, in a copy.
"""

import importlib
import sys
from pathlib import Path

from tests.powercut.harness import Examiner, memory_folder
from tests.powercut.recorder import load
from tests.powercut.states import state_of


def main(log_file: str, seed: str, number: str, folder: str, subject: str = "") -> None:
    log = load(Path(log_file))
    state = state_of(log, int(seed), number)
    Path(folder).mkdir(parents=True)  # never into one that holds something: it would be emptied
    state.lay_out(Path(folder))
    print(f"{number}: {state.moment} ({state.how})")  # noqa: T201  it is what was asked for, as all below
    for name, data in state.files.items():
        print(f"  {name}: {len(data):,} bytes")  # noqa: T201
    for mark in state.marks:
        print(f"  mark {mark.kind} {mark.payload}")  # noqa: T201
    if subject:
        module, _, name = subject.partition(":")
        with memory_folder() as copy:
            examiner = Examiner(getattr(importlib.import_module(module), name), log, copy)
            for by_store in (False, True):
                _, problems = examiner.examine(state, by_store=by_store)
                print(f"{'opened by the store' if by_store else 'as it is'}: {problems or 'nothing is wrong'}")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
