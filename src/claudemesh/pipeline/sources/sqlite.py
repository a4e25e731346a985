"""Stores in SQLite files: the embedded broker's, and the outboxes and inboxes of daemons.

One writer numbers the rows, so numbers are in the order of commits, and a range of them that was there once is
never added to. Workers read such ranges with connections of their own; what has to agree is read in one transaction
of the driver's. A file is only ever opened for reading: a second writer's checkpoint could harm it.

Never in a process that has the same file open through another library: whoever closes a file first ends the locks
of both.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from claudemesh.kernel.errors import ConfigError
from claudemesh.pipeline.catalogue import BROKER, INBOX, OUTBOX, Kind, Table
from claudemesh.pipeline.sources.connection import connected, fetch_row, fetch_rows, fetch_table
from claudemesh.pipeline.sources.model import (
    BROKER_COUNTED,
    Counted,
    Identity,
    Moment,
    Position,
    Reading,
    Statement,
    fields,
)
from claudemesh.pipeline.sources.owner import read_owner
from claudemesh.pipeline.sources.ranges import split, subtract, to_ranges, widen
from claudemesh.storage.sqlfile import Queries, load_queries

_HERE: Final = files(__package__)
_ROWS_A_PARTITION_MIN: Final = 100_000
_OPEN_RANGES_MAX: Final = 1_000


class SqliteStore:
    """What the three have in common: a file, its statements, and how ranges of it are read."""

    kind: Kind
    sql: Queries

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.uri = f"file:{quote(str(self.path))}?mode=ro"

    @property
    def shown(self) -> str:
        return f"sqlite:///{self.path}"

    def identify(self) -> Identity:
        with connected("sqlite", self.uri) as cursor:
            name, *life = fetch_row(cursor, self.sql["identity"])
        if name is None:
            raise ConfigError(f"{self.path} does not say which store it is: it was not made by this version")
        return Identity(f"{self.kind.name}-{name}", "/".join(life))

    def read_ranges(self, table: Table, ranges: Sequence[tuple[int, ...]], partitions: int) -> Reading | None:
        if not ranges:
            return None
        shares = split(ranges, partitions, _ROWS_A_PARTITION_MIN)
        statements = tuple(Statement(self.sql[table.name], (json.dumps(share),)) for share in shares)
        return Reading("sqlite", self.uri, statements)


@dataclass(frozen=True)
class _Moment:
    """A transaction of the driver's own, for what has to agree."""

    store: SqliteStore
    cursor: Any
    position: Position
    is_cut: bool = True

    def whole(self, table: Table) -> pa.Table:
        if table.name == "owner":
            named = [dict(zip(table.columns, row, strict=True)) for row in read_owner(self.store.path)]
            return pa.Table.from_pylist(named, fields(table))
        return fetch_table(self.cursor, "sqlite", self.store.sql[table.name], self._bound(table), fields(table))

    def _bound(self, table: Table) -> tuple[str, ...]:  # noqa: ARG002 - for those that have some
        return ()

    def _rows(self, name: str, *values: str) -> list[tuple[Any, ...]]:
        return fetch_rows(self.cursor, self.store.sql[name], values)


# --- the broker's ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BrokerMoment(_Moment):
    """History up to its marks; the journals up to the moment.

    Rows of history are read before the moment: what is deleted meanwhile has its tombstone in it.
    """

    def has_news(self, since: Position) -> bool:
        return self.position != since

    def went_back(self, since: Position) -> bool:
        marks = dict(self.position["history"])
        is_behind = any(marks.get(mesh_id, 0) < upto for mesh_id, upto in since["history"])
        return is_behind or any(self.position[name] < since[name] for name in ("delivery_event", "tombstone"))

    def reading(self, table: Table, since: Position | None, upto: Position, partitions: int) -> Reading | None:
        if table.name in upto:  # a journal
            after = since[table.name] if since else 0
            ranges: list[tuple[int, ...]] = [(after, upto[table.name])] if upto[table.name] > after else []
        else:
            marks = dict(since["history"]) if since else {}
            ranges = [(mesh, marks.get(mesh, 0), to) for mesh, to in upto["history"] if to > marks.get(mesh, 0)]
        return self.store.read_ranges(table, ranges, partitions)

    def _bound(self, table: Table) -> tuple[str, ...]:
        return (self._marks,) if table.name in ("history_counter", "history_jump") else ()

    @cached_property
    def _marks(self) -> str:
        return json.dumps(self.position["history"])

    def count(self, since: Position | None, before: Mapping[str, int]) -> Counted:  # noqa: ARG002 - it keeps all
        counts = dict(zip(BROKER_COUNTED, self._rows("counts", self._marks)[0], strict=True))
        states = {f"delivery.{state}": count for state, count in self._rows("states", self._marks)}
        counts["delivery_queue"] = sum(states.values())
        return Counted({**counts, **states})


