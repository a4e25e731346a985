"""What a run decides without Spark: whether totals agree, and which jobs a cut has something for."""

import pytest
from msgspec.structs import replace

from claudemesh.kernel.errors import NotFound
from claudemesh.pipeline.lake import Cut
from claudemesh.pipeline.report.build import judge_jobs, judge_totals, pair_totals
from claudemesh.pipeline.runner import Mismatch, Result, add_up, choose_jobs, reconcile
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
    assert reconcile(totals, counts) == wrong


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
    assert add_up(rows, name, "n", ["delivery.acted", "delivery_queue"]) == totals
    assert add_up([], name, "n", totals) == dict.fromkeys(totals, 0)


@pytest.mark.req("S4")
def test_a_report_whose_totals_differ_says_so_with_both_numbers() -> None:
    source = {"name": "broker", "totals": pair_totals({"message_history": 3}, {"message_history": 4, "inbox": 1})}
    result = Result("traffic", 1, mismatches=["broker: message_history: 3 here, 4 in the store"])
    verdict = judge_totals([source], [result])
    assert verdict["violations"] == 2
    assert [item["total"] for item in verdict["items"]] == [
        "broker: message_history: 3 here, 4 in the store",
        "broker: inbox: 0 here, 1 in the store",
    ]


@pytest.mark.req("S4")
def test_a_first_audit_does_not_claim_to_have_compared_anything() -> None:
    first, second = (Result("audit", 1, sources={"broker": {"held_against": cut}}) for cut in (None, 1))
    said = [
        verdict["about"] for verdict in judge_jobs([first, second, Result("orphans", 1, sources={"broker": {}})])
    ]
    assert ["first" in about for about in said] == [True, False, False]


def with_bodies(kind: str, *, bodies: bool) -> Cut:
    return Cut(number=1, at_ms=0, sources={"one": replace(CUT.sources['a"b'], kind=kind, bodies=bodies)})


def test_all_jobs_are_those_that_have_something_to_read() -> None:
    names = [job.name for job in choose_jobs("all", CUT)]
    assert "orphans" in names
    assert "search" not in names
    assert [job.name for job in choose_jobs("all", with_bodies("inbox", bodies=True))] == ["search"]
    assert choose_jobs("all", with_bodies("inbox", bodies=False)) == []


@pytest.mark.parametrize(("job", "kind"), [("orphans", "inbox"), ("search", "inbox"), ("search", "broker")])
def test_a_job_that_has_nothing_to_read_is_refused(job: str, kind: str) -> None:
    with pytest.raises(NotFound, match=job):
        choose_jobs(job, with_bodies(kind, bodies=False))
