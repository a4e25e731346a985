"""The bytes of an answer are JSON that says what the row says, whatever the row holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudemesh.hub.model import (
    Asked,
    Changed,
    Delete,
    Expectation,
    Kind,
    Newest,
    Origin,
    Page,
    Refused,
    Row,
    Shape,
    Summary,
    Tally,
    Unchanged,
    Write,
)
from claudemesh.hub.rendering import (
    page_response,
    render_answer,
    render_expectation,
    render_row,
    row_response,
    summary_response,
)
from claudemesh.kernel.errors import NotFound

pytestmark = pytest.mark.req("R2")

NOW = 1_700_000_000_000
WRITE = Write((Asked(Kind.TASKS, "01A", Delete()),), Origin("DELETE", "/x"), NOW)

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts, st.lists)


def task(status: str = "todo", revision: int = 1) -> Row:
    return Row(Kind.TASKS, "01A", 1, revision, NOW, NOW + revision, json.dumps({"title": "t", "status": status}))


@given(st.dictionaries(texts.map("x".__add__), values, min_size=1))
def test_a_row_is_its_fields_and_what_every_row_has(fields: dict[str, object]) -> None:
    row = Row(Kind.PROGRESS, "01A", 1, 7, NOW, NOW + 1, json.dumps(fields, ensure_ascii=False))
    assert json.loads(render_row(row)) == {
        "id": "01A",
        **fields,
        "revision": 7,
        "created_at": "2023-11-14T22:13:20.000Z",
        "updated_at": "2023-11-14T22:13:20.001Z",
    }
    assert json.loads(row_response(row).body) == json.loads(render_row(row))


@given(texts)
def test_what_was_before_is_told_with_its_status(status: str) -> None:
    document = json.loads(render_row(task("done", 2), before=task(status, 1)))
    assert document["previous"] == {"revision": 1, "updated_at": "2023-11-14T22:13:20.001Z", "status": status}


def test_a_deletion_says_nothing() -> None:
    answer = render_answer(WRITE, [Changed(task(), task(revision=2), is_deleted=True)])
    assert (answer.status, answer.body) == (204, b"")


def test_a_bulk_quotes_ids_of_others_safely() -> None:
    write = Write((Asked(Kind.TASKS, 'x"\\', Delete()), WRITE.asks[0]), WRITE.origin, NOW, Shape.LIST)
    items = json.loads(render_answer(write, [Refused(NotFound()), Unchanged(task())]).body)["items"]
    assert [(item["id"], item["http_status"]) for item in items] == [('x"\\', 404), ("01A", 200)]
    assert items[0]["problem"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (Expectation(), None),
        (Expectation(revisions=()), '{"revisions":[]}'),
        (
            Expectation((1, 2), NOW, "todo"),
            '{"revisions":[1,2],"updated_at":"2023-11-14T22:13:20.000Z","status":"todo"}',
        ),
    ],
)
def test_what_was_expected_is_written_down(expected: Expectation, text: str | None) -> None:
    assert render_expectation(expected) == text


def test_a_page_ends_with_where_the_next_begins() -> None:
    assert json.loads(page_response(Page([], None)).body) == {"items": [], "next_cursor": None}
    body = json.loads(page_response(Page([task()], 41)).body)
    assert (len(body["items"]), body["next_cursor"]) == (1, "MTo0MQ")


def test_the_summary_names_every_kind() -> None:
    tallies = [Tally(Kind.TASKS, "done", 2), Tally(Kind.TASKS, "todo", 3), Tally(Kind.PROGRESS, "", 4)]
    newest = [Newest(12, Kind.TASKS, "01A", 3, NOW, deleted=True)]
    document = json.loads(summary_response(Summary(tallies, newest), NOW + 5).body)
    assert set(document["kinds"]) == {str(kind) for kind in Kind}
    assert document["kinds"]["tasks"] == {"count": 5, "by_status": {"done": 2, "todo": 3}}
    assert document["kinds"]["progress"] == {"count": 4, "by_status": {}}
    assert (document["writes"], document["generated_at"]) == (12, "2023-11-14T22:13:20.005Z")
    assert document["newest"][0]["deleted"] is True
    assert json.loads(summary_response(Summary([], []), NOW).body)["writes"] == 0
