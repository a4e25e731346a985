"""What the store still has, and what became of its deliveries: by tombstones and by the journal alone."""

import pytest
from pyspark.sql import SparkSession

from claudemesh.kernel.clock import DAY_MS
from claudemesh.pipeline.catalogue import BROKER, HUB, LEDGER, RELAY
from claudemesh.pipeline.jobs import latency, limits, retention, traffic
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import deliveries, live
from claudemesh.pipeline.registry import JOBS
from claudemesh.pipeline.shapes import Growth
from tests.spark.rows import (
    ALICE,
    BOB,
    CAROL,
    HOUR_MS,
    NOW,
    Rows,
    accept,
    bury,
    forget,
    frames,
    happen,
    lease,
    together,
    town,
)
from tests.unit.pipeline.ledgers import clean_ledger
from tests.unit.pipeline.relays import clean_relays

# The journal of a delivery, in its order, and the state that it comes to.
JOURNALS = {
    "": "accepted",
    "delivered": "delivered",
    "delivered read": "read",
    "delivered acted": "acted",
    "delivered acted read": "acted",
    "read": "accepted",  # a mark from another daemon of the member does not close it
    "read delivered": "read",
    "delivered returned": "accepted",
    "delivered returned delivered": "delivered",
    "dead": "dead_letter",
    "delivered dead": "dead_letter",
    "delivered returned dead": "dead_letter",
    "dead delivered": "delivered",
    "dead returned": "dead_letter",
}


@pytest.mark.req("S2")
def test_the_state_of_a_delivery_is_the_fold_of_its_journal(spark: SparkSession) -> None:
    rows = town()
    expected = {}
    for journal, state in JOURNALS.items():
        number = accept(rows, "dm", journal or "none")
        for at, what in enumerate(journal.split()):
            happen(rows, number, what, at=NOW + at)
        places = [at for at, what in enumerate(journal.split()) if what == "delivered"]
        expected[number] = (state, NOW + places[-1] if places else None)
    rows["delivery_event"].reverse()  # whatever order the files have
    found = deliveries(frames(spark, rows)).collect()
    assert {one.history_id: (one.state, one.delivered_at) for one in found} == expected


@pytest.mark.req("S2")
def test_what_has_a_tombstone_is_not_live_in_any_table_and_an_id_outlives_its_message(spark: SparkSession) -> None:
    rows = together(_busy(1), _busy(2))
    bury({**rows, "message_history": _busy(1)["message_history"], "tombstone": rows["tombstone"]}, 1)
    forget(rows, "2")
    tables = frames(spark, rows)
    kept = {}
    for table in BROKER.wanted(Growth.APPEND, bodies=False):
        if "history_id" in table.columns and table.name != "tombstone":
            kept[table.name] = {(one.mesh_id, one.history_id) for one in live(tables, table.name).collect()}
    assert all((1, 1) not in numbers for numbers in kept.values())
    assert kept["message_history"] == {(1, 2), (1, 3), (2, 1), (2, 2), (2, 3)}
    ids = {(one.mesh_id, one.client_message_id) for one in live(tables, "client_message_dedupe").collect()}
    assert (1, "1") in ids
    assert (1, "2") not in ids


@pytest.mark.req("S2")
def test_the_retention_plan_has_what_is_older_than_allowed_and_says_what_somebody_still_waits_for(
    spark: SparkSession,
) -> None:
    rows = town()
    old, new = NOW - 10 * DAY_MS - 1, NOW - 10 * DAY_MS
    waits = accept(rows, "topic", "waits", at=old, to=[BOB, CAROL])
    happen(rows, waits, "delivered", BOB)
    closed = accept(rows, "dm", "closed", at=old)
    happen(rows, closed, "delivered")
    leased = accept(rows, "queue", "leased", at=old)
    happen(rows, leased, "delivered", 0)
    acked = accept(rows, "queue", "acked", at=old)
    happen(rows, acked, "delivered", 0)
    happen(rows, acked, "acted", 0)
    accept(rows, "dm", "young", at=new)
    bury(rows, accept(rows, "dm", "gone", at=old))
    plan = retention.plan(frames(spark, rows), Params(NOW, retention_days=10)).collect()
    assert {one.client_message_id: one.is_open for one in plan} == {
        "waits": True,
        "closed": False,
        "leased": True,
        "acked": False,
    }
    assert {(one.mesh, one.reason) for one in plan} == {("mesh-1", "older than 10 days")}


@pytest.mark.req("S2")
def test_a_senders_windows_are_held_against_the_budget_of_its_mesh(spark: SparkSession) -> None:
    rows = town()
    rows["mesh"][0]["sends_per_window"] = 5
    for window, sends in enumerate((5, 4, 3)):
        for number in range(sends):
            accept(rows, "dm", f"{window}-{number}", at=NOW + window * 60_000 + number)
    accept(rows, "dm", "of bob", sender=BOB)
    accept(rows, "dm", "of the next day", at=NOW + DAY_MS)
    other = town(2)
    accept(other, "dm", "of another mesh")
    tables = frames(spark, together(rows, other))
    found = limits.senders(tables, Params(NOW, sends_per_window=100)).collect()
    assert {
        (
            one.mesh,
            one.day,
            one.sender,
            one.sends,
            one.windows,
            one.peak,
            one.budget,
            one.windows_near,
            one.windows_full,
        )
        for one in found
        if one.mesh == "mesh-1"
    } == {
        ("mesh-1", "2026-01-01", "alice-1", 12, 3, 5, 5, 2, 1),
        ("mesh-1", "2026-01-01", "bob-1", 1, 1, 1, 5, 0, 0),
        ("mesh-1", "2026-01-02", "alice-1", 1, 1, 1, 5, 0, 0),
    }
    assert {(one.budget, one.share) for one in found if one.mesh == "mesh-2"} == {(100, 0.01)}
    later = limits.senders(tables, Params(NOW, since_ms=NOW + DAY_MS)).collect()
    assert [one.sends for one in later] == [1]


