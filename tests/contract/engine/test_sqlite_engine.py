"""What is true of the SQLite engine alone: who shares a commit, when callers are answered, what a reader sees."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from claudemesh.kernel.errors import IntegrityError, InvalidRequest, StoreUnavailable
from claudemesh.runtime import points
from claudemesh.storage.sqlite import Database
from tests.contract.engine.shelf import SCHEMA, SqliteShelf, UnexpectedError, put, rows

BOUND_S = 30


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[SqliteShelf]:
    opened = SqliteShelf(tmp_path / "shelf.db", group_max=256)
    yield opened
    opened.close()


@pytest.fixture
def commits() -> Iterator[list[int]]:
    """Every commit that was tried, by the number of the trial."""
    tried: list[int] = []
    points.arm("sqlite.before_commit", lambda: tried.append(len(tried)))
    yield tried
    points.disarm_all()


async def test_accepts_claims_and_settles_that_wait_share_one_commit(
    shelf: SqliteShelf, commits: list[int]
) -> None:
    async with shelf.held():
        calls = [shelf.put(f"k{number}", "x") if number % 3 else shelf.drop(f"k{number}") for number in range(100)]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        commits.clear()
    await asyncio.gather(*tasks)
    assert len(commits) == 2  # the one that held the thread, and one for all hundred


async def test_neighbours_of_one_operation_arrive_as_one_batch(shelf: SqliteShelf) -> None:
    batches: list[int] = []

    def counting_put(connection: apsw.Connection, items: Sequence[tuple[str, str]]) -> list[str]:
        batches.append(len(items))
        return put(connection, items)

    async with shelf.held():
        tasks = [asyncio.ensure_future(shelf.database.write(counting_put, (f"k{n}", "x"))) for n in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert batches == [50]


async def test_a_refusal_causes_no_rerun_but_a_break_reruns_each_member_alone(
    shelf: SqliteShelf, commits: list[int]
) -> None:
    async with shelf.held():
        tasks = [
            asyncio.ensure_future(call) for call in (shelf.put("a", "1"), shelf.refuse("b"), shelf.put("c", "3"))
        ]
        await asyncio.sleep(0)
        commits.clear()
    assert isinstance((await asyncio.gather(*tasks, return_exceptions=True))[1], InvalidRequest)
    assert len(commits) == 2
    async with shelf.held():
        calls = (shelf.put("d", "4"), shelf.break_after_write("e"), shelf.put("f", "6"))
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        commits.clear()
    assert isinstance((await asyncio.gather(*tasks, return_exceptions=True))[1], UnexpectedError)
    assert len(commits) == 3  # the holder, then d and f alone; e never came as far as a commit


async def test_nobody_is_answered_before_the_commit_not_even_with_a_refusal(shelf: SqliteShelf) -> None:
    reached, release = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        release.wait(BOUND_S)

    points.arm("sqlite.before_commit", pause)
    try:
        accepted = shelf.database.submit(put, ("a", "1"))
        assert reached.wait(BOUND_S)
        assert not accepted.done()
        assert await shelf.rows() == []  # a reader sees nothing of what is not committed
    finally:
        points.disarm_all()
        release.set()
    assert accepted.result(BOUND_S) == "1"
    assert len(await shelf.rows()) == 1


async def test_a_query_sees_one_moment_however_long_it_takes(shelf: SqliteShelf) -> None:
    await shelf.put("a", "1")
    began, go_on = threading.Event(), threading.Event()

    def look_twice(connection: apsw.Connection) -> tuple[int, int]:
        first = len(rows(connection))
        began.set()
        go_on.wait(BOUND_S)
        return first, len(rows(connection))

    looking = asyncio.create_task(shelf.database.read(look_twice))
    assert await asyncio.to_thread(began.wait, BOUND_S)
    await shelf.put("b", "2")
    go_on.set()
    assert await looking == (1, 1)
    assert len(await shelf.rows()) == 2


async def test_a_reader_cannot_write(shelf: SqliteShelf) -> None:
    with pytest.raises(StoreUnavailable):
        await shelf.database.read(lambda connection: put(connection, [("a", "1")]))
    assert await shelf.rows() == []


async def test_a_commit_that_fails_leaves_nothing_and_the_next_one_succeeds(shelf: SqliteShelf) -> None:
    def fail() -> None:
        points.disarm_all()
        raise apsw.IOError("the disk had a bad moment")

    points.arm("sqlite.before_commit", fail)
    with pytest.raises(StoreUnavailable):
        await shelf.put("a", "1")
    assert await shelf.rows() == []
    assert await shelf.put("a", "2") == "2"


@pytest.mark.parametrize(
    "operation",
    [
        lambda connection, items: put(connection, items)[1:],
        lambda connection, items: connection.execute("COMMIT") and put(connection, items),
    ],
    ids=["too few outcomes", "ends the transaction"],
)
async def test_an_operation_that_breaks_the_rules_is_found_out(shelf: SqliteShelf, operation: object) -> None:
    with pytest.raises((IntegrityError, apsw.Error)):
        await shelf.database.write(operation, ("a", "1"))
    assert await shelf.put("b", "2") == "2"


async def test_a_caller_that_gives_up_does_not_disturb_the_others(shelf: SqliteShelf) -> None:
    async with shelf.held():
        gone, stays = asyncio.ensure_future(shelf.put("a", "1")), asyncio.ensure_future(shelf.put("b", "2"))
        await asyncio.sleep(0)
        gone.cancel()
    assert await stays == "2"
    assert [row[1:] for row in await shelf.rows()] == [("a", "1"), ("b", "2")]


def test_callers_in_threads_and_in_several_loops_share_the_writer(shelf: SqliteShelf) -> None:
    async def write_some(name: str) -> list[str]:
        return await asyncio.gather(*(shelf.put(f"{name}{number}", name) for number in range(20)))

    def run_loop(name: str) -> None:
        asyncio.run(write_some(name))

    threads = [threading.Thread(target=run_loop, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    assert [shelf.database.write_blocking(put, (f"x{number}", "x")) for number in range(20)] == ["x"] * 20
    for thread in threads:
        thread.join(BOUND_S)
    assert len(shelf.database.read_blocking(rows)) == 80


def test_a_closed_database_refuses_and_closing_twice_is_fine(tmp_path: Path) -> None:
    with Database.open(tmp_path / "shelf.db", SCHEMA) as database:
        database.write_blocking(put, ("a", "1"))
        assert len(database.read_blocking(rows)) == 1
    database.close()
    with pytest.raises(StoreUnavailable):
        database.write_blocking(put, ("b", "1"))
    with pytest.raises(StoreUnavailable):
        database.read_blocking(rows)


def test_closing_finishes_what_was_submitted(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "shelf.db", SCHEMA)
    waiting = [database.submit(put, (f"k{number}", "x")) for number in range(500)]
    database.close()
    assert [future.result(0) for future in waiting] == ["x"] * 500


def test_a_file_that_somebody_else_holds_is_reported_and_costs_nothing(shelf: SqliteShelf) -> None:
    shelf.database._connection.set_busy_timeout(10)
    other = apsw.Connection(str(shelf.path))
    other.execute("BEGIN IMMEDIATE")
    refused = [shelf.database.submit(put, (f"k{number}", "x")) for number in range(3)]
    for future in refused:
        with pytest.raises(StoreUnavailable):
            future.result(BOUND_S)
    other.execute("ROLLBACK")
    other.close()
    assert shelf.database.write_blocking(put, ("k0", "x")) == "x"


def test_the_wal_does_not_grow_without_bound(shelf: SqliteShelf) -> None:
    wal = Path(f"{shelf.path}-wal")
    for round_ in range(60):
        futures = [shelf.database.submit(put, (f"{round_}-{number}", "x" * 4000)) for number in range(100)]
        for future in futures:
            future.result(BOUND_S)
    assert len(shelf.database.read_blocking(rows)) == 6_000  # about 24 MB of texts
    assert wal.stat().st_size < 20_000_000
