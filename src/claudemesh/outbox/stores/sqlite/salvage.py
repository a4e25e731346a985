"""Saving what can be read out of a damaged outbox, row by row, into a new one. The damaged file stays as it is.

An id that could not be read is no longer known: a retry of it would be taken for a new send. So the count of what
is missing is told, and the old file is kept for whoever wants to look deeper.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import apsw

from claudemesh.kernel.errors import StoreCorrupt
from claudemesh.kernel.outbox import OutboxState
from claudemesh.runtime.home import read_private, sync_directory, write_private
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database, Schema

_SQL: Final = load_queries(files("claudemesh.outbox.stores.sqlite") / "salvage.sql")
_COMPANIONS: Final = ("", "-wal", "-shm")
_FRESH: Final = ".recovering"  # the new file, until it is whole
_MARK: Final = ".recovered"  # it is whole: where the damaged one goes
STEP_MAX: Final = 1 << 20
PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Salvaged:
    saved: int
    missing: int  # numbers between the first row and the last one that could be read, of which no row could
    kept_at: Path


def salvage(path: Path, schema: Schema, stamp: str) -> Salvaged:
    """Put the damaged file aside and a new one in its place, with every row that can still be read.

    StoreCorrupt if none can: an outbox that knows no id at all is not for a program to begin.
    """
    rows = _read_copy(path)
    if not rows:
        raise StoreCorrupt(
            f"nothing of {path} can be read. Put back a copy of it and of its -wal file, or move both away to "
            "begin with an empty outbox, which knows none of the old ids"
        )
    fresh = path.with_name(path.name + _FRESH)
    for companion in _COMPANIONS:
        fresh.with_name(fresh.name + companion).unlink(missing_ok=True)
    with Database.open(fresh, schema) as database:
        for start in range(0, len(rows), PAGE):
            database.write_blocking(_insert, rows[start : start + PAGE])
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    # From here on it is decided: a cut is taken up by the next start, which swaps what is not swapped yet.
    write_private(path.with_name(path.name + _MARK), aside.name.encode())
    finish_salvage(path)
    return Salvaged(len(rows), rows[-1][0] - len(rows), aside)


def is_cut(path: Path) -> bool:
    """Say whether a salvage was decided and not finished: what lies there is not what counts."""
    return path.with_name(path.name + _MARK).exists()


def finish_salvage(path: Path) -> None:
    """Put the new file into the damaged one's place, if that was decided; may be called again."""
    mark, fresh = path.with_name(path.name + _MARK), path.with_name(path.name + _FRESH)
    try:
        aside = path.with_name(read_private(mark).decode())
    except FileNotFoundError:
        return
    if fresh.exists():
        for companion in _COMPANIONS:  # the old WAL too: it must never be read with the new file
            with suppress(FileNotFoundError):
                path.with_name(path.name + companion).rename(aside.with_name(aside.name + companion))
        fresh.rename(path)
        sync_directory(path.parent)
    mark.unlink()


def _read_copy(path: Path) -> list[tuple[Any, ...]]:
    """Read from a copy: opening a database with a WAL changes it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for companion in _COMPANIONS:
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(path.name + companion), Path(folder) / f"copy.db{companion}")
        return list(_readable(Path(folder) / "copy.db"))


def _insert(connection: apsw.Connection, pages: Any) -> list[None]:  # noqa: ANN401  rows as SQLite gave them
    for rows in pages:
        marks = ", ".join("?" * len(rows[0]))  # as many as there are columns, which are those of the damaged file
        connection.executemany(_SQL["write"].replace("?", marks), rows)
    return [None] * len(pages)


def _readable(path: Path) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that can be read, in order, stepping over those that cannot by ever larger steps."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        seq, step = 0, 1
        while step <= STEP_MAX:
            try:
                rows = connection.execute(_SQL["read_from"], (seq,)).fetchall()
            except apsw.Error:
                seq, step = seq + step, step * 2
                continue
            if not rows:
                return
            row: Any = rows[0]
            if step > 1:  # back to just after the last row that could be read, by single steps
                yield from _between(connection, seq - step // 2, row[0])
            step = 1
            if _is_whole(row):
                yield tuple(row)
            seq = row[0] + 1
    finally:
        connection.close()


def _between(connection: apsw.Connection, begin: int, end: int) -> Iterator[tuple[Any, ...]]:
    for seq in range(max(begin, 0), min(end, begin + STEP_MAX)):
        with suppress(apsw.Error):
            found: list[Any] = connection.execute(_SQL["read_from"], (seq,)).fetchall()
            if found and found[0][0] == seq and _is_whole(found[0]):
                yield tuple(found[0])


def _is_whole(row: Any) -> bool:  # noqa: ANN401  a row as SQLite gave it
    """Say whether a row's values are of their kinds; a damaged page may hold anything."""
    texts = (row[1], row[2], row[4], row[5], row[11])
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(row[3], bytes)
        and len(row[3]) == 32  # noqa: PLR2004  a fingerprint
        and isinstance(row[6], bytes)
        and row[11] in {*OutboxState}
    )
