"""Stores in PostgreSQL, the broker's and the hub's: from one snapshot to the next.

A number is taken before its row is committed, so numbers say nothing of what can be seen: whoever follows the
greatest one loses what commits late. Every row has the id of its transaction instead (`commit_xid`), and a batch is
what the new snapshot sees and the last one did not. The driver exports the new one; workers read all tables in it.
How a table is read follows from the catalogue, or else is in `<kind>_postgres.sql`; both may be in one database.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from claudemesh.kernel.errors import ConfigError
from claudemesh.pipeline.catalogue import BROKER, HUB
from claudemesh.pipeline.shapes import Growth, Kind, Table
from claudemesh.pipeline.sources.connection import Reading, Statement, connected, fetch_row, fetch_rows, fetch_table
from claudemesh.pipeline.sources.model import (
    Identity,
    Moment,
    Position,
    fields,
)
from claudemesh.storage.sqlfile import load_queries

_HERE: Final = files(__package__)
_SQL: Final = load_queries(_HERE / "postgres.sql")
_SNAPSHOT: Final = re.compile(r"\d+:\d+:[\d,]*")
_UNCLEAR: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|[\s#]")
_UNESCAPED: Final = re.compile(r"[@?\[\]]")  # in a name or a password
_BLOCKS_A_PARTITION_MIN: Final = 2_000

# Which tables of the store a table of the lake is read from, by the names of their statements.
_PARTS: Final = {"body": ("posted_body", "sent_body")}
_TABLES: Final = {"posted_body": "topic_message", "sent_body": "message_queue", "write_body": "hub_write"}

_SCHEMAS: Final = {BROKER.name: "mesh", HUB.name: "hub"}


def open_postgres(uri: str) -> "list[PostgresStore]":
    """Return the stores of a database that its role may read; it may have a broker's, a hub's, or both."""
    shown = show(uri)
    with connected("postgresql", uri) as cursor:
        there = set(fetch_rows(cursor, _SQL["tables"]))
    kinds = [kind for kind in (BROKER, HUB) if (_SCHEMAS[kind.name], kind.marker) in there]
    if not kinds:
        raise ConfigError(f"{shown} has no store of claudemesh, or none that this role may read")
    return [PostgresStore(uri, kind) for kind in kinds]


class PostgresStore:
    def __init__(self, uri: str, kind: Kind) -> None:
        self.kind = kind
        self.shown = show(uri)
        self.uri = uri
        self.schema = _SCHEMAS[kind.name]
        self.sql = load_queries(_HERE / f"{kind.name}_postgres.sql")

    def identify(self) -> Identity:
        with connected("postgresql", self.uri) as cursor:
            name, life = fetch_row(cursor, self.sql["identity"])
        if name is None:
            raise ConfigError(f"{self.shown} does not say which store it is: it was not made by this version")
        return Identity(f"{self.kind.name}-{name}", life)

    def moments(self) -> Iterator[Moment]:
        with connected("postgresql", self.uri) as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            exported, snapshot = fetch_row(cursor, _SQL["moment"])
            yield _PostgresMoment(self, cursor, exported, {"snapshot": snapshot})
            cursor.execute("ROLLBACK")

    def place(self, part: str) -> str:
        """Return the table that a part of the lake's is read from."""
        return f"{self.schema}.{_TABLES.get(part, part)}"

    def select(self, part: str) -> str:
        """Return what the file says, or else a table as it stands."""
        if part in self.sql.names():
            return self.sql[part]
        table = self.kind.table(part)
        columns = ", ".join(f"t.{column}" for column in table.columns)
        asked = f"SELECT {columns} FROM {self.place(part)} AS t"  # noqa: S608 - the catalogue's
        return f"{asked} ORDER BY {columns}" if table.growth is Growth.WHOLE else f"{asked} WHERE true"


