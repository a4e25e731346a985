"""The audit log is what anybody can compute again, and what was changed afterwards shows."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from claudemesh.kernel.clock import DAY_MS
from claudemesh.pipeline.jobs.audit import compare_heads, entries, heads
from claudemesh.pipeline.jobs.params import Params
from tests.spark.rows import BOB, NOW, Rows, accept, bury, frames, together, town

PARAMS = Params(NOW)


def logged() -> Rows:
    """Two meshes with the same numbers, over two days; ids that try to look like two fields."""
    rows = town(1)
    for number, id_ in enumerate(["a", "1:a,", "ä,2:", "d", "e", "f"]):
        accept(rows, ("dm", "topic", "queue")[number % 3], id_, at=NOW + number * DAY_MS // 4)
    other = town(2)
    accept(other, "dm", "a")
    return together(rows, other)


def by_hand(rows: Rows) -> dict[tuple[str, str], tuple[int, str]]:
    """Compute the heads in plain Python, from the words of the module's docstring alone."""
    fingerprints = {row["broker_message_id"]: row["request_fingerprint"] for row in rows["client_message_dedupe"]}
    chains: dict[tuple[str, str], tuple[int, str]] = {}
    for row in sorted(rows["message_history"], key=lambda row: row["history_id"]):
        mesh = f"mesh-{row['mesh_id']}"
        day = datetime.fromtimestamp(row["accepted_at"] / 1000, UTC).date().isoformat()
        fields = [
            mesh,
            str(row["history_id"]),
            row["broker_message_id"],
            f"alice-{row['mesh_id']}",
            row["client_message_id"],
            row["kind"],
            str(row["accepted_at"]),
            fingerprints[row["broker_message_id"]].hex(),
        ]
        leaf = hashlib.sha256("".join(f"{len(field.encode())}:{field}," for field in fields).encode()).hexdigest()
        messages, above = chains.get((mesh, day), (0, ""))
        chains[mesh, day] = messages + 1, hashlib.sha256((above + leaf).encode()).hexdigest()
    return chains


@pytest.mark.req("S2")
def test_the_heads_are_those_of_an_independent_computation(spark: SparkSession) -> None:
    rows = logged()
    tables = frames(spark, rows)
    found = {(one.mesh, one.day): (one.messages, one.head) for one in heads(tables, PARAMS).collect()}
    assert found == by_hand(rows)
    assert found.keys() == {("mesh-1", "2026-01-01"), ("mesh-1", "2026-01-02"), ("mesh-2", "2026-01-01")}
    assert len({one.leaf for one in entries(tables, PARAMS).collect()}) == len(rows["message_history"])


def _change(rows: Rows) -> None:
    rows["client_message_dedupe"][1]["request_fingerprint"] = b"another body"


def _remove(rows: Rows) -> None:
    del rows["message_history"][1]


def _insert(rows: Rows) -> None:
    rows["message_history"].append({**rows["message_history"][0], "history_id": 0, "broker_message_id": "new"})


def _reorder(rows: Rows) -> None:
    one, other = rows["message_history"][1:3]
    one["history_id"], other["history_id"] = other["history_id"], one["history_id"]


def _remove_the_day(rows: Rows) -> None:
    rows["message_history"] = [row for row in rows["message_history"] if row["accepted_at"] >= NOW + DAY_MS]


def _grow(rows: Rows) -> None:
    accept(rows, "dm", "new", at=NOW + DAY_MS - 1, sender=BOB)


def _prune(rows: Rows) -> None:
    bury(rows, 5)  # of mesh 1 alone: the message stays in the lake


def _prune_before_the_copy(rows: Rows) -> None:
    bury(rows, 5)
    rows["message_history"] = [row for row in rows["message_history"] if row["history_id"] != 5]


@pytest.mark.req("S2")
@pytest.mark.parametrize(
    ("tamper", "problems"),
    [
        (_change, {("mesh-1", "2026-01-01", "changed")}),
        (_remove, {("mesh-1", "2026-01-01", "removed")}),
        (_insert, {("mesh-1", "2026-01-01", "inserted")}),
        (_reorder, {("mesh-1", "2026-01-01", "changed")}),
        (_remove_the_day, {("mesh-1", "2026-01-01", "removed"), ("mesh-2", "2026-01-01", "removed")}),
        (_grow, set()),
        (_prune, set()),
        (_prune_before_the_copy, set()),
    ],
)
def test_a_log_that_was_changed_differs_from_its_stored_heads_and_one_that_grew_does_not(
    spark: SparkSession, tamper: Callable[[Rows], None], problems: set[tuple[str, str, str]]
) -> None:
    rows = logged()
    stored = heads(frames(spark, rows), PARAMS).toArrow()
    tamper(rows)
    found = compare_heads(spark.createDataFrame(stored), frames(spark, rows), PARAMS).collect()
    assert {(one.mesh, one.day, one.problem) for one in found} == problems
