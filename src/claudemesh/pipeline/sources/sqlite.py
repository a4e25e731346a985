"""Stores in SQLite files: the embedded broker's, the outboxes and inboxes of daemons, and ledgers.

Writers take turns to number the rows, so numbers are in the order of commits, and a range of them that was there
once is never added to. Workers read such ranges with connections of their own; what has to agree is read in one
transaction of the driver's. A file is only ever opened for reading: a second writer's checkpoint could harm it.

Never in a process that has the same file open through another library: whoever closes a file first ends the locks
of both.

How a table is read follows from the catalogue. What does not is in `<kind>_sqlite.sql`:
    identity   16 hex digits that no other store has, and which past of it this is, if it can have several
    position   the marks of each series, under its name: a JSON array of arrays, as in `ranges`
    open       the numbers of rows that may still change, in their order; of a kind that has such
    witness    what tells the last row of a position from another of its number; of a file that may be put back
    counts     names and the store's own counts: of tables, and of whatever a job adds up to
    version    which form of the tables a file has; of a kind that has several
and the tables that are not read as they stand, by their names. What has to be asked otherwise of a file of version
`<n>` is there as `<name>_v<n>`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from claudemesh.kernel.errors import ConfigError
from claudemesh.pipeline.catalogue import OWNER
from claudemesh.pipeline.shapes import Kind, Series, Table
from claudemesh.pipeline.sources.connection import (
    Reading,
    Statement,
    connected,
    fetch_named,
    fetch_rows,
    fetch_table,
)
from claudemesh.pipeline.sources.model import (
    Identity,
    Moment,
    Position,
    fields,
)
from claudemesh.pipeline.sources.owner import read_owner
from claudemesh.pipeline.sources.ranges import is_behind, rise, split, subtract, to_ranges
from claudemesh.storage.sqlfile import load_queries

_HERE: Final = files(__package__)
_ROWS_A_PARTITION_MIN: Final = 100_000
_OPEN: Final = "open"
_WITNESS: Final = "witness"
_VERSION: Final = "version"


class SqliteStore:
    def __init__(self, path: Path, kind: Kind) -> None:
        self.path = path.absolute()
        self.kind = kind
        self.uri = f"file:{quote(str(self.path))}?mode=ro"
        self._sql = load_queries(_HERE / f"{kind.name}_sqlite.sql")

    @property
    def shown(self) -> str:
        return f"sqlite:///{self.path}"

    def identify(self) -> Identity:
        with connected("sqlite", self.uri) as cursor:
            said = fetch_rows(cursor, self.statement("identity"))
        name, *life = said[0] if said else (None,)
        if name is None:
            raise ConfigError(f"{self.path} does not say which store it is: it was not made by this version")
        return Identity(f"{self.kind.name}-{name}", "/".join(life))

    def moments(self) -> Iterator[Moment]:
        """Give a moment to come near, which holds nothing up, and then that of the cut.

        Where there are journals, rows are read before the cut, and what is deleted meanwhile has its tombstone in
        it: so marks of other series stay as they were.
        """
        journals = {one.name for one in self.kind.series if one.is_journal}
        with connected("sqlite", self.uri) as cursor:
            cursor.execute("BEGIN")
            version = self._ask_version(cursor)
            near = self._read_marks(cursor, version)
            cursor.execute("ROLLBACK")
            yield _SqliteMoment(self, cursor, near, version, is_cut=False)
            cursor.execute("BEGIN")
            version = self._ask_version(cursor)
            held = {name: mark for name, mark in near.items() if journals and name not in journals}
            marks = {**self._read_marks(cursor, version), **held}
            yield _SqliteMoment(self, cursor, marks, version, is_cut=True)
            cursor.execute("ROLLBACK")

    def _ask_version(self, cursor: Any) -> str:  # noqa: ANN401 - ADBC's
        """Ask in each moment: a file may be brought to another version in between."""
        if _VERSION not in self._sql.names():
            return ""
        return str(fetch_rows(cursor, self.statement(_VERSION))[0][0])

    def _read_marks(self, cursor: Any, version: str) -> Position:  # noqa: ANN401 - as above
        said = fetch_named(cursor, self.statement("position", version))
        marks: Position = {one.name: sorted(json.loads(said[one.name])) for one in self.kind.series}
        if _OPEN in self._sql.names():
            numbers = (number for (number,) in fetch_rows(cursor, self.statement(_OPEN, version)))
            marks[_OPEN] = [list(one) for one in to_ranges(numbers)]
        return {**marks, _WITNESS: self.ask_witness(cursor, marks, version)}

    def ask_witness(self, cursor: Any, marks: Position, version: str) -> str | None:  # noqa: ANN401 - as above
        """Return what stands at a position now; nothing, if it has gone since or nobody can say."""
        if _WITNESS not in self._sql.names():
            return None
        said = fetch_rows(cursor, self.statement(_WITNESS, version), (json.dumps(marks),))
        return said[0][0] if said else None

    def statement(self, name: str, version: str = "") -> str:
        """Return what the file says, first for that version of the tables, or else what the catalogue leads to."""
        said = next((one for one in (f"{name}_v{version}", name) if one in self._sql.names()), None)
        return self._sql[said] if said else select(self.kind.table(name))


def select(table: Table) -> str:
    """Read a table as it stands: some ranges of its numbers, or in an order that is always the same."""
    if table.series is None:
        columns = ", ".join(table.columns)
        return f"SELECT {columns} FROM {table.name} ORDER BY {columns}"  # noqa: S608 - the catalogue's
    named = ", ".join(f"t.{name}" for name in table.columns)
    rows = f"json_each(?1) AS r CROSS JOIN {table.name} AS t"
    return f"SELECT {named} FROM {rows} WHERE {_in_range(table.series)}"  # noqa: S608 - as above


def _in_range(series: Series) -> str:
    within = (f"t.{series.within} = r.value ->> 0",) if series.within else ()
    after, upto = len(within), len(within) + 1
    return " AND ".join(
        [*within, f"t.{series.number} > r.value ->> {after}", f"t.{series.number} <= r.value ->> {upto}"]
    )


@dataclass(frozen=True)
class _SqliteMoment:
    """For the cut, a transaction of the driver's own."""

    store: SqliteStore
    cursor: Any
    position: Position
    version: str  # of the tables in the file
    is_cut: bool

    def has_news(self, since: Position) -> bool:
        return {**self.position, _WITNESS: None} != {**since, _WITNESS: None}

    def went_back(self, since: Position) -> bool:
        if any(is_behind(self.position[one.name], since[one.name]) for one in self.store.kind.series):
            return True
        now = self.store.ask_witness(self.cursor, since, self.version)
        return None not in (now, since[_WITNESS]) and now != since[_WITNESS]

    def reading(self, table: Table, since: Position | None, upto: Position, partitions: int) -> Reading | None:
        ranges = rise(_marks(since, table.series), _marks(upto, table.series))
        if self.store.kind.open_rows(table.name):
            candidates = [*map(tuple, since[_OPEN] if since else []), *ranges]
            ranges = subtract(candidates, [*map(tuple, upto[_OPEN])])
        if not ranges:
            return None
        sql = self.store.statement(table.name, self.version)
        shares = split(ranges, partitions, _ROWS_A_PARTITION_MIN)
        return Reading("sqlite", self.store.uri, tuple(Statement(sql, (json.dumps(share),)) for share in shares))

    def whole(self, table: Table) -> pa.Table:
        if table is OWNER:
            named = [dict(zip(table.columns, row, strict=True)) for row in read_owner(self.store.path)]
            return pa.Table.from_pylist(named, fields(table))
        if table.open_of:
            sql, value = self.store.statement(table.open_of, self.version), self.position[_OPEN]
        else:
            sql, value = self.store.statement(table.name, self.version), self.position
        return fetch_table(self.cursor, "sqlite", sql, _bound(sql, value), fields(table))

    def lag(self) -> Mapping[str, float]:
        """Say nothing: whoever writes here does so alone, and what it has not committed has no number yet."""
        return {}

    def count(self, since: Position | None, before: Mapping[str, int]) -> Mapping[str, int]:
        kind = self.store.kind
        begun = since if kind.forgets else None
        new = {one.name: rise(_marks(begun, one), self.position[one.name]) for one in kind.series}
        sql = self.store.statement("counts", self.version)
        counts: dict[str, int] = dict(fetch_rows(self.cursor, sql, _bound(sql, new)))
        known = before if kind.forgets else {}
        return {name: known.get(name, 0) + count for name, count in counts.items()}


def _marks(position: Position | None, series: Series | None) -> list[list[int]]:
    """Return how far a series has come; before everything, nowhere."""
    return position[series.name] if position and series else []


def _bound(sql: str, value: Mapping[str, Any] | Sequence[Any]) -> tuple[str, ...]:
    return (json.dumps(value),) if "?1" in sql else ()
