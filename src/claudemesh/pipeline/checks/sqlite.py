"""The invariants on SQLite, in memory: for fast tests, and for tests that have stores at hand and no Spark."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from claudemesh.pipeline.catalogue import BROKER, HUB, INBOX, OUTBOX, RELAY, kind_of
from claudemesh.pipeline.checks.invariants import (
    INPUTS,
    VIEWS,
    Input,
    Verdict,
    read_violations,
    render_count,
    render_search,
)
from claudemesh.pipeline.history import COLUMNS, History, read_history
from claudemesh.pipeline.shapes import Kind
from claudemesh.pipeline.sources.owner import read_owner
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite.connection import connect

Rows = Iterable[Sequence[object]]  # in the order of the input's columns
Tables = Mapping[str, Rows]

# Where a store's own table is not what the catalogue calls by its name.
_FROM: Final = {
    "broker_client_message_dedupe": "client_message_dedupe WHERE state = 'accepted'",
    "broker_body": "(SELECT mesh_id, history_id, encoding, body FROM topic_message"
    " UNION ALL SELECT mesh_id, history_id, encoding, body FROM message_queue)",
    "inbox_body": "inbox",
}
# Of stores whose rows are looked into: as they are copied.
_SOURCES: Final = {
    kind.name: load_queries(files("claudemesh.pipeline.sources") / f"{kind.name}_sqlite.sql")
    for kind in (RELAY, HUB)
}
_ALL: Final = f"[[0, {2**63 - 1}]]"  # of the numbers


def check_on_sqlite(tables: Mapping[str, Tables], log: History) -> Verdict:
    """Check the tables of some stores, by any names, against what clients were told."""
    with closing(connect(Path(":memory:"), read_only=False)) as connection:
        connection.create_scalar_function("sha2", _sha2, 2, deterministic=True)
        connection.execute(f"CREATE TABLE h ({', '.join(COLUMNS)})")
        connection.executemany(f"INSERT INTO h VALUES ({_marks(len(COLUMNS))})", log.rows)  # noqa: S608 - our own
        for one in INPUTS:
            connection.execute(f"CREATE TABLE {one.name} (store, {', '.join(one.columns)})")
            connection.executemany(
                f"INSERT INTO {one.name} VALUES ({_marks(1 + len(one.columns))})",  # noqa: S608 - as above
                (
                    (name, *row)
                    for name, of_store in tables.items()
                    if kind_of(of_store) is one.kind
                    for row in of_store.get(one.table, ())
                ),
            )
        for name, sql in VIEWS.items():
            connection.execute(f"CREATE TABLE {name} AS {sql}")
        connection.execute("ANALYZE")
        counts = dict(connection.execute(render_count()))
        return Verdict({**counts, "torn_lines": log.torn}, read_violations(connection.execute(render_search())))


def check_stores(broker: Path, outboxes: Sequence[Path], inboxes: Sequence[Path], logs: Sequence[Path]) -> Verdict:
    """Check the files of a mesh at rest, or one that goes on: they are read in the order in which messages pass."""
    paths = [*((OUTBOX, path) for path in outboxes), (BROKER, broker), *((INBOX, path) for path in inboxes)]
    tables = {str(path): _read(kind, path) for kind, path in paths}
    return check_on_sqlite(tables, read_history(logs))


def check_writes(hubs: Sequence[Path], relays: Sequence[Path]) -> Verdict:
    """Check the files of hubs and of the relays before them, as above: relays are read first."""
    paths = [*((RELAY, path) for path in relays), *((HUB, path) for path in hubs)]
    return check_on_sqlite({str(path): _read(kind, path) for kind, path in paths}, History([]))


def _read(kind: Kind, path: Path) -> Tables:
    with closing(connect(path, read_only=True)) as connection:
        connection.execute("BEGIN")
        return {
            one.table: read_owner(path) if one.table == "owner" else list(connection.execute(*_select(one)))
            for one in INPUTS
            if one.kind is kind
        }


def _select(one: Input) -> tuple[str, tuple[str, ...]]:
    columns, source = ", ".join(one.columns), _SOURCES.get(one.kind.name)
    if source is None or one.table not in source.names():
        return f"SELECT {columns} FROM {_FROM.get(one.name, one.table)}", ()  # noqa: S608 - our own
    sql = source[one.table]
    return f"SELECT {columns} FROM ({sql})", (_ALL,) if "?1" in sql else ()  # noqa: S608 - as above


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _sha2(*asked: Any) -> str | None:  # noqa: ANN401 - a value of SQLite's
    return None if asked[0] is None else sha256(asked[0].encode()).hexdigest()
