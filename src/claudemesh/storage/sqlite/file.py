"""What must be true of the file on the disk, around SQLite's own view of it.

Everything here happens under a lock on the directory: programs that start at once come one after the other, also
through the change to WAL mode, for which SQLite's own busy timeout does not wait.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from claudemesh.kernel.errors import StoreCorrupt, StoreUnavailable
from claudemesh.runtime.patience import wait_until

_COMPANIONS: Final = ("", "-wal", "-shm")
_OTHERS: Final = 0o077

LOCK_WAIT_S: Final = 30.0
WAL_HEADER_BYTES: Final = 32  # a WAL that holds no more than this holds no write


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be opened: {error.strerror}") from error
    try:
        if not wait_until(lambda: _lock(descriptor), LOCK_WAIT_S):
            raise StoreUnavailable(
                f"{folder} is locked: for {LOCK_WAIT_S:.0f} s another program has been opening a store"
            )
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child forked meanwhile has the descriptor too
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreUnavailable(f"the directory cannot be locked: {error.strerror}") from error
    return True


def provide(path: Path) -> None:
    """Create the file if there is none, for its owner's eyes only; refuse one that lost its content."""
    try:
        refuse_an_orphaned_wal(path)
        # Not by opening it: closing a descriptor would drop every lock that this process holds on the file.
        with suppress(FileExistsError):
            os.mknod(path, stat.S_IFREG | 0o600)
        for companion in _COMPANIONS:
            _restrict(path.with_name(path.name + companion))
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be created or restricted: {error.strerror}") from error


def refuse_an_orphaned_wal(path: Path) -> None:
    """Refuse a file that lost its content: SQLite removes its WAL as soon as anybody reads it, also read-only."""
    wal = path.with_name(path.name + "-wal")
    if _size(path) == 0 and _size(wal) > WAL_HEADER_BYTES:
        raise StoreCorrupt(
            f"{path} is missing or empty, but {wal.name} still holds writes: opening it would destroy them. "
            "Put the file back, or move both away"
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _restrict(path: Path) -> None:
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and mode & _OTHERS:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
