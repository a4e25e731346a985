"""The orphan check on Spark names the holes that `broker check` names, and no others."""

from collections.abc import Mapping

import apsw
import pytest
from pyspark.sql import SparkSession

from claudemesh.pipeline.catalogue import BROKER
from claudemesh.pipeline.jobs.orphans import orphans
from claudemesh.pipeline.jobs.params import Params
from tests.contract.broker.holes import HOLES
from tests.spark.rows import BOB, CAROL, NOW, Rows, accept, bury, empty, forget, frames, together, town

Found = dict[str, set[tuple[str | None, str | None, tuple[str, ...]]]]  # of a mesh: id, sender, what is missing

JUMP = 1_000_000
ONLY_IN_THE_STORE = "history_available"  # a mark of the store's, for which the lake has tombstones
OF_THE_STORES = [hole for hole in HOLES if ONLY_IN_THE_STORE not in hole]

# What `broker check` on PostgreSQL says beside the one that a hole is there for. The gap that a deleted history row
# leaves is one, and what else was written for it leads to nothing.
BESIDE: Mapping[str, set[tuple[str | None, str]]] = {
    "DELETE FROM message_history WHERE history_id = 1": {(None, "message_history"), (None, "history_id")},
    "UPDATE client_message_dedupe SET broker_message_id = 'x' WHERE client_message_id = '1'": {
        ("1", "client_message_dedupe")
    },
}

# Holes that the contract's list does not have: of several rows at once, of rows for somebody else, of tombstones.
MORE: Mapping[str, set[tuple[str | None, str | None, tuple[str, ...]]]] = {
    "DELETE FROM delivery_queue WHERE history_id = 3; DELETE FROM queue_lease; DELETE FROM queue": {
        ("3", "alice", ("delivery_queue", "queue_lease", "queue"))
    },
    "UPDATE delivery_queue SET recipient_id = 1 WHERE history_id = 1": {("1", "alice", ("delivery_queue",))},
    "UPDATE queue_lease SET queue_id = 2": {("3", "alice", ("queue_lease",))},
    "UPDATE client_message_dedupe SET sender_id = 2 WHERE client_message_id = '1'": {
        ("1", "alice", ("client_message_dedupe",)),
        ("1", "bob", ("message_history",)),
    },
    "DELETE FROM client_message_dedupe WHERE client_message_id = '3'; DELETE FROM queue_lease": {
        ("3", "alice", ("client_message_dedupe",))
    },
    "DELETE FROM message_queue WHERE history_id = 3": {
        ("3", "alice", ("message",)),
        (None, None, ("message_queue",)),
    },
    "INSERT INTO mention_index VALUES (1, 99, 'bob'), (1, 99, 'carol')": {(None, None, ("message_history",))},
    "INSERT INTO topic_message (mesh_id, history_id, topic_id) VALUES (1, 99, 1)": {
        (None, None, ("message_history",))
    },
    "INSERT INTO delivery_queue (mesh_id, history_id, recipient_id) VALUES (1, 99, 2)": {
        (None, "bob", ("message_history",))
    },
    # The id is pruned, but the tombstone is that of another message: this one still stands.
    "INSERT INTO tombstone (what, mesh_id, history_id, broker_message_id) VALUES ('message', 1, 1000004, 'B-1-1');"
    "UPDATE history_counter SET history_id = history_id + 1": {("1", "alice", ("client_message_dedupe",))},
}


def filled() -> Rows:
    """As the contract fills a store: one message of each kind, and an epoch that began."""
    rows = town()
    accept(rows, "dm", "1")
    accept(rows, "topic", "2", mentions=["bob"])
    accept(rows, "queue", "3")
    rows["history_jump"] = [{"mesh_id": 1, "after_history_id": 3, "skipped": JUMP, "epoch": 1}]
    rows["history_counter"][0]["history_id"] += JUMP
    return rows


