"""Statements that run with every write look things up and never go through a table, however much is stored."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import apsw
import pytest

from claudemesh.hub.stores.sqlite import SqliteStores
from claudemesh.storage.sqlfile import load_queries
from tests.contract.hub.backends import world_of
from tests.doubles import ManualClock

QUERIES = load_queries(files("claudemesh.hub.stores.sqlite") / "hub.sql")

# The few counts, and the end of the journal as far as its limit.
MAY_SCAN = {"newest", "tallies"}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path: Path = tmp_path_factory.mktemp("plans") / "hub.db"
    SqliteStores.open(path, world_of(ManualClock())).database.close()
    opened = apsw.Connection(str(path))
    yield opened
    opened.close()


def scans(connection: apsw.Connection, query: str) -> list[str]:
    values = [None] * max((int(number) for number in re.findall(r"\?(\d+)", query)), default=0)
    steps = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()]
    return [step for step in steps if re.search(r"SCAN (?!CONSTANT ROW)|TEMP B-TREE", step)]


@pytest.mark.parametrize("name", [name for name in QUERIES.names() if name not in MAY_SCAN])
def test_a_statement_of_every_write_neither_scans_nor_sorts(connection: apsw.Connection, name: str) -> None:
    assert scans(connection, QUERIES[name]) == []


def test_a_scan_is_noticed(connection: apsw.Connection) -> None:
    assert scans(connection, "SELECT * FROM entity WHERE revision = ?1")
    assert scans(connection, "SELECT * FROM hub_write WHERE seq > ?1 ORDER BY at")


def test_the_last_writes_are_found_from_the_journals_end(connection: apsw.Connection) -> None:
    steps = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES['newest']}", (1,)).fetchall()]
    assert not any("TEMP B-TREE" in step for step in steps)
