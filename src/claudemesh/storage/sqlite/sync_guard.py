"""The first sync that fails ends the process, wherever SQLite was when it failed.

SQLite writes every system call that fails to its log before it does anything about it. Listening there, instead of
to exceptions, also finds the failures that SQLite swallows (while closing), those after which it would sync once
more (while rolling back), and those that an operation catches. The process ends inside that very call.

The one sync whose failure SQLite does not even log is that of the directory, so `sync_directory` does it again.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import apsw

from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.runtime.halt import halt

_SYNC_FAILURES: Final = frozenset({apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC})

LastWords = Callable[[str], None]

_last_words: set[LastWords] = set()


def install() -> None:
    """Listen to SQLite's log. It has one listener for the process, so this is done anew at every open."""
    apsw.config(apsw.SQLITE_CONFIG_LOG, _hear)


def watch(last_words: LastWords) -> None:
    """Have `last_words` tell those who wait that their outcome is unknown, should the process end."""
    _last_words.add(last_words)


def unwatch(last_words: LastWords) -> None:
    _last_words.discard(last_words)


def give_up(reason: str) -> NoReturn:
    """End the process; whoever waits for any store of it is told that the outcome is unknown."""

    def tell_all() -> None:
        for last_words in tuple(_last_words):
            last_words(reason)

    halt(reason, tell_all)


def sync_directory(folder: Path) -> None:
    """Make sure that the files made in it are found after a power cut."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be opened: {error.strerror}") from error
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that knows no such thing
            give_up(f"the directory {folder} could not be synced: {error}")
    finally:
        os.close(descriptor)


def _hear(code: int, message: str) -> None:
    if code in _SYNC_FAILURES:
        give_up(f"a sync failed: {message}")
