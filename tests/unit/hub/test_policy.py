"""What a write makes of a row: the hub's whole rule, as a table."""

import json

import pytest

from claudemesh.hub.model import (
    NO_OPINION,
    Asked,
    Changed,
    Create,
    Delete,
    Expectation,
    Kind,
    Refused,
    Row,
    SetOnce,
    Unchanged,
    Update,
)
from claudemesh.hub.policy import decide, judge, status_of

NOW = 1_700_000_000_000
TASK = Row(Kind.TASKS, "01A", 7, 3, NOW - 50, NOW - 10, '{"title":"t","status":"todo"}')
MESSAGE = Row(Kind.MESSAGES, "01B", 8, 1, NOW, NOW, '{"to":"a","read_at":null}')

pytestmark = pytest.mark.req("R2")


def test_a_new_row_begins_at_revision_one() -> None:
    outcome = decide(None, Asked(Kind.TASKS, "01A", Create('{"title":"t","status":"todo"}')), NOW)
    assert outcome == Changed(None, Row(Kind.TASKS, "01A", 0, 1, NOW, NOW, '{"title":"t","status":"todo"}'))


def test_a_change_is_a_new_revision_of_the_same_row() -> None:
    outcome = decide(TASK, Asked(Kind.TASKS, "01A", Update({"status": "done"})), NOW)
    after = Row(Kind.TASKS, "01A", 7, 4, NOW - 50, NOW, '{"title":"t","status":"done"}')
    assert outcome == Changed(TASK, after)


def test_a_deletion_is_a_revision_too() -> None:
    outcome = decide(TASK, Asked(Kind.TASKS, "01A", Delete()), NOW)
    assert isinstance(outcome, Changed)
    assert outcome.is_deleted
    assert (outcome.after.revision, outcome.after.updated_at, outcome.after.fields) == (4, NOW, TASK.fields)


@pytest.mark.parametrize(("now_ms", "at"), [(NOW, NOW), (NOW - 10, NOW - 9), (0, NOW - 9)])
def test_a_rows_time_only_grows(now_ms: int, at: int) -> None:
    outcome = decide(TASK, Asked(Kind.TASKS, "01A", Update({"status": "x"})), now_ms)
    assert isinstance(outcome, Changed)
    assert outcome.after.updated_at == at


def test_what_is_set_stays() -> None:
    first = decide(MESSAGE, Asked(Kind.MESSAGES, "01B", SetOnce("read_at", "then")), NOW)
    assert isinstance(first, Changed)
    assert json.loads(first.after.fields) == {"to": "a", "read_at": "then"}
    again = decide(first.after, Asked(Kind.MESSAGES, "01B", SetOnce("read_at", "later")), NOW)
    assert again == Unchanged(first.after)


@pytest.mark.parametrize("change", [Update({"status": "x"}), SetOnce("read_at", "x"), Delete()])
def test_there_is_nothing_to_change_where_nothing_stands(change: Update | SetOnce | Delete) -> None:
    outcome = decide(None, Asked(Kind.TASKS, "01A", change, Expectation(status="todo")), NOW)
    assert isinstance(outcome, Refused)
    assert (outcome.error.code, outcome.current) == ("not_found", None)


@pytest.mark.parametrize(
    ("expected", "code"),
    [
        (NO_OPINION, None),
        (Expectation(), None),
        (Expectation(revisions=(3,)), None),
        (Expectation(revisions=(1, 3)), None),
        (Expectation(revisions=(2, 4)), "stale_version"),
        (Expectation(revisions=()), "stale_version"),
        (Expectation(updated_at=NOW - 10), None),
        (Expectation(updated_at=NOW - 11), "revision_conflict"),
        (Expectation(updated_at=NOW - 9), "revision_conflict"),
        (Expectation(status="todo"), None),
        (Expectation(status="Todo"), "revision_conflict"),
        (Expectation(revisions=(2,), status="other"), "stale_version"),
        (Expectation(revisions=(3,), updated_at=0), "revision_conflict"),
        (Expectation(revisions=(3,), updated_at=NOW - 10, status="todo"), None),
    ],
)
def test_an_expectation_is_met_or_refused_with_the_row_as_it_is(expected: Expectation, code: str | None) -> None:
    refusal = judge(TASK, expected)
    assert (refusal and refusal.code) == code
    for change in (Update({"status": "x"}), Delete()):
        outcome = decide(TASK, Asked(Kind.TASKS, "01A", change, expected), NOW)
        assert isinstance(outcome, Changed if code is None else Refused)
        assert isinstance(outcome, Changed) or outcome.current is TASK  # type: ignore[union-attr]


def test_a_kind_without_a_status_has_none() -> None:
    assert (status_of(TASK), status_of(MESSAGE)) == ("todo", None)
    assert judge(MESSAGE, Expectation(status="todo")) is not None
