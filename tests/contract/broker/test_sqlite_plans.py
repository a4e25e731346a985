"""Queries that run with every message look things up and never go through a table, however much is stored."""

import re
from collections.abc import Iterator
from importlib.resources import files

import apsw
import pytest

from claudemesh.storage.sqlfile import load_queries
from tests.contract.broker.backends import open_house

FOLDER = files("claudemesh.broker.stores.sqlite")

# What is asked now and then, of the whole store or of one member's whole history.
MAY_SCAN = {
    "deliveries.all_open",  # one row for each block of sixty that wait
    "directory.end_subscriptions",  # once in a member's life
    "directory.members",
    "presence.delivering",  # once, at the start
    "presence.of_key",  # puts the few of a key or a member into their order
    "presence.of_member",
    "presence.standing",
    "presence.void_tokens",  # all that stand, once after a backup was restored
    "receipts.progress",  # groups the few rows of the ids it was given
    "topics.topics",
    "upkeep.gaps",
    "upkeep.ids_without_rows",
    "upkeep.jump",  # all meshes, once after a backup was restored
    "upkeep.jump_presence",
    "upkeep.meshes",
    "upkeep.note_jumps",
    "upkeep.old_events",  # a page, from the head of the journal
    "upkeep.open_without_bits",
    "upkeep.rows_without_ids",
    "work.queues",
    "work.queues_with_expired",  # leases that are held
}


def queries() -> Iterator[tuple[str, str]]:
    for file in sorted(FOLDER.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            loaded = load_queries(file)
            yield from ((f"{file.name.removesuffix('.sql')}.{name}", loaded[name]) for name in loaded.names())


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    house = open_house("sqlite-grouped", tmp_path_factory.mktemp("plans"))
    house.stores.database.close()
    opened = apsw.Connection(str(house.folder / "broker.db"))
    yield opened
    opened.close()


def scans(connection: apsw.Connection, query: str) -> list[str]:
    values = [None] * max((int(number) for number in re.findall(r"\?(\d+)", query)), default=0)
    steps = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()]
    return [
        step for step in steps if re.search(r"SCAN (?!.*VIRTUAL TABLE|CONSTANT ROW|\(subquery)|TEMP B-TREE", step)
    ]


@pytest.mark.parametrize("name", [name for name, _ in queries() if name not in MAY_SCAN])
def test_a_query_of_every_message_neither_scans_nor_sorts(connection: apsw.Connection, name: str) -> None:
    assert scans(connection, dict(queries())[name]) == []


def test_a_scan_is_noticed(connection: apsw.Connection) -> None:
    assert scans(connection, "SELECT * FROM delivery_queue WHERE recipient_id = ?1")
    assert scans(connection, "SELECT * FROM message_history WHERE mesh_id = ?1 ORDER BY accepted_at")


def test_messages_are_found_by_what_is_wanted_and_not_by_going_through_their_mesh(
    connection: apsw.Connection,
) -> None:
    query = dict(queries())["deliveries.messages"]
    steps = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {query}", (1, "[1]")).fetchall()]
    assert steps[0].startswith("SCAN wanted")
    assert "mesh_id=? AND history_id=?" in steps[1]
