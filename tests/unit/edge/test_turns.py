"""Writes under one name go one after the other, and nobody who gave up holds the others back."""

import asyncio

import pytest

from claudemesh.edge.turns import Turns


async def hold(turns: Turns, names: list[str], said: list[str], who: str, until: asyncio.Event) -> None:
    async with turns.of(names):
        said.append(who)
        await until.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_of_one_name_the_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    turns, said, ends = Turns(), list[str](), [asyncio.Event() for _ in range(3)]
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for who, end in zip("abc", ends, strict=True):
            group.create_task(hold(turns, ["x"], said, who, end))
        for n, end in enumerate(ends, 1):
            await settle()
            assert said == [*"abc"[:n]]
            end.set()
    assert len(turns) == 0, "nothing is kept of a name that nobody waits for"


async def test_those_who_ask_for_the_same_names_in_another_order_do_not_wait_for_each_other() -> None:
    turns, said, end = Turns(), list[str](), asyncio.Event()
    end.set()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for n in range(20):
            names = ["x", "y", "x"] if n % 2 else ["y", "x"]
            group.create_task(hold(turns, names, said, str(n), end))
    assert said == [str(n) for n in range(20)]
    assert len(turns) == 0


@pytest.mark.parametrize("is_its_turn", [True, False])
@pytest.mark.req("R7")
async def test_one_who_gives_up_while_it_waits_is_passed_over(
    is_its_turn: bool,  # noqa: FBT001 - a parameter
) -> None:
    turns, said, end = Turns(), list[str](), asyncio.Event()
    end.set()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        await turns.take("x")
        leaving = group.create_task(hold(turns, ["x"], said, "leaving", end))
        group.create_task(hold(turns, ["x"], said, "last", end))
        await settle()
        if is_its_turn:  # it is told so, and is cancelled before it can take it
            turns.give_back("x")
            leaving.cancel()
        else:
            leaving.cancel()
            turns.give_back("x")
    assert said == ["last"]
    assert len(turns) == 0


async def test_an_error_gives_every_name_back() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="mine"):
        async with turns.of(["x", "y"]):
            raise ValueError("mine")
    assert len(turns) == 0
