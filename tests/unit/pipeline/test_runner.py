"""What a run decides without Spark: whether totals agree, and which jobs a cut has something for."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow.dataset import dataset

from claudemesh.kernel.errors import NotFound
from claudemesh.pipeline import outputs
from claudemesh.pipeline.jobs.names import NAMES
from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.lake import Cut, Lake
from claudemesh.pipeline.outputs import Job, Mismatch, Result, Run, Total, add_up, reconcile
from claudemesh.pipeline.progress import Progress
from claudemesh.pipeline.registry import JOBS
from claudemesh.pipeline.report.build import build_report, judge_jobs, judge_totals, pair_totals
from claudemesh.pipeline.report.page import build_page
from claudemesh.pipeline.runner import DONE, choose_jobs, run_job
from tests.doubles import ManualClock
from tests.unit.pipeline.test_metrics import CUT


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    ("totals", "counts", "wrong"),
    [
        ({"message_history": 3}, {"message_history": 3, "delivery.read": 1}, []),
        ({"message_history": 3}, {"message_history": 4}, [Mismatch("message_history", 3, 4)]),
        ({"delivery.read": 1}, {}, [Mismatch("delivery.read", 1, 0)]),
        ({"delivery.read": 0}, {}, []),
    ],
)
def test_a_total_that_is_not_the_stores_own_is_named_with_both(
    totals: dict[str, int], counts: dict[str, int], wrong: list[Mismatch]
) -> None:
    assert reconcile(totals, counts, may_exceed=False) == wrong
    assert reconcile(totals, counts, may_exceed=True) == [one for one in wrong if one.said < one.counted]


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    ("name", "totals"),
    [
        ("delivery.{state}", {"delivery.read": 3, "delivery.acted": 0}),
        ("delivery.dead_letter", {"delivery.dead_letter": 3}),
    ],
)
def test_what_the_store_counts_and_no_row_is_of_is_a_total_too(name: str, totals: dict[str, int]) -> None:
    rows = [{"state": "read", "n": 1}, {"state": "read", "n": 2}]
    assert add_up(rows, Total(name, "n"), ["delivery.acted", "delivery_queue"]) == totals
    assert add_up([], Total(name, "n"), totals) == dict.fromkeys(totals, 0)


def test_a_sum_over_an_empty_store_is_none() -> None:
    assert add_up([{"n": None}], Total("message_history", "n"), ["message_history"]) == {"message_history": 0}
    nameless = add_up([{"state": None, "n": None}], Total("delivery.{state}", "n"), ["delivery.read"])
    assert reconcile(nameless, {}, may_exceed=False) == []


@pytest.mark.req("S4")
def test_a_report_whose_totals_differ_says_so_with_both_numbers() -> None:
    source = {
        "name": "broker",
        "kind": "broker",
        "totals": pair_totals({"message_history": 3}, {"message_history": 4, "inbox": 1}),
    }
    result = Result("traffic", 1, mismatches=["broker: message_history: 3 here, 4 in the store"])
    verdict = judge_totals([source], [result])
    assert verdict["violations"] == 2
    assert [item["total"] for item in verdict["items"]] == [
        "broker: message_history: 3 here, 4 in the store",
        "broker: inbox: 0 here, 1 in the store",
    ]


@pytest.mark.req("S4")
@pytest.mark.parametrize(("lake", "violations"), [(5, 0), (4, 0), (3, 1)])
def test_of_a_store_that_forgets_the_lake_may_have_more_and_never_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: int, violations: int
) -> None:
    source = {"name": "inbox", "kind": "inbox", "totals": pair_totals({"inbox": lake}, {"inbox": 4})}
    assert judge_totals([source], [])["violations"] == violations
    # As a job has it, which is no other rule.
    inbox = replace(CUT.sources['a"b'], kind="inbox", counts={"inbox": 4})
    run = without_spark(tmp_path, replace(CUT, sources={"inbox": inbox}))
    monkeypatch.setattr(Run, "tables", lambda _run, _source: {})
    monkeypatch.setattr(outputs, "write", lambda *_: None)
    written = dataset(pa.table({"n": [lake]}))
    monkeypatch.setattr(outputs, "read_output", lambda *_: written)
    nothing: Any = None
    job = Job(name="x", kind="inbox", outputs={"sums": lambda *_: nothing}, totals={"sums": Total("inbox", "n")})
    result = Result("x", 1)
    outputs.publish(run, job, "inbox", result)
    assert len(result.mismatches) == result.found == violations


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    ("held_against", "said"),
    [
        ([None], "there is no earlier one to hold it against"),
        ([None, None], "there is no earlier one to hold it against"),
        ([None, 1], f"{JOBS['audit'].verdict} (1 of 2 stores have an earlier one)"),
        ([2, 1], JOBS["audit"].verdict),
    ],
)
def test_an_audit_claims_no_comparison_that_was_not_made(held_against: list[int | None], said: str) -> None:
    sources = {f"broker-{i}": {"held_against": cut} for i, cut in enumerate(held_against)}
    (verdict,) = judge_jobs([Result("audit", 1, sources=sources)])
    assert verdict["about"] == said


def test_a_verdict_is_what_its_job_proves() -> None:
    (verdict,) = judge_jobs([Result("orphans", 1, sources={"broker": {}})])
    assert verdict["about"] == JOBS["orphans"].verdict


@pytest.mark.req("S4")
def test_a_job_with_a_verdict_is_in_the_report() -> None:
    assert Job(name="x", kind="broker", outputs={}, verdict="it holds").is_reported
    assert Job(name="x", kind="broker", outputs={}, has_figures=True).is_reported
    assert not Job(name="x", kind="broker", outputs={}).is_reported


def without_spark(root: Path, cut: Cut) -> Run:
    nothing: Any = None
    return Run(nothing, Lake(root), cut, Params(0), Progress(io.StringIO(), ManualClock()))


def with_bodies(kind: str, *, bodies: bool) -> Cut:
    return replace(CUT, sources={"one": replace(CUT.sources['a"b'], kind=kind, bodies=bodies)})


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    ("cut", "left_out"),
    [
        (CUT, {"search", "ledger", "recovery", "writes"}),
        (with_bodies("inbox", bodies=True), {*NAMES} - {"search"}),
        (with_bodies("ledger", bodies=False), {*NAMES} - {"ledger"}),
        (with_bodies("relay", bodies=False), {*NAMES} - {"recovery"}),
        (with_bodies("hub", bodies=False), {*NAMES} - {"writes"}),
    ],
    ids=["a broker", "an inbox with bodies", "a ledger", "a relay", "a hub"],
)
def test_all_jobs_are_those_that_have_something_to_read_and_the_others_are_named(
    cut: Cut, left_out: set[str]
) -> None:
    chosen, others = choose_jobs("all", cut, cut.number)
    assert {job.name for job in chosen} == {*NAMES} - left_out
    assert set(others) == left_out


@pytest.mark.req("S4")
def test_a_search_is_left_out_of_a_lake_without_bodies_with_the_remedy() -> None:
    chosen, left_out = choose_jobs("all", with_bodies("inbox", bodies=False), CUT.number)
    assert chosen == []
    assert "--bodies" in left_out["search"]


@pytest.mark.parametrize(("job", "kind"), [("orphans", "inbox"), ("search", "inbox"), ("search", "broker")])
def test_a_job_that_has_nothing_to_read_is_refused(job: str, kind: str) -> None:
    with pytest.raises(NotFound, match=job):
        choose_jobs(job, with_bodies(kind, bodies=False), CUT.number)


@pytest.mark.req("S4")
def test_an_older_cut_does_not_take_the_place_of_the_newest_archive() -> None:
    cut = with_bodies("inbox", bodies=True)
    with pytest.raises(NotFound, match="not the newest"):
        choose_jobs("search", cut, cut.number + 1)
    chosen, left_out = choose_jobs("all", cut, cut.number + 1)
    assert chosen == []
    assert "not the newest" in left_out["search"]


@pytest.mark.req("S4")
def test_a_job_that_puts_all_it_gives_elsewhere_is_published_too(tmp_path: Path) -> None:
    run = without_spark(tmp_path, replace(CUT, sources={}))
    assert run_job(run, JOBS["search"]).is_ok
    assert (run.lake.gold("search", CUT.number) / DONE).exists()


@pytest.mark.req("S4")
def test_a_job_leaves_nothing_of_an_earlier_run_on_the_same_cut(tmp_path: Path) -> None:
    run = without_spark(tmp_path, replace(CUT, sources={}))
    here, other = (run.lake.gold("audit", number) / "source=one" for number in (CUT.number, CUT.number - 1))
    for place in (here, other):
        (place / "violations").mkdir(parents=True)
    run_job(run, JOBS["audit"])
    assert not here.exists()
    assert (other / "violations").exists()


@pytest.mark.req("S4")
def test_of_a_kind_of_store_that_a_report_does_not_know_it_shows_the_totals(tmp_path: Path) -> None:
    later = replace(CUT.sources['a"b'], kind="later", live={"entry": 3}, counts={"entry": 4, "entry.open": 1})
    document = build_report(without_spark(tmp_path, replace(CUT, sources={"one": later})), [])
    (source,) = document["sources"]
    assert source["totals"] == {"entry": {"lake": 3, "store": 4}}
    assert [item["total"] for item in document["verdicts"][0]["items"]] == ["one: entry: 3 here, 4 in the store"]
    assert "entry" in build_page(document)