@dataclass(frozen=True)
class _PostgresMoment:
    store: PostgresStore
    cursor: Any
    exported: str
    position: Position
    is_cut: bool = True

    def has_news(self, since: Position) -> bool:
        new = _new_rows(since, self.position)
        tables = (self.store.place(table.name) for table in self.store.kind.wanted(Growth.APPEND, bodies=False))
        asked = " OR ".join(f"EXISTS (SELECT 1 FROM {name} AS t WHERE {new})" for name in tables)  # noqa: S608 - below
        return bool(fetch_row(self.cursor, f"SELECT ({asked})::int")[0])

    def went_back(self, since: Position) -> bool:  # noqa: ARG002 - asked of every source
        """Say no: on another past of the server it is another life of the store."""
        return False

    def reading(self, table: Table, since: Position | None, upto: Position, partitions: int) -> Reading | None:
        statements = [
            statement
            for part in _PARTS.get(table.name, (table.name,))
            for statement in (self._all(part, partitions) if since is None else self._new(part, since, upto))
        ]
        return Reading("postgresql", self.store.uri, tuple(statements), self._before) if statements else None

    def _all(self, part: str, partitions: int) -> Iterator[Statement]:
        """Read all that the moment sees, by blocks: whatever transactions wrote it, and if on another server."""
        blocks = fetch_row(self.cursor, _SQL["blocks"].format(table=self.store.place(part)))[0]
        size = max(_BLOCKS_A_PARTITION_MIN, -(-blocks // partitions))
        for start in range(0, blocks, size):
            bound = f" AND t.ctid < '({start + size},0)'::tid" if start + size < blocks else ""
            yield Statement(f"{self.store.select(part)} AND t.ctid >= '({start},0)'::tid{bound}")

    def _new(self, part: str, since: Position, upto: Position) -> Iterator[Statement]:
        """Read the few that are new, by their index."""
        new = _new_rows(since, upto)
        asked = f"SELECT EXISTS (SELECT 1 FROM {self.store.place(part)} AS t WHERE {new})::int"  # noqa: S608 - below
        if fetch_row(self.cursor, asked)[0]:
            yield Statement(f"{self.store.select(part)} AND {new}")

    @property
    def _before(self) -> tuple[str, ...]:
        return (
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            f"SET TRANSACTION SNAPSHOT '{self.exported}'",
        )

    def whole(self, table: Table) -> pa.Table:
        return fetch_table(self.cursor, "postgresql", self.store.select(table.name), (), fields(table))

    def count(self, since: Position | None, before: Mapping[str, int]) -> Mapping[str, int]:  # noqa: ARG002 - it keeps all
        return dict(fetch_rows(self.cursor, self.store.sql["counts"]))

    def lag(self) -> Mapping[str, float]:
        open_, oldest_s = fetch_row(self.cursor, _SQL["lag"])
        lag = {"open_transactions": float(open_)}
        if oldest_s is not None:  # a role without pg_read_all_stats is not told
            lag["oldest_s"] = float(oldest_s)
        return lag


def show(uri: str) -> str:
    """Return where a server is, without who asks; refuse what its library reads otherwise, or would quote."""
    scheme, _, rest = uri.partition("://")
    who, at, _ = rest.partition("/")[0].rpartition("@")  # where the client's library looks for them
    is_unclear = _UNCLEAR.search(uri) or (at and _UNESCAPED.search(who)) or "@" in rest[len(who) + len(at) :]
    try:
        parts = urlsplit(uri)
        asked = dict(parse_qsl(parts.query))
    except ValueError:
        is_unclear, parts, asked = True, urlsplit(""), {}
    if is_unclear:
        raise ConfigError("a store is no URL that a PostgreSQL is reached by: is its password escaped?")
    places = "&".join(f"{name}={asked[name]}" for name in ("host", "port") if name in asked)
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{places and '?' + places}"


def _new_rows(since: Position, upto: Position) -> str:
    """Return the condition, with snapshots that were looked at; other words in statements are the catalogue's."""
    for position in (since, upto):
        if not _SNAPSHOT.fullmatch(position["snapshot"]):
            raise ConfigError(f"{position['snapshot']!r} is not a snapshot: was the lake edited?")
    return _SQL["new_rows"].format(since=since["snapshot"], upto=upto["snapshot"])
