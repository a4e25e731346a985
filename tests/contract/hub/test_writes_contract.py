"""What a write makes of a row, what it is answered, and what the journal says of it afterwards."""

import json
from itertools import pairwise

import pytest

from claudemesh.hub.model import Asked, Delete, Expectation, Kind, SetOnce, Shape, Update
from tests.contract.hub.backends import NOW, House, told, ulids

pytestmark = pytest.mark.req("R2")

AND_SO_ON = "method, path, NULL, NULL, NULL, NULL, fields, deleted FROM hub_write"


async def test_a_row_stands_as_it_was_answered(house: House) -> None:
    row_id = ulids.ulid()
    made = await house.hub.write(
        house.creation(Kind.PROGRESS, row_id, agent="a", summary="grüße", details=[1, None])
    )
    assert made.answer.status == 201
    assert dict(made.answer.headers)[b"etag"] == b'"1"'
    assert told(made) == {
        "id": row_id,
        "agent": "a",
        "summary": "grüße",
        "details": [1, None],
        "revision": 1,
        "created_at": "2023-11-14T22:13:20.000Z",
        "updated_at": "2023-11-14T22:13:20.000Z",
    }
    row = await house.hub.get(Kind.PROGRESS, row_id)
    assert row is not None
    assert (row.revision, row.created_at, row.updated_at) == (1, NOW, NOW)
    assert json.loads(row.fields) == {"agent": "a", "summary": "grüße", "details": [1, None]}


async def test_a_change_keeps_what_it_does_not_name_and_tells_what_was_before(house: House) -> None:
    row_id = await house.make(title="first", status="todo")
    house.clock.advance(7)
    changed = await house.change(row_id, status="done")
    assert changed.answer.status == 200
    assert dict(changed.answer.headers)[b"etag"] == b'"2"'
    assert told(changed) == {
        "id": row_id,
        "title": "first",
        "status": "done",
        "revision": 2,
        "created_at": "2023-11-14T22:13:20.000Z",
        "updated_at": "2023-11-14T22:13:20.007Z",
        "previous": {"revision": 1, "updated_at": "2023-11-14T22:13:20.000Z", "status": "todo"},
    }
    row = await house.hub.get(Kind.TASKS, row_id)
    assert row is not None
    assert json.loads(row.fields) == {"title": "first", "status": "done"}


@pytest.mark.parametrize("step_ms", [0, -3_600_000])
async def test_times_of_a_row_grow_whatever_the_clock_does(house: House, step_ms: int) -> None:
    row_id = await house.make()
    house.clock.wall += step_ms
    for _ in range(3):
        await house.change(row_id, status="again")
    times = [entry["at"] for entry in await house.journal()]
    assert times == [NOW, NOW + 1, NOW + 2, NOW + 3]


@pytest.mark.parametrize(
    ("expected", "status", "code"),
    [
        (Expectation(revisions=(2,)), 200, None),
        (Expectation(revisions=(1, 2)), 200, None),
        (Expectation(revisions=(1,)), 412, "stale_version"),
        (Expectation(revisions=(3,)), 412, "stale_version"),
        (Expectation(revisions=()), 412, "stale_version"),
        (Expectation(updated_at=NOW + 5), 200, None),
        (Expectation(updated_at=NOW), 409, "revision_conflict"),
        (Expectation(updated_at=NOW + 6), 409, "revision_conflict"),
        (Expectation(status="doing"), 200, None),
        (Expectation(status="todo"), 409, "revision_conflict"),
        (Expectation(revisions=(2,), updated_at=NOW + 5, status="doing"), 200, None),
        (Expectation(revisions=(2,), updated_at=NOW + 5, status="todo"), 409, "revision_conflict"),
        (Expectation(revisions=(1,), status="todo"), 412, "stale_version"),
        (Expectation(updated_at=NOW, status="doing"), 409, "revision_conflict"),
    ],
)
@pytest.mark.parametrize("is_delete", [False, True])
async def test_a_write_is_applied_only_to_the_row_that_it_expects(
    house: House, expected: Expectation, status: int, code: str | None, *, is_delete: bool
) -> None:
    row_id = await house.make(status="todo")
    house.clock.advance(5)
    await house.change(row_id, status="doing")
    before = await house.hub.get(Kind.TASKS, row_id)
    answered = await house.change(row_id, Delete() if is_delete else Update({"status": "done"}), expected)
    after = await house.hub.get(Kind.TASKS, row_id)
    if code is None:
        assert answered.answer.status == (204 if is_delete else status)
        assert after != before
        assert len(await house.journal()) == 3
    else:
        assert answered.answer.status == status
        assert told(answered)["code"] == code
        assert told(answered)["current"] == {
            "id": row_id,
            "title": "t",
            "status": "doing",
            "revision": 2,
            "created_at": "2023-11-14T22:13:20.000Z",
            "updated_at": "2023-11-14T22:13:20.005Z",
        }
        assert after == before, "and it was left as it is"
        assert len(await house.journal()) == 2


