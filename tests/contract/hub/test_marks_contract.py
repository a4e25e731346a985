"""A write and the answer under its caller's key are there together, or neither is."""

from collections.abc import Iterator

import pytest

from claudemesh.hub.model import Asked, Expectation, Kind, Shape, Update
from claudemesh.kernel.write_errors import MarkLost
from claudemesh.runtime import points
from tests.contract.hub.backends import House, ulids

pytestmark = pytest.mark.req("R2")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    points.disarm_all()


async def test_the_answer_is_kept_with_the_write(house: House) -> None:
    mark = await house.mark("k")
    made = await house.hub.write(house.creation(Kind.TASKS, ulids.ulid(), mark), mark)
    kept = await house.kept("k")
    assert kept is not None
    assert (kept.status, kept.body) == (201, made.answer.body)
    assert set(kept.headers) == set(made.answer.headers)
    assert mark.is_settled


@pytest.mark.parametrize(
    ("expected", "status"), [(Expectation(status="other"), 409), (Expectation(revisions=(9,)), 412)]
)
async def test_a_conflict_is_not_kept(house: House, expected: Expectation, status: int) -> None:
    row_id = await house.make(status="todo")
    mark = await house.mark("k")
    refused = await house.change(row_id, expected=expected, mark=mark, status="x")
    assert refused.answer.status == status
    assert await house.kept("k") is None
    assert not mark.is_settled


async def test_a_bulk_is_kept_whatever_became_of_its_parts(house: House) -> None:
    mark = await house.mark("k")
    asks = [Asked(Kind.TASKS, "nobody", Update({"status": "x"}))]
    answered = await house.hub.write(house.write(*asks, mark=mark, shape=Shape.LIST), mark)
    kept = await house.kept("k")
    assert kept is not None
    assert kept.body == answered.answer.body


async def test_who_lost_its_mark_writes_nothing(house: House) -> None:
    row_id = await house.make(status="todo")
    slow = await house.mark("k")
    quick = await house.take_over("k")
    with pytest.raises(MarkLost):
        await house.change(row_id, mark=slow, status="slow")
    assert slow.is_lost
    row = await house.hub.get(Kind.TASKS, row_id)
    assert row is not None
    assert row.revision == 1
    assert len(await house.journal()) == 1
    done = await house.change(row_id, mark=quick, status="quick")
    assert done.answer.status == 200
    with pytest.raises(MarkLost):
        await house.change(row_id, mark=slow, status="slow")
    assert [entry["revision"] for entry in await house.journal()] == [1, 2]


async def test_a_lost_mark_costs_its_neighbours_nothing(house: House) -> None:
    row_id = await house.make(status="todo")
    slow = await house.mark("slow")
    await house.take_over("slow")
    marks = [await house.mark(f"k{number}") for number in range(3)]
    first, lost, second, _ = await house.together(
        house.change(row_id, mark=marks[0], status="one"),
        house.change(row_id, mark=slow, status="lost"),
        house.change(row_id, mark=marks[1], status="two"),
        house.make(mark=marks[2]),
    )
    assert isinstance(lost, MarkLost)
    assert [one.answer.status for one in (first, second)] == [200, 200]
    lines = [(entry["base_revision"], entry["revision"]) for entry in await house.journal()]
    assert lines == [(0, 1), (1, 2), (2, 3), (0, 1)]
    for number in range(3):
        assert await house.kept(f"k{number}") is not None


async def test_what_is_not_committed_is_neither_written_nor_kept(stored: House) -> None:
    row_id = await stored.make(status="todo")
    mark = await stored.mark("k")

    def fail() -> None:
        raise RuntimeError("the power is gone")

    points.arm(stored.backend.before_commit, fail)
    with pytest.raises(RuntimeError):
        await stored.change(row_id, mark=mark, status="done")
    points.disarm_all()
    row = await stored.hub.get(Kind.TASKS, row_id)
    assert row is not None
    assert row.revision == 1
    assert await stored.kept("k") is None
    again = await stored.take_over("k")
    assert (await stored.change(row_id, mark=again, status="done")).answer.status == 200
    assert [entry["revision"] for entry in await stored.journal()] == [1, 2]


async def test_a_write_that_breaks_takes_no_neighbour_with_it(stored: House) -> None:
    row_id = await stored.make(status="todo")
    mark = await stored.mark("k")
    good, bad, _ = await stored.together(
        stored.change(row_id, mark=mark, status="done"),
        # A row of this id stands already: nothing but a fault of ours could ask for that.
        stored.hub.write(stored.creation(Kind.TASKS, row_id)),
        stored.make(),
    )
    assert good.answer.status == 200
    assert isinstance(bad, Exception)
    assert await stored.kept("k") is not None
    assert [entry["revision"] for entry in await stored.journal()] == [1, 2, 1]
