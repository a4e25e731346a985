"""What every engine promises, run over each of them and over the oracle."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claudemesh.kernel.errors import InvalidRequest, SchemaTooNew
from tests.contract.engine.shelf import OracleShelf, Shelf, SqliteShelf, UnexpectedError

BACKENDS: dict[str, Callable[[Path], Shelf]] = {
    "sqlite-grouped": lambda path: SqliteShelf(path, group_max=256),
    "sqlite-one-by-one": lambda path: SqliteShelf(path, group_max=1),
    "oracle": lambda _path: OracleShelf(),
}


@pytest.fixture(params=BACKENDS)
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    opened = BACKENDS[request.param](tmp_path / "shelf.db")
    yield opened
    opened.close()


async def together(shelf: Shelf, *calls: Callable[[], object]) -> list[object]:
    """Make the calls in this order, all of them before the first can be applied; errors are outcomes."""
    async with asyncio.timeout(30):
        async with shelf.held():
            tasks = []
            for call in calls:
                tasks.append(asyncio.ensure_future(call()))
                await asyncio.sleep(0)  # the call is made, not finished
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_was_answered_is_there_and_stays_there(shelf: Shelf) -> None:
    assert await shelf.put("a", "1") == "1"
    assert [row[1:] for row in await shelf.rows()] == [("a", "1")]
    await shelf.reopen()
    assert [row[1:] for row in await shelf.rows()] == [("a", "1")]


async def test_calls_are_applied_in_the_order_they_were_made(shelf: Shelf) -> None:
    keys = [f"k{number:03}" for number in range(300)]
    await together(shelf, *(lambda key=key: shelf.put(key, "x") for key in keys))
    assert [key for _, key, _ in await shelf.rows()] == keys


async def test_of_two_calls_for_one_key_in_a_group_the_second_sees_the_first(shelf: Shelf) -> None:
    outcomes = await together(shelf, lambda: shelf.put("a", "first"), lambda: shelf.put("a", "second"))
    assert outcomes == ["first", "first"]
    assert [row[1:] for row in await shelf.rows()] == [("a", "first")]


async def test_different_operations_of_one_group_see_each_other_in_order(shelf: Shelf) -> None:
    outcomes = await together(
        shelf,
        lambda: shelf.put("a", "1"),
        lambda: shelf.drop("a"),
        lambda: shelf.put("a", "2"),
        lambda: shelf.drop("b"),
        lambda: shelf.put("b", "3"),
    )
    assert outcomes == ["1", True, "2", False, "3"]
    assert [row[1:] for row in await shelf.rows()] == [("a", "2"), ("b", "3")]


async def test_one_that_breaks_takes_none_of_its_neighbours_with_it(shelf: Shelf) -> None:
    outcomes = await together(
        shelf,
        lambda: shelf.put("before", "1"),
        lambda: shelf.break_after_write("broken"),
        lambda: shelf.put("broken", "2"),
        lambda: shelf.break_after_write("broken"),
        lambda: shelf.put("after", "3"),
    )
    assert [type(outcome) for outcome in outcomes] == [str, UnexpectedError, str, UnexpectedError, str]
    assert [row[1:] for row in await shelf.rows()] == [("before", "1"), ("broken", "2"), ("after", "3")]


async def test_a_refusal_changes_nothing_and_reaches_only_its_own_caller(shelf: Shelf) -> None:
    outcomes = await together(
        shelf, lambda: shelf.put("a", "1"), lambda: shelf.refuse("a"), lambda: shelf.put("b", "2")
    )
    assert [type(outcome) for outcome in outcomes] == [str, InvalidRequest, str]
    assert [row[1:] for row in await shelf.rows()] == [("a", "1"), ("b", "2")]


async def test_positions_never_go_back_and_are_never_used_again(shelf: Shelf) -> None:
    await shelf.put("a", "1")
    await shelf.put("b", "2")
    await shelf.drop("b")
    await shelf.reopen()
    await shelf.put("c", "3")
    assert [row[:2] for row in await shelf.rows()] == [(1, "a"), (3, "c")]


@pytest.mark.req("D12")
async def test_a_file_of_a_newer_program_is_refused_and_left_alone(shelf: Shelf) -> None:
    await shelf.put("a", "1")
    with pytest.raises(SchemaTooNew):
        await shelf.reopen_as_an_older_program()
    await shelf.reopen()
    assert [row[1:] for row in await shelf.rows()] == [("a", "1")]