def spoiled(statement: str) -> Rows:
    """Make the hole by the contract's own statement."""
    connection = apsw.Connection(":memory:")
    rows = filled()
    for table in BROKER.tables:
        connection.execute(f"CREATE TABLE {table.name} ({', '.join(table.columns)})")
        marks = ", ".join("?" for _ in table.columns)
        values = [tuple(row.get(column) for column in table.columns) for row in rows[table.name]]
        connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", values)  # noqa: S608 - our own names
    connection.execute(statement).fetchall()
    made = empty()
    for table in BROKER.tables:
        found = connection.execute(f"SELECT * FROM {table.name}").fetchall()  # noqa: S608 - as above
        made[table.name] = [dict(zip(table.columns, row, strict=True)) for row in found]
    connection.close()
    return made


def elsewhere(rows: Rows, place: int) -> Rows:
    """Move it to another mesh, with the same history ids."""
    own = {"mesh_id", "sender_id", "recipient_id", "queue_id", "topic_id"}
    return {
        name: [
            {
                column: value + 10 * place
                if value and (column in own or (column == "id" and name in ("mesh", "member", "queue", "topic")))
                else f"{value}/{place}"
                if column in ("uid", "broker_message_id")
                else value
                for column, value in row.items()
            }
            for row in written
        ]
        for name, written in rows.items()
    }


def find(spark: SparkSession, rows: Rows) -> Found:
    found: Found = {row["uid"]: set() for row in rows["mesh"]}
    listed = orphans(frames(spark, rows), Params(NOW)).collect()
    for one in listed:
        sender = one.sender and one.sender.split("-")[0]
        found[one.mesh].add((one.client_message_id, sender, tuple(one.missing)))
    assert sum(map(len, found.values())) <= len(listed)
    return found


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    """Every hole in a mesh of its own, and one mesh without any: found in one run."""
    statements = ["SELECT 1", *OF_THE_STORES, *MORE]
    by_place = find(spark, together(*(elsewhere(spoiled(each), place) for place, each in enumerate(statements))))
    return {each: by_place[f"mesh-1/{place}"] for place, each in enumerate(statements)}


@pytest.mark.req("S2", "B8")
@pytest.mark.parametrize("hole", OF_THE_STORES)
def test_a_hole_that_the_brokers_own_check_finds_is_named_with_the_same_word(found: Found, hole: str) -> None:
    said = {(id_, part) for id_, _, missing in found[hole] for part in missing}
    assert said == {HOLES[hole]} | BESIDE.get(hole, set())


@pytest.mark.req("S2", "B8")
@pytest.mark.parametrize("hole", MORE)
def test_several_holes_and_rows_for_somebody_else_are_named_exactly(found: Found, hole: str) -> None:
    assert found[hole] == MORE[hole]


@pytest.mark.req("S2", "B8")
def test_a_mesh_without_holes_is_named_nowhere_beside_meshes_that_have_the_same_numbers(found: Found) -> None:
    assert found["SELECT 1"] == set()


@pytest.mark.req("S2", "B8")
def test_every_place_of_a_word_is_looked_at(spark: SparkSession) -> None:
    rows = town()
    for number in range(1, 131):
        accept(rows, "dm", str(number), to=[CAROL if number % 3 else BOB])
    holes = {1, 62, 63, 64, 65, 126, 127, 128, 130}
    rows["delivery_queue"] = [row for row in rows["delivery_queue"] if row["history_id"] not in holes]
    assert find(spark, rows)["mesh-1"] == {(str(number), "alice", ("delivery_queue",)) for number in holes}


@pytest.mark.req("S2", "B8")
def test_what_retention_deleted_is_no_orphan_whether_it_was_copied_before_or_not(spark: SparkSession) -> None:
    rows = filled()
    accept(rows, "dm", "4", to=[BOB])
    accept(rows, "topic", "5", to=[BOB, CAROL], mentions=["bob", "carol"], sender=BOB)
    for number in (1, 2, 3):
        bury(rows, number)
    forget(rows, "2")
    # 1 was gone before it was copied, all but its id; 3 went while its tables were copied one after the other.
    for name, gone in (
        ("message_history", {1}),
        ("message_queue", {1}),
        ("delivery_queue", {1, 3}),
        ("queue_lease", {3}),
    ):
        rows[name] = [row for row in rows[name] if row["history_id"] not in gone]
    rows["client_message_dedupe"] = [
        row for row in rows["client_message_dedupe"] if row["client_message_id"] != "2"
    ]
    assert find(spark, rows) == {"mesh-1": set()}
