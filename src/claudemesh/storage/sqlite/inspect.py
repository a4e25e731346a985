"""A look at a database file from outside: read-only, bounded in time, believing nothing that the file says.

Whoever has the file open goes on: a reader takes no lock that a writer waits for. The look ends by itself when its
time is up, so that it keeps no WAL from being moved into the file for long.
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import apsw

from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import ConfigError, DeadlineExceeded, StoreUnavailable
from claudemesh.storage.sqlite.connection import SQLITE_VERSION_MIN, connect
from claudemesh.storage.sqlite.errors import translated
from claudemesh.storage.sqlite.file import refuse_an_orphaned_wal

Look: TypeAlias = apsw.Connection  # read-only, and only for a while

BUSY_MS: Final = 1_000
STEPS: Final = 1_000  # of SQLite's machine, between two looks at the clock
READ_THROUGH_BYTES_MAX: Final = 64 << 20  # a larger file is checked without its indexes
ISSUES_MAX: Final = 3
STATE_COLUMNS: Final = ("status", "state")
STATE_CHARS_MAX: Final = 32

VERSION_NEEDED: Final = ".".join(map(str, SQLITE_VERSION_MIN))


def library_version() -> str:
    return apsw.sqlite_lib_version()


@contextmanager
def looking(path: Path, clock: Clock, within_s: float) -> Iterator[Look]:
    """Open a file for questions that are all answered from one moment; DeadlineExceeded after a while."""
    deadline_ms = clock.monotonic_ms() + int(within_s * 1000)
    _check_plain(path)
    refuse_an_orphaned_wal(path)
    with translated():
        connection = connect(path, read_only=True)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.set_progress_handler(lambda: clock.monotonic_ms() >= deadline_ms, STEPS)
        with translated():
            for pragma, value in (("trusted_schema", 0), ("mmap_size", 0), ("foreign_keys", 1), ("query_only", 1)):
                connection.pragma(pragma, value)
            connection.execute("BEGIN")
            yield connection
    except apsw.InterruptError as error:
        raise DeadlineExceeded(f"{path.name} was not looked through within {within_s:g} s") from error
    finally:
        connection.close()


def _check_plain(path: Path) -> None:
    """Refuse what SQLite would follow elsewhere, or wait for: a pipe has no end."""
    try:
        is_plain = stat.S_ISREG(path.lstat().st_mode)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}") from error
    if not is_plain:
        raise ConfigError(f"{path} is not a plain file")


def find_damage(connection: apsw.Connection) -> list[str]:
    """Return what SQLite finds wrong with the file, the first few of it."""
    size = int(connection.pragma("page_count")) * int(connection.pragma("page_size"))
    check = "integrity_check" if size <= READ_THROUGH_BYTES_MAX else "quick_check"
    found = [str(row[0]) for row in connection.execute(f"PRAGMA {check}({ISSUES_MAX})")]
    return [] if found == ["ok"] else found


def count_rows(connection: apsw.Connection) -> dict[str, object]:
    """Return how many rows each table has; where rows have a state, by state."""
    tables = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return {str(name): _count(connection, str(name)) for (name,) in sorted(tables)}


def _count(connection: apsw.Connection, table: str) -> object:
    quoted = '"' + table.replace('"', '""') + '"'
    columns = {str(row[0]) for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
    state = next((name for name in STATE_COLUMNS if name in columns), None)
    if state is None:
        return connection.execute(f"SELECT count(*) FROM {quoted}").fetchall()[0][0]  # noqa: S608 - quoted
    counted = connection.execute(f"SELECT {state}, count(*) FROM {quoted} GROUP BY 1 LIMIT 100")  # noqa: S608 - as above
    return {str(value)[:STATE_CHARS_MAX]: count for value, count in counted}
