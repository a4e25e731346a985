"""What outages kept waiting and what became of it, and how the rows of a hub stand; from files to figures."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from claudemesh.pipeline import frames
from claudemesh.pipeline.catalogue import HUB, RELAY
from claudemesh.pipeline.checks.spark import gather
from claudemesh.pipeline.ingest import Ingest, Wish
from claudemesh.pipeline.jobs import recovery, writes
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.pipeline.stores import find_stores, open_stores
from tests.contract.pipeline.writes import change, make_task, open_hub, open_relay
from tests.spark import rows
from tests.unit.pipeline.relays import START_MS, Hub, Relay, clean_relays

AT_THE_CUT = Params(now_ms=START_MS + 99_000, cut_ms=START_MS + 9_000)


class Outages:
    """A relay with a clock that is set by hand, in seconds."""

    def __init__(self) -> None:
        self.hub = Hub("hub")
        self.relay = Relay("relay", self.hub)

    def at(self, second: int) -> "Outages":
        self.hub.now_ms = START_MS + 1000 * second
        return self

    def queue(self, lane: str = "", **said: Any) -> dict[str, Any]:  # noqa: ANN401 - columns
        lane = lane or f"alone/{len(self.relay.envelopes)}"
        return self.relay.queue(lane, "append" if lane.startswith("alone") else "replace", **said)

    def outage(self, name: str, began: int, online: int | None, recovered: int | None, first_seq: int) -> None:
        times = {"began_at": began, "online_at": online, "recovered_at": recovered}
        at = {key: None if second is None else START_MS + 1000 * second for key, second in times.items()}
        self.relay.tables["outage"].append({"id": name, **at, "first_seq": first_seq})

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        return dict(rows.frames(spark, self.relay.tables, RELAY))


@pytest.mark.req("S2")
def test_an_outage_has_its_times_and_what_became_of_all_that_waited_in_it(spark: SparkSession) -> None:
    scene = Outages()
    before = scene.at(0).queue()
    scene.relay.settle(before, "done")
    scene.outage("first", 1, 5, 7, 2)
    waiting = [scene.at(2).queue("tasks/1") for _ in range(3)] + [scene.queue() for _ in range(3)]
    for envelope in waiting[:2]:
        scene.at(6).relay.settle(envelope, "done")
    scene.relay.settle(waiting[2], "conflict")
    scene.relay.settle(waiting[3], "dead")
    scene.relay.settle(waiting[4], "aborted", aborted_by="ann")
    scene.relay.settle(waiting[5], "aborted", aborted_by="coalesced")
    scene.relay.settle(scene.at(8).queue("tasks/1"), "done")  # behind the conflict, while the upstream was there
    scene.outage("second", 8, None, None, 9)
    scene.queue()
    tables = scene.frames(spark)
    first, second = sorted(recovery.outages(tables, AT_THE_CUT).collect(), key=lambda row: row.began_at)
    assert first.asDict() == {
        "outage_id": "first",
        "began_at": START_MS + 1000,
        "online_at": START_MS + 5000,
        "recovered_at": START_MS + 7000,
        "away_ms": 4000,
        "replay_ms": 2000,
        "took_ms": 6000,
        "envelopes": 6,
        "queued": 0,
        "acked": 2,
        "conflict": 1,
        "dead": 1,
        "cancelled": 1,
        "coalesced": 1,
        "attempts": 2,
        "longest_lane": 3,
        "lane": "tasks/1",
        "oldest_wait_ms": 7000,  # what is in conflict, or dead, waits on
        "acked_per_s": 1.0,
    }
    assert (second.envelopes, second.queued, second.longest_lane) == (1, 1, 1)
    assert (second.away_ms, second.replay_ms, second.took_ms, second.acked_per_s) == (1000, None, 1000, None)
    found = {
        (row.outage_id, row.route_class, row.status): row.envelopes
        for row in recovery.classes(tables, AT_THE_CUT).collect()
    }
    assert found == {
        (None, "append", "done"): 1,
        (None, "replace", "done"): 1,
        ("first", "replace", "done"): 2,
        ("first", "replace", "conflict"): 1,
        ("first", "append", "dead"): 1,
        ("first", "append", "aborted"): 2,
        ("second", "append", "pending"): 1,
    }


@pytest.mark.req("S2")
def test_an_outage_that_kept_nothing_waiting_is_shown_and_since_leaves_out_those_that_were_over(
    spark: SparkSession,
) -> None:
    scene = Outages()
    scene.outage("nothing", 1, 2, 3, 1)
    scene.outage("something", 4, 5, 5, 1)
    scene.relay.settle(scene.at(4).queue(), "done")
    tables = scene.frames(spark)
    found = {row.outage_id: row for row in recovery.outages(tables, AT_THE_CUT).collect()}
    assert (found["nothing"].envelopes, found["nothing"].lane, found["nothing"].oldest_wait_ms) == (0, None, None)
    assert (found["something"].envelopes, found["something"].acked_per_s) == (1, None), "in no time at all"
    since = Params(AT_THE_CUT.now_ms, since_ms=START_MS + 4000, cut_ms=AT_THE_CUT.cut_ms)
    assert [row.outage_id for row in recovery.outages(tables, since).collect()] == ["something"]


@pytest.mark.req("S2")
def test_an_envelope_belongs_to_one_outage_whatever_the_clock_does(spark: SparkSession) -> None:
    scene = Outages()
    scene.outage("first", 1, 2, 8, 1)
    scene.relay.settle(scene.at(2).queue(), "done")
    scene.outage("after the clock was set back", 4, 3, 3, 2)
    scene.relay.settle(scene.at(2).queue(enqueued_at=START_MS + 3000), "done")
    found = {row.outage_id: row for row in recovery.outages(scene.frames(spark), AT_THE_CUT).collect()}
    assert {name: row.envelopes for name, row in found.items()} == {"first": 1, "after the clock was set back": 1}
    later = found["after the clock was set back"]
    assert (later.away_ms, later.took_ms, later.oldest_wait_ms) == (0, 0, 0)


@pytest.mark.req("S2")
def test_rows_stand_as_the_last_line_of_each_says(spark: SparkSession) -> None:
    hub, _ = clean_relays(3, "hub")
    tables = rows.frames(spark, {**hub.tables, "hub_write": hub.lines[::-1]}, HUB)  # whatever order the files have
    standing = Counter((line["kind"], line["status"] or "") for line in hub.standing.values())
    assert {(row.kind, row.status): row.rows for row in writes.rows(tables, AT_THE_CUT).collect()} == standing
    found = writes.writes(tables, AT_THE_CUT).collect()
    assert sum(row.writes for row in found) == len(hub.lines)
    assert sum(row.deleted for row in found) == 1
    assert sum(row.created for row in found) == len({(line["kind"], line["entity_id"]) for line in hub.lines})
    expecting = [line for line in hub.lines if any(line[name] for name in line if name.startswith("expected"))]
    assert sum(row.expecting for row in found) == len(expecting)


# --- from the files ----------------------------------------------------------------------------------


def no_session() -> SparkSession:
    raise AssertionError("a session was asked for")


def ingest(session: Callable[[], SparkSession], lake: Lake, home: Path, **wish: bool) -> Cut:
    return Ingest(lake, session, Wish(**wish), lambda _: None).run(open_stores(find_stores(home)), 0)


async def begin(home: Path) -> None:
    async with open_hub(home / "hub.db") as hub, open_relay(home / "edge" / "outbox.db") as relay:
        await make_task(hub)
        await relay.away("outage")
        for _ in range(3):
            await relay.append()
        await relay.replace("doing", expected_status="todo")
        await relay.replace("done", expected_status="doing")


async def recover(home: Path) -> None:
    async with open_hub(home / "hub.db") as hub, open_relay(home / "edge" / "outbox.db") as relay:
        await change(hub, "elsewhere")
        await relay.back()
        await relay.replay(hub)
        await relay.over("outage")


@pytest.mark.req("S1", "S2", "S3")
def test_a_relay_and_its_hub_are_copied_as_they_go_on_and_give_what_they_count_themselves(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    asyncio.run(begin(tmp_path))
    first = ingest(lambda: spark, lake, tmp_path, bodies=True)
    assert ingest(no_session, lake, tmp_path) == first, "without news there is no session and no cut"
    asyncio.run(recover(tmp_path))
    cut = ingest(lambda: spark, lake, tmp_path)
    assert {source.generation for source in cut.sources.values()} == {0}
    tables = {source.kind: frames.tables(spark, lake, cut, name) for name, source in cut.sources.items()}
    counts = {source.kind: source.counts for source in cut.sources.values()}
    bodies = {row.seq: row.body for row in tables["relay"]["envelope_body"].collect()}
    assert sorted(bodies) == [1, 2, 3, 4, 5], "settled or not"
    assert '"todo"' in bodies[5], "with the oldest expectation"
    (outage,) = recovery.outages(tables["relay"], AT_THE_CUT).collect()
    assert (outage.envelopes, outage.acked, outage.conflict, outage.coalesced) == (5, 3, 1, 1)
    assert outage.envelopes == counts["relay"]["outbox"]
    assert outage.acked_per_s > 0
    standing = {
        f"rows.{row.kind}.{row.status}": row.rows for row in writes.rows(tables["hub"], AT_THE_CUT).collect()
    }
    assert standing == {"rows.progress.": 3, "rows.tasks.elsewhere": 1}
    assert counts["hub"] == {"hub_write": 5, **standing}
    inputs = gather(spark, tables)
    checked = {name: inputs[name].count() for name in ("relay_outbox", "outbox_outbox", "hub_hub_write")}
    assert checked == {"relay_outbox": 5, "outbox_outbox": 0, "hub_hub_write": 5}