class SqliteBroker(SqliteStore):
    kind = BROKER
    sql = load_queries(_HERE / "broker_sqlite.sql")

    def moments(self) -> Iterator[Moment]:
        with connected("sqlite", self.uri) as cursor:
            marks = sorted(json.loads(fetch_row(cursor, self.sql["marks"])[0]))
            yield _BrokerMoment(self, cursor, self._position(cursor, marks), is_cut=False)
            cursor.execute("BEGIN")
            yield _BrokerMoment(self, cursor, self._position(cursor, marks))
            cursor.execute("ROLLBACK")

    def _position(self, cursor: Any, marks: list[list[int]]) -> Position:  # noqa: ANN401 - ADBC's
        events, tombstones = fetch_row(cursor, self.sql["journals"])
        return {"history": marks, "delivery_event": events, "tombstone": tombstones}


# --- a daemon's ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OutboxMoment(_Moment):
    """Rows that will never change again, up to the last; and the ranges of those that still may."""

    def has_news(self, since: Position) -> bool:
        return self.position != since

    def went_back(self, since: Position) -> bool:
        return bool(self.position["upto"] < since["upto"])

    def reading(self, table: Table, since: Position | None, upto: Position, partitions: int) -> Reading | None:
        begun: Position = since or {"upto": 0, "open": []}
        candidates = [*map(tuple, begun["open"])]
        if upto["upto"] > begun["upto"]:
            candidates.append((begun["upto"], upto["upto"]))
        settled = subtract(candidates, [*map(tuple, upto["open"])])
        return self.store.read_ranges(table, settled, partitions)

    def whole(self, table: Table) -> pa.Table:
        if table.name != "outbox_open":
            return super().whole(table)
        values = (json.dumps(self.position["open"]),)
        return fetch_table(self.cursor, "sqlite", self.store.sql["outbox"], values, fields(table))

    def count(self, since: Position | None, before: Mapping[str, int]) -> Counted:  # noqa: ARG002 - it keeps all
        states = {f"outbox.{status}": count for status, count in self._rows("counts")}
        return Counted({"outbox": sum(states.values()), **states})


class SqliteOutbox(SqliteStore):
    kind = OUTBOX
    sql = load_queries(_HERE / "outbox_sqlite.sql")

    def moments(self) -> Iterator[Moment]:
        with connected("sqlite", self.uri) as cursor:
            cursor.execute("BEGIN")
            upto = fetch_row(cursor, self.sql["last"])[0]
            open_ = to_ranges(seq for (seq,) in fetch_rows(cursor, self.sql["open"]))
            still = [list(one) for one in widen(open_, _OPEN_RANGES_MAX)]
            yield _OutboxMoment(self, cursor, {"upto": upto, "open": still})
            cursor.execute("ROLLBACK")


@dataclass(frozen=True)
class _InboxMoment(_Moment):
    """What came, up to the last. It is swept after a time, and the lake keeps it: an archive."""

    def has_news(self, since: Position) -> bool:
        return self.position != since

    def went_back(self, since: Position) -> bool:
        return bool(self.position["upto"] < since["upto"])

    def reading(self, table: Table, since: Position | None, upto: Position, partitions: int) -> Reading | None:
        after = since["upto"] if since else 0
        return self.store.read_ranges(table, [(after, upto["upto"])] if upto["upto"] > after else [], partitions)

    def count(self, since: Position | None, before: Mapping[str, int]) -> Counted:
        after = str(since["upto"] if since else 0)
        came = self._rows("count", after, str(self.position["upto"]))[0][0]
        return Counted({"inbox": before.get("inbox", 0) + came})


class SqliteInbox(SqliteStore):
    kind = INBOX
    sql = load_queries(_HERE / "inbox_sqlite.sql")

    def moments(self) -> Iterator[Moment]:
        with connected("sqlite", self.uri) as cursor:
            cursor.execute("BEGIN")
            yield _InboxMoment(self, cursor, {"upto": fetch_row(cursor, self.sql["last"])[0]})
            cursor.execute("ROLLBACK")
