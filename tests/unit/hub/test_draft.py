"""What one transaction will write, before it writes anything."""

import pytest

from claudemesh.hub.draft import Draft, keys_of
from claudemesh.hub.model import Asked, Create, Delete, Expectation, Kind, Origin, Row, Tally, Update, Write

pytestmark = pytest.mark.req("R2")

NOW = 1_700_000_000_000
ORIGIN = Origin("POST", "/x")
STANDING = Row(Kind.TASKS, "old", 4, 2, NOW, NOW, '{"title":"t","status":"todo"}')


def write(*asks: Asked) -> Write:
    return Write(asks, ORIGIN, NOW)


def update(row_id: str, status: str, expected: str | None = None) -> Write:
    return write(Asked(Kind.TASKS, row_id, Update({"status": status}), Expectation(status=expected)))


def create(row_id: str) -> Write:
    return write(Asked(Kind.TASKS, row_id, Create('{"title":"t","status":"todo"}')))


def delete(row_id: str) -> Write:
    return write(Asked(Kind.TASKS, row_id, Delete()))


def test_what_is_decided_but_not_kept_leaves_no_trace() -> None:
    draft = Draft.on([STANDING])
    assert draft.decide(update("old", "lost")).is_done
    assert len(draft) == 0
    kept = draft.decide(update("old", "done", expected="todo"))
    assert kept.is_done, "it sees nothing of the one before"
    draft.keep(kept)
    assert [(entry.base_revision, entry.revision) for entry in draft.entries(9)] == [(2, 3)]


def test_what_is_kept_is_what_the_next_one_meets() -> None:
    draft = Draft.on([STANDING])
    draft.keep(draft.decide(update("old", "done", expected="todo")))
    assert not draft.decide(update("old", "x", expected="todo")).is_done
    draft.keep(draft.decide(delete("old")))
    assert draft.decide(update("old", "x")).answer.status == 404
    assert [entry.seq for entry in draft.entries(9)] == [10, 11]
    assert (draft.rows(9), draft.gone()) == ([], [(Kind.TASKS, "old")])
    assert draft.tallies() == [Tally(Kind.TASKS, "todo", -1)]


def test_a_new_row_has_the_place_of_its_first_line_however_often_it_changes() -> None:
    draft = Draft.on([STANDING])
    for one in (update("old", "doing"), create("new"), update("new", "doing"), update("new", "done")):
        draft.keep(draft.decide(one))
    rows = {row.id: (row.seq, row.revision) for row in draft.rows(20)}
    assert rows == {"old": (4, 3), "new": (22, 3)}
    assert draft.tallies() == [
        Tally(Kind.TASKS, "doing", 1),
        Tally(Kind.TASKS, "done", 1),
        Tally(Kind.TASKS, "todo", -1),
    ]


def test_a_row_that_comes_and_goes_is_only_in_the_journal() -> None:
    draft = Draft.on([])
    for one in (create("new"), delete("new")):
        draft.keep(draft.decide(one))
    assert [(entry.revision, entry.deleted) for entry in draft.entries(0)] == [(1, False), (2, True)]
    assert (draft.rows(0), draft.gone(), draft.tallies()) == ([], [(Kind.TASKS, "new")], [])


def test_rows_are_loaded_each_once_and_in_one_order() -> None:
    writes = [update("b", "x"), create("c"), update("a", "x"), delete("b")]
    assert keys_of(writes) == [(Kind.TASKS, "a"), (Kind.TASKS, "b")]