async def test_of_a_row_that_is_not_there_nothing_changes(house: House) -> None:
    row_id = await house.make(Kind.WORKPLANS, title="t", status="active")
    for change in (Update({"status": "done"}), Delete(), SetOnce("read_at", "now")):
        for kind, wanted in ((Kind.TASKS, row_id), (Kind.WORKPLANS, "nobody"), (Kind.WORKPLANS, row_id.lower())):
            refused = await house.change(wanted, change, kind=kind)
            assert (refused.answer.status, told(refused)["code"]) == (404, "not_found")
            assert "current" not in told(refused)
    assert len(await house.journal()) == 1


async def test_what_is_set_once_keeps_its_first_value(house: House) -> None:
    row_id = await house.make(Kind.MESSAGES, to="a", body="hi", read_at=None)
    first = await house.change(row_id, SetOnce("read_at", "then"), kind=Kind.MESSAGES)
    again = await house.change(row_id, SetOnce("read_at", "later"), kind=Kind.MESSAGES)
    assert (told(first)["read_at"], told(first)["revision"]) == ("then", 2)
    assert told(first)["previous"] == {
        "revision": 1,
        "updated_at": "2023-11-14T22:13:20.000Z",
        "status": None,
    }
    assert {**told(again), "previous": 0} == {**told(first), "previous": 0}, "the same row"
    assert told(again)["previous"]["revision"] == 2
    assert len(await house.journal()) == 2


async def test_what_was_deleted_is_gone_and_its_life_is_kept(house: House) -> None:
    row_id = await house.make(status="todo")
    await house.change(row_id, status="done")
    deleted = await house.delete(row_id)
    assert (deleted.answer.status, deleted.answer.body) == (204, b"")
    assert await house.hub.get(Kind.TASKS, row_id) is None
    assert (await house.hub.page(Kind.TASKS, 0, 10)).rows == []
    assert (await house.delete(row_id)).answer.status == 404
    lines = [(e["base_revision"], e["revision"], e["deleted"], json.loads(e["fields"])["status"])
             for e in await house.journal()]  # fmt: skip
    assert lines == [(0, 1, 0, "todo"), (1, 2, 0, "done"), (2, 3, 1, "done")]


async def test_the_journal_has_every_write_with_where_it_came_from(house: House) -> None:
    mark = await house.mark("key-1")
    row_id = await house.make(status="todo", mark=mark)
    await house.change(row_id, expected=Expectation(status="other"), status="x")
    await house.change(row_id, expected=Expectation((1,), NOW, "todo"), status="doing")
    first, second = await house.journal()
    assert {name: first[name] for name in ("seq", "at", "kind", "entity_id", "method", "path")} == {
        "seq": 1,
        "at": NOW,
        "kind": "tasks",
        "entity_id": row_id,
        "method": "POST",
        "path": "/tasks/",
    }
    assert (first["idempotency_key"], first["source_host"], first["source_agent"]) == ("key-1", "laptop", "codex")
    assert (second["seq"], second["method"], second["idempotency_key"]) == (2, "PATCH", None)
    assert json.loads(second["fields"]) == {"title": "t", "status": "doing"}


async def test_the_journal_says_what_was_expected(stored: House) -> None:
    row_id = await stored.make(status="todo")
    await stored.change(row_id, expected=Expectation((1,), NOW, "todo"), status="doing")
    await stored.change(row_id, status="done")
    said = [entry["expectation"] for entry in await stored.journal()]
    assert said[0] is None
    assert json.loads(said[1]) == {"revisions": [1], "updated_at": "2023-11-14T22:13:20.000Z", "status": "todo"}
    assert said[2] is None


