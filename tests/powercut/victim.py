"""A process that runs a workload under the recorder and leaves its log behind.

    python -m tests.powercut.victim MODULE:FUNCTION FOLDER LOG CHECKPOINT_PAGES

With CHECKPOINT_PAGES above 0 checkpoints come that early; with 0 as they do in production. The process ends without
closing what the workload left open, as power cuts do.
"""

import importlib
import os
import sys
from pathlib import Path

from claudemesh.ledger.stores.sqlite import file as ledger
from claudemesh.storage.sqlite import writer
from tests.powercut.recorder import Recorder, RecordingVfs, listen_to_directory_syncs, save


def checkpoint_early(pages: int) -> None:
    """Keep the WAL short, so that a short workload sees many checkpoints and many new beginnings of the WAL."""
    writer.CHECKPOINT_IDLE_PAGES = pages
    writer.CHECKPOINT_BUSY_PAGES = 2 * pages
    writer.WAL_PAGES_MAX = 4 * pages
    ledger.CHECKPOINT_PAGES = pages


def main(workload: str, folder: str, log: str, checkpoint_pages: str) -> None:
    if int(checkpoint_pages):
        checkpoint_early(int(checkpoint_pages))
    recorder = Recorder(Path(folder))
    _held = RecordingVfs(recorder, is_default=True)  # it is there as long as somebody holds it
    listen_to_directory_syncs(recorder)
    module, _, function = workload.partition(":")
    getattr(importlib.import_module(module), function)(Path(folder), recorder.mark)
    with recorder.lock:
        save(recorder.log, Path(log))
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
