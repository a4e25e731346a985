"""The SQLite engine and the oracle, given the same calls at random, in groups and across restarts, agree."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.engine.shelf import OracleShelf, Shelf, SqliteShelf

CALLS = st.tuples(st.sampled_from(["put", "put", "drop", "refuse", "break_after_write"]), st.sampled_from("abcd"))
GROUPS = st.lists(st.lists(CALLS, max_size=8) | st.just("reopen"), max_size=6)


async def play(shelf: Shelf, groups: list[list[tuple[str, str]] | str]) -> list[object]:
    """Return every answer, and what is on the shelf at the end without the positions (a rerun may leave gaps)."""
    answers: list[object] = []
    for number, group in enumerate(groups):
        if group == "reopen":
            await shelf.reopen()
            continue
        async with shelf.held():
            tasks = []
            for name, key in group:
                arguments = (key, f"{number}-{len(tasks)}") if name == "put" else (key,)
                tasks.append(asyncio.ensure_future(getattr(shelf, name)(*arguments)))
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        answers += [type(outcome) if isinstance(outcome, Exception) else outcome for outcome in outcomes]
    return [*answers, [row[1:] for row in await shelf.rows()]]


@settings(max_examples=150, deadline=None, database=None)
@given(GROUPS, st.sampled_from([1, 3, 256]))
def test_every_answer_and_every_row_is_the_oracles(
    groups: list[list[tuple[str, str]] | str], group_max: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shelf = SqliteShelf(Path(folder) / "shelf.db", group_max)
        try:
            found = asyncio.run(play(shelf, groups))
        finally:
            shelf.close()
    assert found == asyncio.run(play(OracleShelf(), groups))