async def test_the_lines_of_a_row_are_a_chain_without_gaps(house: House) -> None:
    ids = [await house.make(title=str(number)) for number in range(3)]
    writing = (house.change(ids[number % 3], status=f"s{number}") for number in range(30))
    await house.together(*writing)
    entries = await house.journal()
    assert [entry["seq"] for entry in entries] == list(range(1, 34))
    for row_id in ids:
        chain = [(e["base_revision"], e["revision"]) for e in entries if e["entity_id"] == row_id]
        assert chain == [(number, number + 1) for number in range(11)]
        row = await house.hub.get(Kind.TASKS, row_id)
        assert row is not None
        assert row.revision == 11
        assert row.fields == next(e["fields"] for e in reversed(entries) if e["entity_id"] == row_id)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE hub_write SET path = '/elsewhere'",
        "DELETE FROM hub_write",
        f"INSERT INTO hub_write SELECT 99, at, kind, entity_id, 5, 7, {AND_SO_ON}",
        f"INSERT INTO hub_write SELECT 99, at, kind, entity_id, 0, 1, {AND_SO_ON}",
    ],
    ids=["update", "delete", "a gap", "a fork"],
)
async def test_nobody_changes_the_journal_afterwards(stored: House, statement: str) -> None:
    await stored.make()
    before = await stored.journal()
    with pytest.raises(Exception, match=r"append-only|constraint|CHECK|UNIQUE"):
        await stored.execute(statement)
    assert await stored.journal() == before


# --- many at once ----------------------------------------------------------------------------------


async def test_in_bulk_each_is_judged_by_itself_and_builds_on_those_before_it(house: House) -> None:
    one, two = await house.make(status="todo"), await house.make(status="todo")
    asks = [
        Asked(Kind.TASKS, one, Update({"status": "doing"}), Expectation(status="todo")),
        Asked(Kind.TASKS, "nobody", Update({"status": "doing"})),
        Asked(Kind.TASKS, two, Update({"status": "doing"}), Expectation(status="blocked")),
        Asked(Kind.TASKS, one, Update({"status": "done"}), Expectation(status="doing")),
        Asked(Kind.TASKS, two, Update({"status": "doing"}), Expectation(updated_at=NOW)),
    ]
    answered = await house.hub.write(house.write(*asks, shape=Shape.LIST))
    assert answered.answer.status == 200
    items = told(answered)["items"]
    assert [(item["id"], item["http_status"]) for item in items] == [
        (one, 200),
        ("nobody", 404),
        (two, 409),
        (one, 200),
        (two, 200),
    ]
    assert items[0]["task"]["previous"]["status"] == "todo"
    assert items[3]["task"]["previous"] == {
        "revision": 2,
        "updated_at": items[0]["task"]["updated_at"],
        "status": "doing",
    }
    assert items[2]["problem"]["code"] == "revision_conflict"
    assert items[2]["problem"]["current"]["status"] == "todo"
    assert [entry["revision"] for entry in await house.journal()] == [1, 1, 2, 3, 2]


async def test_nothing_at_all_in_bulk_is_answered_with_nothing(house: House) -> None:
    answered = await house.hub.write(house.write(shape=Shape.LIST))
    assert (answered.answer.status, told(answered)) == (200, {"items": []})


async def test_of_many_who_expect_the_same_exactly_one_wins(house: House) -> None:
    row_id = await house.make(status="todo")
    expected = Expectation(status="todo")
    racing = (house.change(row_id, expected=expected, status=f"of {number}") for number in range(8))
    answered = await house.together(*racing)
    statuses = sorted(one.answer.status for one in answered)
    assert statuses == [200, *[409] * 7]
    winner = next(told(one) for one in answered if one.answer.status == 200)
    for one in answered:
        if one.answer.status == 409:
            assert told(one)["current"]["status"] == winner["status"]
    assert len(await house.journal()) == 2


async def test_what_was_written_is_there_after_a_restart(house: House) -> None:
    row_id = await house.make(status="todo")
    await house.change(row_id, status="done")
    before = (await house.hub.get(Kind.TASKS, row_id), await house.journal(), await house.hub.summary(5))
    await house.reopen()
    assert (await house.hub.get(Kind.TASKS, row_id), await house.journal(), await house.hub.summary(5)) == before
    await house.change(row_id, status="again")
    assert [entry["seq"] for entry in await house.journal()] == [1, 2, 3]
    assert all(a["seq"] + 1 == b["seq"] for a, b in pairwise(await house.journal()))
