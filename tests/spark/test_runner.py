"""Jobs are run on a cut, published when they are whole, and held against the store's own counts."""

import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from claudemesh.pipeline import runner
from claudemesh.pipeline.catalogue import BROKER, HUB, INBOX, LEDGER, RELAY
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.lake import Cut, Lake, SourceCut, make_private
from claudemesh.pipeline.outputs import Run, read_output
from claudemesh.pipeline.progress import Progress
from claudemesh.pipeline.registry import JOBS
from claudemesh.pipeline.report.build import build_report
from claudemesh.pipeline.shapes import Growth, Kind
from claudemesh.pipeline.sources.model import fields
from tests.doubles import ManualClock
from tests.spark.rows import ALICE, BOB, HOUR_MS, NOW, Rows, accept, bury, happen, lease, town
from tests.unit.pipeline.archives import document, found
from tests.unit.pipeline.ledgers import clean_ledger
from tests.unit.pipeline.relays import Hub, Relay, clean_relays

DAY_MS = 24 * HOUR_MS


class Scene:
    """A lake that is given rows as if an ingest had copied them."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.lake = Lake(root)

    def cut(
        self,
        number: int,
        rows: Rows,
        inbox: Rows | None = None,
        ledger: Rows | None = None,
        writes: tuple[Hub, Relay] | None = None,
        **counts: int,
    ) -> Run:
        sources = {"broker": self._copy(number, BROKER, rows, {**count(rows), **counts})}
        if inbox is not None:
            sources["inbox"] = self._copy(number, INBOX, inbox, {"inbox": len(inbox["inbox"])})
        if ledger is not None:
            sources["ledger"] = self._copy(number, LEDGER, ledger, count_steps(ledger))
        if writes is not None:
            hub, relay = writes
            sources["relay"] = self._copy(number, RELAY, relay.tables, count_envelopes(relay))
            sources["hub"] = self._copy(number, HUB, hub.tables, count_lines(hub))
        cut = Cut(number=number, at_ms=NOW, sources=sources, read=[*sources])
        progress = Progress(io.StringIO(), ManualClock())
        return Run(self.spark, self.lake, cut, Params(now_ms=NOW, retention_days=30), progress)

    def _copy(self, number: int, kind: Kind, rows: Rows, counts: dict[str, int]) -> SourceCut:
        """Copy the rows, with what people wrote if there is any."""
        bodies = bool(rows.get("body"))
        for table in (*kind.wanted(Growth.APPEND, bodies=bodies), *kind.wanted(Growth.WHOLE, bodies=bodies)):
            place = (
                self.lake.batch(kind.name, number, table.name, 0)
                if table.growth is Growth.APPEND
                else self.lake.whole(kind.name, number, table.name, number)
            )
            make_private(place)
            content = pa.Table.from_pylist(rows.get(table.name, []), fields(table))
            pyarrow.parquet.write_table(content, place / "rows.parquet")
        return SourceCut(
            kind=kind.name,
            store=f"sqlite:///{kind.name}.db",
            life="1",
            generation=number,
            version=kind.version,
            bodies=bodies,
            position={},
            batches=1,
            whole=number,
            rows={name: len(of_table) for name, of_table in rows.items()},
            live={},
            counts=counts,
            lag={},
            digest="",
        )


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path / "lake")


def count(rows: Rows) -> dict[str, int]:
    """Count what a store with these rows would: without what was deleted."""
    gone = {row["history_id"] for row in rows["tombstone"]}
    kept = [row for row in rows["delivery_queue"] if row["history_id"] not in gone]
    last = {(row["history_id"], row["recipient_id"]): row["what"] for row in rows["delivery_event"]}
    states = Counter(last.get((row["history_id"], row["recipient_id"]), "accepted") for row in kept)
    named = {f"delivery.{state}".replace("dead", "dead_letter"): number for state, number in states.items()}
    messages = sum(row["history_id"] not in gone for row in rows["message_history"])
    return {"message_history": messages, **named}


def count_steps(ledger: Rows) -> dict[str, int]:
    """Count what a ledger with these rows would."""
    states = Counter(f"cassette_steps.{row['status']}" for row in ledger["cassette_steps"])
    return dict(states + Counter(f"cassette_receipts.{row['outcome']}" for row in ledger["cassette_receipts"]))


def count_envelopes(relay: Relay) -> dict[str, int]:
    """Count what a relay with these envelopes would."""
    states = Counter(f"outbox.{row['status']}" for row in relay.envelopes)
    return {**states, "outage": len(relay.tables["outage"])}


def count_lines(hub: Hub) -> dict[str, int]:
    """Count what a hub with this journal would."""
    standing = Counter(f"rows.{line['kind']}.{line['status'] or ''}" for line in hub.standing.values())
    return {"hub_write": len(hub.lines), **standing}


def living(run: Run, life: str) -> Run:
    broker = structs.replace(run.cut.sources["broker"], life=life)
    return replace(run, cut=structs.replace(run.cut, sources={"broker": broker}))


def small_town() -> Rows:
    rows = town()
    for i in range(3):
        number = accept(rows, "dm", f"c{i}", at=NOW - 40 * DAY_MS + i * HOUR_MS)
        happen(rows, number, "delivered", at=NOW - 40 * DAY_MS + i * HOUR_MS + 250)
    dead = accept(rows, "topic", "t1", at=NOW - HOUR_MS, to=(ALICE, BOB))
    happen(rows, dead, "dead", at=NOW, reason="expired")
    bury(rows, 1)
    for what, minutes in (("joined", 0), ("offline", 20), ("online", 21), ("offline", 40), ("left", 50)):
        because = "expired" if what == "left" else None
        lease(rows, what, "lease", at=NOW - HOUR_MS + 60_000 * minutes, because=because)
    return rows


@pytest.mark.req("S2", "S4")
def test_what_a_job_gives_is_published_with_its_summary_last(scene: Scene) -> None:
    rows = small_town()
    rows["topic_message"].clear()
    run = scene.cut(1, rows)
    result = runner.run_job(run, JOBS["orphans"])
    assert not result.is_ok
    assert [(item["client_message_id"], item["sender"], item["missing"]) for item in result.items] == [
        ("t1", "alice-1", ["message"])
    ]
    done = json.loads((scene.lake.gold("orphans", 1) / runner.DONE).read_text())
    assert done["violations"] == result.violations == 1
    assert read_output(run, JOBS["orphans"], "broker", "orphans").count_rows() == 1


@pytest.mark.req("S2", "S4")
def test_every_job_runs_to_its_end_and_says_so(scene: Scene) -> None:
    letter = {**document(1)._asdict(), "sender_id": "S", "body": "words to be found"}
    inbox: Rows = {"inbox": [letter], "body": [letter], "event": []}
    hub, (relay, _) = clean_relays(1, "hub")
    run = scene.cut(1, small_town(), inbox, clean_ledger(1, "run").tables, (hub, relay))
    jobs, left_out = runner.choose_jobs("all", run.cut, run.cut.number)
    assert left_out == {}
    results = {result.job: result for result in runner.run_jobs(run, jobs)}
    assert {job: (one.violations, one.mismatches) for job, one in results.items()} == dict.fromkeys(JOBS, (0, []))
    for job in JOBS:
        assert json.loads((scene.lake.gold(job, 1) / runner.DONE).read_text())["job"] == job
    assert results["search"].sources["inbox"]["rows"]["documents"] == 1
    assert found(scene.lake.root, "words") == ["words to be found"]


@pytest.mark.req("S4")
def test_totals_that_are_not_the_stores_own_fail_the_job_and_publish_nothing(scene: Scene) -> None:
    assert runner.run_job(scene.cut(1, small_town()), JOBS["traffic"]).is_ok
    assert (scene.lake.gold("traffic", 1) / runner.DONE).exists()
    result = runner.run_job(scene.cut(2, small_town(), message_history=9), JOBS["traffic"])
    assert result.mismatches == ["broker: message_history: 3 here, 9 in the store"]
    assert not result.is_ok
    assert not (scene.lake.gold("traffic", 2) / runner.DONE).exists()


@pytest.mark.req("S2")
def test_an_audit_is_held_against_the_last_one_whose_heads_stay_if_it_fails(scene: Scene) -> None:
    rows = small_town()
    assert runner.run_job(scene.cut(1, rows), JOBS["audit"]).sources["broker"]["held_against"] is None
    accept(rows, "dm", "later")
    grown = runner.run_job(scene.cut(2, rows), JOBS["audit"])
    assert grown.is_ok
    assert grown.sources["broker"]["held_against"] == 1
    heads = (scene.lake.root / "heads" / "broker.json").read_bytes()
    rows["message_history"][1]["client_message_id"] = "another"
    changed = runner.run_job(scene.cut(3, rows), JOBS["audit"])
    assert changed.violations == 1
    assert changed.items[0]["problem"] == "changed"
    assert (scene.lake.root / "heads" / "broker.json").read_bytes() == heads


@pytest.mark.req("S2")
def test_an_audit_of_an_older_cut_is_not_held_against_what_came_after_it(scene: Scene) -> None:
    rows = small_town()
    older = scene.cut(1, rows)
    accept(rows, "dm", "later", at=NOW - HOUR_MS + 1)  # of a day that the older one has too
    newest = scene.cut(2, rows)
    scene.lake.publish(newest.cut)
    assert runner.run_job(newest, JOBS["audit"]).is_ok
    file = scene.lake.root / "heads" / "broker.json"
    heads = file.read_bytes()
    for life in ("1", "2/one/1"):
        result = runner.run_job(living(older, life), JOBS["audit"])
        assert (result.violations, result.sources["broker"]["held_against"]) == (0, None)
        assert file.read_bytes() == heads
    file.write_bytes(heads.replace(b'"cut":2', b'"cut":99'))
    held = runner.run_job(newest, JOBS["audit"]).sources["broker"]["held_against"]
    assert held == 99, "the newest is held against whatever there is"


@pytest.mark.req("S2")
@pytest.mark.parametrize(
    ("life", "held_against", "violations"),
    [("1/other/1", 1, 1), ("2/one/1", None, 0)],
    ids=["another server, the same past", "a backup that came back"],
)
def test_an_audit_is_held_against_one_of_the_same_past_alone(
    scene: Scene, life: str, held_against: int | None, violations: int
) -> None:
    rows = small_town()
    assert runner.run_job(living(scene.cut(1, rows), "1/one/1"), JOBS["audit"]).is_ok
    rows["message_history"][1]["client_message_id"] = "another"
    result = runner.run_job(living(scene.cut(2, rows), life), JOBS["audit"])
    assert (result.sources["broker"]["held_against"], result.violations) == (held_against, violations)


@pytest.mark.req("S2")
def test_a_retention_plan_is_also_lines_for_the_broker(scene: Scene) -> None:
    result = runner.run_job(scene.cut(1, small_town()), JOBS["retention"])
    plan = Path(result.sources["broker"]["plan"])
    lines = [json.loads(line) for line in plan.read_text().splitlines()]
    assert [(line["mesh"], line["history_id"], line["is_open"]) for line in lines] == [
        ("mesh-1", 2, False),
        ("mesh-1", 3, False),
    ]
    assert result.sources["broker"]["execute"] == f"claudemesh broker sweep --plan {plan}"


@pytest.mark.req("S4")
def test_a_report_shows_totals_that_are_the_stores_own(scene: Scene) -> None:
    inbox: Rows = {"inbox": [{"seq": 1}], "body": [], "event": [{"seq": 1, "type": "peer_joined", "at": NOW}]}
    ledger = clean_ledger(1, "run")
    hub, (relay, _) = clean_relays(1, "hub")
    report = build_report(scene.cut(1, small_town(), inbox, ledger.tables, (hub, relay)), [])
    assert report["ok"]
    source, daemon, work, edge, state = report["sources"]
    acked = sum(row["status"] == "done" for row in relay.envelopes)
    assert edge["totals"]["outbox.done"] == {"lake": acked, "store": acked}
    assert [row["outage_id"] for row in edge["outages"]] == [row["id"] for row in relay.tables["outage"][::-1]]
    assert sum(row["envelopes"] for row in edge["envelopes"]) == len(relay.envelopes)
    assert sum(row["writes"] for row in state["writes"]) == len(hub.lines)
    assert state["totals"]["rows.messages."] == {"lake": 1, "store": 1}
    committed = len(ledger["receipts"])
    assert work["totals"]["cassette_steps.COMMITTED"] == {"lake": committed, "store": committed}
    assert [row["run_id"] for row in work["runs"]] == [None, "run"]
    assert work["runs"][0]["messages"] == len(ledger["messages"])
    assert {row["span"]: row["steps"] for row in work["lead_times"]}["posted_to_receipt"] == committed
    assert sum(row["requeues"] for row in work["requeued"]) == len(ledger["requeues"])
    assert daemon["totals"] == {"inbox": {"lake": 1, "store": 1}}
    assert daemon["events"] == [{"type": "peer_joined", "hour_at": NOW, "events": 1}]
    assert source["totals"]["message_history"] == {"lake": 3, "store": 3}
    assert source["totals"]["delivery.dead_letter"] == {"lake": 1, "store": 1}
    assert sum(row["messages"] for row in source["traffic"]) == 3
    assert [(row["reason"], row["dead_letters"]) for row in source["dead_letters"]] == [("expired", 1)]
    assert {row["mesh"] for row in source["latency"]} == {"town"}
    assert sum(row["deliveries"] for row in source["latency"]) == 3  # also of the one that retention deleted
    assert {(row["name"], row["sent"], row["received"]) for row in source["members"]} == {
        ("alice", 3, 0),
        ("bob", 0, 2),
    }
    [there] = source["presence"]
    assert (there["mesh"], there["sessions"], there["peak"], there["flaps"]) == ("town", 1, 1, 1)
    assert (there["returned_share"], there["max_ms"]) == (0.5, 600_000)
    assert source["endings"] == [{"mesh": "town", "because": "expired", "sessions": 1}]
    assert [verdict["name"] for verdict in report["verdicts"]] == ["reconciliation", "orphans", "audit"]
