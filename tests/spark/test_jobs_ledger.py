"""How much of a ledger's work is done, how long it took, and which leases ran out; from the file to the figures."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from claudemesh.pipeline import checks, frames
from claudemesh.pipeline.catalogue import LEDGER
from claudemesh.pipeline.ingest import Ingest, Wish
from claudemesh.pipeline.jobs import ledger as job
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.pipeline.stores import open_stores
from tests.contract.pipeline.ledgers import RUN, commit, open_ledger, post, run_out
from tests.spark import rows
from tests.unit.pipeline.ledgers import LEASE_MS, START_MS, Ledger


def frames_of(spark: SparkSession, *ledgers: Ledger) -> dict[str, DataFrame]:
    tables = {name: [row for one in ledgers for row in one.tables[name]] for name in ledgers[0].tables}
    return dict(rows.frames(spark, tables, LEDGER))


def busy() -> Ledger:
    """Post a hundred steps, of which the n-th is claimed after n and committed after n more milliseconds."""
    ledger = Ledger(1, "run")
    for took in range(1, 101):
        ledger.now_ms = START_MS
        (step,) = ledger.post()
        ledger.now_ms = START_MS + took
        ledger.claim(step, "ann")
        ledger.now_ms = START_MS + 2 * took
        ledger.complete(step, "FAILURE" if took > 90 else "SUCCESS")
    ledger.now_ms = START_MS
    return ledger


@pytest.mark.req("S2")
def test_lead_times_are_exact_by_run_and_over_all(spark: SparkSession) -> None:
    ledger, other = busy(), Ledger(2, "other", version=1)
    (step,) = other.post()
    other.claim(step, "ben")
    other.now_ms += 500
    other.complete(step)
    other.post()  # nobody has done anything about it
    found = {
        (one.run_id, one.span): (one.steps, one.p50_ms, round(one.p90_ms, 3), one.max_ms)
        for one in job.lead_times(frames_of(spark, ledger, other), Params(START_MS)).collect()
    }
    assert found == {
        ("run", "posted_to_claimed"): (100, 50.5, 90.1, 100),
        ("run", "claimed_to_receipt"): (100, 50.5, 90.1, 100),
        ("run", "posted_to_receipt"): (100, 101.0, 180.2, 200),
        (None, "posted_to_claimed"): (100, 50.5, 90.1, 100),
        (None, "claimed_to_receipt"): (100, 50.5, 90.1, 100),
        ("other", "posted_to_receipt"): (1, 500.0, 500.0, 500),
        (None, "posted_to_receipt"): (101, 102.0, 182.0, 500),
    }
    later = job.lead_times(frames_of(spark, ledger), Params(START_MS, since_ms=START_MS + 1)).collect()
    assert later == []


@pytest.mark.req("S2")
def test_a_lease_that_ran_out_is_an_expiry_whether_it_was_requeued_or_not_yet(spark: SparkSession) -> None:
    ledger = Ledger(1, "run")
    often, once, waits, live = (ledger.post()[0] for _ in range(4))
    for step in (often, often, once):
        ledger.claim(step, "ann")
        ledger.now_ms += LEASE_MS
        ledger.requeue(step)
    ledger.claim(waits, "ann")
    ledger.now_ms += LEASE_MS
    ledger.claim(often, "ben")
    ledger.claim(live, "ben")
    ledger.renew(live)
    tables = frames_of(spark, ledger)
    at_the_cut = Params(now_ms=ledger.now_ms + 9 * LEASE_MS, cut_ms=ledger.now_ms)
    (total,) = [one for one in job.runs(tables, at_the_cut).collect() if one.run_id is None]
    assert (total.steps, total.pending, total.leased) == (4, 1, 3)
    assert (total.requeues, total.expired, total.expiries, total.renewals) == (3, 1, 4, 1)
    named = [(one.step_id, one.expiries, one.is_expired) for one in job.requeued(tables, at_the_cut).collect()]
    assert named == [(often["step_id"], 2, False), (once["step_id"], 1, False), (waits["step_id"], 1, True)]
    (later,) = [one for one in job.runs(tables, Params(at_the_cut.now_ms)).collect() if one.run_id is None]
    assert later.expired == 3
    claimed = {one.span: one.steps for one in job.lead_times(tables, at_the_cut).collect() if one.run_id is None}
    assert claimed == {"posted_to_claimed": 3}, "a claim that was requeued is none"


@pytest.mark.req("S2")
def test_runs_are_counted_each_and_all_together(spark: SparkSession) -> None:
    one, two = busy(), Ledger(2, "two")
    two.post(steps=3)
    found = {row.run_id: row.asDict() for row in job.runs(frames_of(spark, one, two), Params(START_MS)).collect()}
    names = ("messages", "jobs", "steps", "pending", "committed", "success", "failure", "aborted")
    assert {run: tuple(row[name] for name in names) for run, row in found.items()} == {
        "run": (100, 100, 100, 0, 100, 90, 10, 0),
        "two": (1, 1, 3, 3, 0, 0, 0, 0),
        None: (101, 101, 103, 3, 100, 90, 10, 0),
    }


# --- from the file -----------------------------------------------------------------------------------


def no_session() -> SparkSession:
    raise AssertionError("a session was asked for")


def ingest(session: Callable[[], SparkSession], lake: Lake, path: Path, **wish: bool) -> Cut:
    return Ingest(lake, session, Wish(**wish), lambda _: None).run(open_stores([str(path)]), 0)


def content(spark: SparkSession, lake: Lake, cut: Cut) -> dict[str, list[str]]:
    [source] = cut.sources
    return {
        name: sorted(map(str, frame.collect())) for name, frame in frames.tables(spark, lake, cut, source).items()
    }


@pytest.mark.req("S1", "S2", "S3")
@pytest.mark.parametrize("version", [1, 2])
def test_a_ledger_that_is_copied_step_by_step_is_the_one_that_is_copied_at_once(
    spark: SparkSession, tmp_path: Path, version: int
) -> None:
    lake, path = Lake(tmp_path / "lake"), tmp_path / "ledger.db"
    with open_ledger(path, version) as ledger:
        post(ledger, 6)
        commit(ledger)
        held = ledger.claim_step(RUN, "ann")
    first = ingest(lambda: spark, lake, path, bodies=True)
    assert ingest(no_session, lake, path) == first, "without news there is no session and no cut"
    with open_ledger(path) as ledger:
        ledger.claim_step(RUN, "ben")
    assert ingest(no_session, lake, path).number == 2, "a claim is written by the driver alone"
    with open_ledger(path) as ledger:
        ledger.complete_step(RUN, held["step_id"], "ann", 1, {}, "ABORTED")
        if version > 1:
            run_out(ledger)
        commit(ledger)
        post(ledger, 1, "another run")
    cut = ingest(lambda: spark, lake, path)
    [(name, source)] = cut.sources.items()
    assert (cut.number, source.generation, source.live["cassette_steps"]) == (3, 0, 7)
    at_once = Lake(tmp_path / "at once")
    assert content(spark, lake, cut) == content(spark, at_once, ingest(lambda: spark, at_once, path, bodies=True))

    tables = frames.tables(spark, lake, cut, name)
    assert checks.run(spark, {name: tables}, []).violations == []
    by_state = {(one.run_id, one.status): one.steps for one in job.steps(tables, Params(0)).collect()}
    assert by_state == {
        (RUN, "COMMITTED"): 3,
        (RUN, "LEASED"): 1,
        (RUN, "PENDING"): 2,
        ("another run", "PENDING"): 1,
    }
    assert {one.outcome: one.receipts for one in job.outcomes(tables, Params(0)).collect()} == {
        "SUCCESS": 2,
        "ABORTED": 1,
    }
