"""Several hubs on one database: as if there were one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from claudemesh.hub.model import Expectation, Kind
from tests.contract.hub.backends import BOUND_S, House, PostgresBackend
from tests.contract.hub.conftest import open_house
from tests.services.postgres import installations

pytestmark = pytest.mark.req("R2")


@pytest.fixture(params=[one.name for one in installations()])
async def houses(
    request: pytest.FixtureRequest, hub_dsn: Callable[[str], str], tmp_path: Path
) -> AsyncIterator[tuple[House, House]]:
    backend = PostgresBackend(hub_dsn(request.param))
    one = await open_house(backend, tmp_path)
    two = House(backend, tmp_path, one.clock, await backend.open(tmp_path, one.clock))
    yield one, two
    await one.stores.aclose()
    await two.stores.aclose()


async def test_of_two_hubs_that_expect_the_same_one_wins(houses: tuple[House, House]) -> None:
    one, two = houses
    for _ in range(10):
        row_id = await one.make(status="todo")
        racing = [house.change(row_id, expected=Expectation(status="todo"), status="won") for house in houses]
        async with asyncio.timeout(BOUND_S):
            answered = await asyncio.gather(*racing)
        assert sorted(decision.answer.status for decision in answered) == [200, 409]
        row = await two.hub.get(Kind.TASKS, row_id)
        assert row is not None
        assert row.revision == 2


async def test_two_hubs_that_write_across_each_other_make_one_journal_without_gaps(
    houses: tuple[House, House],
) -> None:
    one, _ = houses
    ids = [await one.make(title=str(number)) for number in range(4)]
    writing = [
        houses[number % 2].change(ids[number * 7 % 4], status=f"s{number}")
        if number % 3
        else houses[number % 2].make()
        for number in range(120)
    ]
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*writing)
    entries = await one.journal()
    assert [entry["seq"] for entry in entries] == list(range(1, 125))
    for row_id in ids:
        chain = [(e["base_revision"], e["revision"]) for e in entries if e["entity_id"] == row_id]
        assert chain == [(number, number + 1) for number in range(len(chain))]


async def test_whoever_follows_a_list_misses_nothing_of_either_hub(houses: tuple[House, House]) -> None:
    one, two = houses
    made: list[str] = []
    seen: list[str] = []
    is_over = asyncio.Event()

    async def write(house: House) -> None:
        made.extend([await house.make() for _ in range(40)])

    async def follow() -> None:
        after = 0
        while True:
            was_over = is_over.is_set()
            page = await one.hub.page(Kind.TASKS, after, 10)
            seen.extend(row.id for row in page.rows)
            after = page.rows[-1].seq if page.rows else after
            if was_over and not page.rows:
                return

    async with asyncio.timeout(BOUND_S):
        following = asyncio.ensure_future(follow())
        await asyncio.gather(write(one), write(two))
        is_over.set()
        await following
    assert sorted(seen) == sorted(made)


async def test_a_line_of_the_journal_says_which_transaction_wrote_it(houses: tuple[House, House]) -> None:
    one, _ = houses
    await one.together(one.make(), one.make())
    rows = await one.backend._run("SELECT count(DISTINCT commit_xid::text), count(*) FROM hub_write")  # type: ignore[attr-defined]
    assert tuple(rows[0]) == (1, 2)