@pytest.mark.req("S2")
def test_latency_is_measured_to_the_delivery_that_held_and_dead_letters_are_named_with_their_reason(
    spark: SparkSession,
) -> None:
    rows = town()
    for took in range(1, 101):
        happen(rows, accept(rows, "dm", str(took)), "delivered", at=NOW + took)
    again = accept(rows, "dm", "again", at=NOW + DAY_MS)
    for what, took in (("delivered", 1), ("returned", 2), ("delivered", 500)):
        happen(rows, again, what, at=NOW + DAY_MS + took)
    lost = accept(rows, "dm", "lost")
    happen(rows, lost, "dead", at=NOW + 1, reason="expired")
    happen(rows, lost, "dead", at=NOW + 2, reason="refused")
    accept(rows, "dm", "waits")
    happen(rows, accept(rows, "queue", "leased"), "delivered", 0)
    tables = frames(spark, rows)
    found = {
        (one.mesh, one.day): (one.deliveries, one.p50_ms, round(one.p90_ms, 3), one.max_ms)
        for one in latency.latency(tables, Params(NOW)).collect()
    }
    assert found == {
        ("mesh-1", "2026-01-01"): (100, 50.5, 90.1, 100),
        ("mesh-1", "2026-01-02"): (1, 500.0, 500.0, 500),
        ("mesh-1", None): (101, 51.0, 91.0, 500),
        (None, None): (101, 51.0, 91.0, 500),
    }
    (dead,) = latency.dead_letters(tables, Params(NOW)).collect()
    assert (dead.client_message_id, dead.sender, dead.recipient, dead.reason) == (
        "lost",
        "alice-1",
        "bob-1",
        "refused",
    )
    (reason,) = latency.dead_reasons(tables, Params(NOW)).collect()
    assert (reason.mesh, reason.reason, reason.dead_letters) == ("mesh-1", "refused", 1)


@pytest.mark.req("S2")
def test_traffic_counts_what_the_store_has_by_kind_and_hour_and_by_state(spark: SparkSession) -> None:
    rows = _busy(1)
    accept(rows, "dm", "later", at=NOW + HOUR_MS + 1)
    happen(rows, 2, "delivered", CAROL)
    bury(rows, 1)
    tables = frames(spark, together(rows, _busy(2)))
    sent = traffic.messages(tables, Params(NOW)).collect()
    assert {(one.mesh, one.kind, one.hour_at, one.messages) for one in sent} == {
        ("mesh-1", "topic", NOW, 1),
        ("mesh-1", "queue", NOW, 1),
        ("mesh-1", "dm", NOW + HOUR_MS, 1),
        ("mesh-2", "dm", NOW, 1),
        ("mesh-2", "topic", NOW, 1),
        ("mesh-2", "queue", NOW, 1),
    }
    by_state = traffic.deliveries(tables, Params(NOW)).collect()
    assert {(one.mesh, one.state, one.deliveries) for one in by_state} == {
        ("mesh-1", "delivered", 1),
        ("mesh-1", "accepted", 3),
        ("mesh-2", "accepted", 4),
    }


@pytest.mark.req("S2", "S5")
def test_every_job_plans_its_outputs_without_python_in_the_executors(spark: SparkSession) -> None:
    rows = _busy(1)  # what reads an empty table is planned away
    bury(rows, 3)
    forget(rows, "2")
    rows["history_jump"] = [{"mesh_id": 1, "after_history_id": 3, "skipped": 9, "epoch": 1}]
    ledger = frames(spark, clean_ledger(1, "run").tables, LEDGER)
    hub, (relay, _) = clean_relays(1, "hub")
    of_kind = {BROKER.name: frames(spark, rows), LEDGER.name: ledger}
    of_kind |= {RELAY.name: frames(spark, relay.tables, RELAY), HUB.name: frames(spark, hub.tables, HUB)}
    for job in JOBS.values():
        if job.kind in of_kind:
            for name, output in job.outputs.items():
                frame = output(of_kind[job.kind], Params(NOW))
                assert set(job.partition_by.get(name, ())) <= set(frame.columns)
                assert "Python" not in frame._jdf.queryExecution().executedPlan().toString()


def _busy(mesh_id: int) -> Rows:
    rows = town(mesh_id)
    happen(rows, accept(rows, "dm", "1", sender=ALICE), "read")
    accept(rows, "topic", "2", to=[BOB, CAROL], mentions=["bob"])
    accept(rows, "queue", "3")
    for what in ("joined", "offline", "online", "left"):
        lease(rows, what, f"lease of {mesh_id}")
    return rows
