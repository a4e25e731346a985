"""The history checker on SQLite: silent on what is as promised, and each class of bug breaks its invariant."""

import pytest

from claudemesh.broker.policy import EPOCH_SKIP
from claudemesh.pipeline.checks.invariants import INVARIANTS
from claudemesh.pipeline.checks.sqlite import check_on_sqlite
from claudemesh.pipeline.history import History
from tests.unit.pipeline.histories import Story, clean, history, rows
from tests.unit.pipeline.mutations import ALSO, CASES, MUTATIONS, Mutation


def broken(*stories: Story) -> set[str]:
    return {found.invariant for found in check_on_sqlite(rows(stories), history(stories)).violations}


@pytest.mark.req("S3")
@pytest.mark.parametrize("is_lake", [True, False], ids=["lake", "stores"])
@pytest.mark.parametrize("seed", range(5))
def test_a_history_that_is_as_promised_breaks_nothing(seed: int, *, is_lake: bool) -> None:
    story = clean(seed, is_lake=is_lake)
    verdict = check_on_sqlite(rows([story]), history([story]))
    assert verdict.violations == []
    assert all(count > 0 for name, count in verdict.checked.items() if name != "torn_lines")


@pytest.mark.req("S3")
@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize(("invariant", "mutation"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_a_bug_is_found_by_the_invariant_that_it_breaks_and_by_no_other(
    invariant: str, mutation: Mutation, seed: int
) -> None:
    story = clean(seed)
    mutation(story)
    assert broken(story) == {invariant} | ALSO.get(mutation, set())


@pytest.mark.req("S3")
def test_a_store_that_no_invariant_is_about_changes_no_verdict() -> None:
    story = clean(1)
    stores = rows([story])
    known = check_on_sqlite(stores, history([story]))
    assert check_on_sqlite({**stores, "later": {"entry": [(1,)]}}, history([story])) == known


@pytest.mark.req("S3")
@pytest.mark.parametrize(("passed_over", "found"), [(EPOCH_SKIP, set()), (EPOCH_SKIP - 1, {"presence_gap"})])
def test_numbers_that_were_passed_over_for_a_restored_backup_are_no_gap(passed_over: int, found: set[str]) -> None:
    story = clean(1)
    story.lease("alice", "late", "lease-1", "joined", "left")
    story.broker["presence_event"][-1]["seq"] += passed_over
    assert broken(story) == found


@pytest.mark.req("S3")
def test_there_is_a_bug_for_every_invariant() -> None:
    assert set(MUTATIONS) == set(INVARIANTS)


@pytest.mark.req("S3")
def test_a_bug_in_one_mesh_is_not_found_in_another() -> None:
    stories = [clean(seed, f"mesh-{seed}") for seed in range(3)]
    MUTATIONS["never_delivered"][0](stories[1])
    found = check_on_sqlite(rows(stories), history(stories)).violations
    assert {(one.invariant, one.evidence["mesh"]) for one in found} == {("never_delivered", "mesh-1")}


@pytest.mark.req("S3")
def test_evidence_names_the_message_and_whose_it_is() -> None:
    story = clean(3)
    MUTATIONS["refused_but_stored"][1](story)
    (found,) = check_on_sqlite(rows([story]), history([story])).violations
    assert found.evidence == {
        "what": "refused",
        "mesh": "mesh",
        "id": "refused",
        "who": "mesh-alice",
        "detail": "pending",
    }


@pytest.mark.req("S3")
@pytest.mark.parametrize(
    "invariant", ["done_not_stored", "two_rows_one_id", "torn_transaction", "received_not_stored", "order_per_pair"]
)
def test_stores_are_checked_against_each_other_without_any_log(invariant: str) -> None:
    story = clean(5)
    MUTATIONS[invariant][0](story)
    found = {one.invariant for one in check_on_sqlite(rows([story]), History([])).violations}
    assert invariant in found


@pytest.mark.req("S3")
def test_a_log_alone_is_checked_for_what_it_contradicts_itself_in() -> None:
    story = clean(5)
    MUTATIONS["zombie_done"][0](story)
    story.lines = [line for line in story.lines if line["f"] != "send"]
    assert {one.invariant for one in check_on_sqlite({}, history([story])).violations} == {"zombie_done"}


@pytest.mark.req("S3")
@pytest.mark.parametrize("invariant", ["token_went_back", "zombie_done"])
@pytest.mark.parametrize(("boot", "found"), [("one machine", True), ("another machine", False), ("", False)])
def test_times_by_clocks_that_have_nothing_to_do_with_each_other_are_not_compared(
    invariant: str, boot: str, *, found: bool
) -> None:
    story = clean(5)
    before = len(story.lines)
    MUTATIONS[invariant][0](story)
    story.lines[before:] = [{**line, "boot": boot} for line in story.lines[before:]]
    story.lines = [line for line in story.lines if line["f"] != "send"]
    said = {one.invariant for one in check_on_sqlite({}, history([story])).violations}
    assert (invariant in said) is found


@pytest.mark.req("S3")
@pytest.mark.parametrize(("swept", "found"), [(0, {"left_before_joined"}), (1, set())])
def test_of_leases_that_began_before_all_that_is_kept_nobody_knows(swept: int, found: set[str]) -> None:
    story = clean(5)
    del story.broker["presence_event"][:swept]
    story.lease("bob", "late", "lease", "offline", "left")
    assert broken(story) == found


@pytest.mark.req("S3")
def test_a_broker_that_lost_everything_does_not_pass() -> None:
    story = clean(5)
    for name, rows_ in story.broker.items():
        if name not in ("mesh", "member"):
            rows_.clear()
    found = {one.invariant for one in check_on_sqlite(rows([story]), history([])).violations}
    assert "done_not_stored" in found


@pytest.mark.req("S3")
def test_a_store_says_whose_it_is_however_little_is_in_it() -> None:
    """By what came to it, the inbox of one subscriber could be that of any other."""
    story = clean(5)
    others = [name for name in story.tables if "inbox-" in name and not name.endswith("inbox-carol")]
    for name in others:
        del story.tables[name]
    assert check_on_sqlite(rows([story]), history([story])).violations == []


@pytest.mark.req("S3")
def test_a_relay_whose_hub_is_not_among_the_stores_is_not_asked_for_what_that_holds() -> None:
    story = clean(5)
    del story.tables["mesh/hub"]
    assert broken(story) == set()


@pytest.mark.req("S3")
def test_a_hub_that_lost_everything_does_not_pass() -> None:
    story = clean(5)
    story.hub.lines.clear()
    assert broken(story) == {"edge_append_lost", "lost_update"}
