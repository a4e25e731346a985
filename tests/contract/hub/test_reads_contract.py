"""Lists page by page, and what there is at a glance."""

import asyncio

import pytest

from claudemesh.hub.model import Delete, Kind, Newest, Page, Tally
from tests.contract.hub.backends import NOW, House

pytestmark = pytest.mark.req("R2")


async def pages(house: House, kind: Kind, limit: int) -> list[Page]:
    found, after = [], 0
    while True:
        found.append(await house.hub.page(kind, after, limit))
        following = found[-1].next_seq
        if following is None:
            return found
        after = following


async def test_rows_come_in_the_order_in_which_they_were_made(house: House) -> None:
    ids = []
    for number in range(7):
        ids.append(await house.make(title=str(number)))
        await house.make(Kind.PROGRESS, agent="a", summary=str(number))
    await house.change(ids[0], status="changed")  # which does not move it
    for limit in (1, 2, 3, 7, 8, 200):
        found = await pages(house, Kind.TASKS, limit)
        assert [row.id for page in found for row in page.rows] == ids
        assert all(len(page.rows) == limit for page in found[:-1])
        assert found[-1].rows, "the last page is not an empty one"


async def test_a_list_without_rows_is_one_empty_page(house: House) -> None:
    await house.make()
    assert await house.hub.page(Kind.DECISIONS, 0, 5) == Page([], None)


async def test_a_row_that_is_deleted_between_two_pages_hides_no_other(house: House) -> None:
    ids = [await house.make(title=str(number)) for number in range(4)]
    first = await house.hub.page(Kind.TASKS, 0, 2)
    assert first.next_seq is not None
    await house.change(ids[1], Delete())
    rest = await house.hub.page(Kind.TASKS, first.next_seq, 2)
    assert [row.id for row in rest.rows] == ids[2:]


async def test_whoever_follows_the_list_misses_nothing_that_is_written_meanwhile(house: House) -> None:
    seen: list[str] = []
    after = 0
    made: list[str] = []
    for _ in range(5):
        writing = [asyncio.ensure_future(house.make(title="x")) for _ in range(6)]
        page = await house.hub.page(Kind.TASKS, after, 4)
        made += await asyncio.gather(*writing)
        seen += [row.id for row in page.rows]
        after = page.rows[-1].seq if page.rows else after
    while (page := await house.hub.page(Kind.TASKS, after, 4)).rows:
        seen += [row.id for row in page.rows]
        after = page.rows[-1].seq
    assert sorted(seen) == sorted(made)


async def test_the_summary_counts_rows_by_kind_and_status(house: House) -> None:
    assert (await house.hub.summary(5)).tallies == []
    tasks = [await house.make(status=status) for status in ("todo", "todo", "done", "todo")]
    await house.make(Kind.MESSAGES, to="a", body="hi", read_at=None)
    await house.make(Kind.DECISIONS, title="d", status="open")
    await house.change(tasks[0], status="done")
    await house.change(tasks[1], status="todo")
    await house.change(tasks[3], Delete())
    summary = await house.hub.summary(3)
    assert summary.tallies == [
        Tally(Kind.DECISIONS, "open", 1),
        Tally(Kind.MESSAGES, "", 1),
        Tally(Kind.TASKS, "done", 2),
        Tally(Kind.TASKS, "todo", 1),
    ]
    assert summary.newest == [
        Newest(9, Kind.TASKS, tasks[3], 2, NOW + 1, deleted=True),
        Newest(8, Kind.TASKS, tasks[1], 2, NOW + 1, deleted=False),
        Newest(7, Kind.TASKS, tasks[0], 2, NOW + 1, deleted=False),
    ]
