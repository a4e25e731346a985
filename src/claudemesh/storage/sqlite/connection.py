"""How a connection must be configured before it may be trusted.

Every setting that the promise rests on is read back after it was set: a pragma that SQLite does not take is no
error to SQLite, and a file system that cannot do WAL falls back without a word.
"""

from pathlib import Path
from typing import Final

import apsw

from claudemesh.kernel.errors import ConfigError

# Below this a WAL file can be corrupted when two connections write and checkpoint at once (the WAL-reset bug).
SQLITE_VERSION_MIN: Final = (3, 51, 3)

BUSY_TIMEOUT_MS: Final = 5_000
WAL_BYTES_KEPT: Final = 64 * 1024 * 1024

# pragma -> (what we ask for, what must be read back)
_SETTINGS: Final[dict[str, tuple[str | int, str | int]]] = {
    "journal_mode": ("wal", "wal"),
    "synchronous": ("full", 2),  # the acknowledgement stands on this line
    "fullfsync": (1, 1),  # where the system's fsync does not reach the platter (macOS); elsewhere without effect
    "checkpoint_fullfsync": (1, 1),
    "foreign_keys": (1, 1),
    "trusted_schema": (0, 0),
    "mmap_size": (0, 0),  # an I/O error under mmap is a SIGBUS, not an error code
    "wal_autocheckpoint": (0, 0),  # the writer checkpoints, and nobody else
    "journal_size_limit": (WAL_BYTES_KEPT, WAL_BYTES_KEPT),
}


def connect(path: Path, *, read_only: bool) -> apsw.Connection:
    """Open a file that exists, and change nothing in it yet."""
    check_library_version(apsw.sqlite_lib_version())
    mode = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    connection = apsw.Connection(str(path), flags=mode | apsw.SQLITE_OPEN_NOFOLLOW)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return connection


def configure(connection: apsw.Connection) -> None:
    for pragma, (wanted, expected) in _SETTINGS.items():
        connection.pragma(pragma, wanted)
        found = connection.pragma(pragma)
        if found != expected:
            raise ConfigError(f"PRAGMA {pragma} is {found!r} and must be {expected!r} on this file system")


def configure_memory(connection: apsw.Connection) -> None:
    """Configure a database in memory: the rules that are not about a disk hold there too."""
    for pragma in ("foreign_keys", "trusted_schema"):
        connection.pragma(pragma, _SETTINGS[pragma][0])


def check_library_version(version: str) -> None:
    if tuple(int(part) for part in version.split(".")) < SQLITE_VERSION_MIN:
        floor = ".".join(map(str, SQLITE_VERSION_MIN))
        raise ConfigError(f"SQLite {version} can corrupt a WAL file; {floor} or newer is needed")
