"""What is true of the SQLite engine alone: who shares a commit, when callers are answered, what a reader sees."""

import asyncio
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from claudemesh.kernel.errors import IntegrityError, InvalidRequest, StoreUnavailable
from claudemesh.runtime import points
from claudemesh.runtime.patience import wait_until
from claudemesh.storage.sqlite import Database
from claudemesh.storage.sqlite import writer as writer_module
from claudemesh.storage.sqlite.writer import Operation
from tests.contract.engine.shelf import SCHEMA, SqliteShelf, UnexpectedError, put, refuse, rows

BOUND_S = 30


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[SqliteShelf]:
    opened = SqliteShelf(tmp_path / "shelf.db", group_max=256)
    yield opened
    opened.close()


@pytest.fixture
def commits_tried() -> Iterator[list[int]]:
    """Every commit that was tried, by the number of the trial."""
    tried: list[int] = []
    points.arm("sqlite.before_commit", lambda: tried.append(len(tried)))
    yield tried
    points.disarm_all()


async def test_accepts_claims_and_settles_that_wait_share_one_commit(
    shelf: SqliteShelf, commits_tried: list[int]
) -> None:
    async with shelf.held():
        calls = [shelf.put(f"k{number}", "x") if number % 3 else shelf.drop(f"k{number}") for number in range(100)]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        commits_tried.clear()
    await asyncio.gather(*tasks)
    assert len(commits_tried) == 2  # the one that held the thread, and one for all hundred


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
    shelf: SqliteShelf, commits_tried: list[int]
) -> None:
    async with shelf.held():
        tasks = [
            asyncio.ensure_future(call) for call in (shelf.put("a", "1"), shelf.refuse("b"), shelf.put("c", "3"))
        ]
        await asyncio.sleep(0)
        commits_tried.clear()
    assert isinstance((await asyncio.gather(*tasks, return_exceptions=True))[1], InvalidRequest)
    assert len(commits_tried) == 2
    async with shelf.held():
        calls = (shelf.put("d", "4"), shelf.break_after_write("e"), shelf.put("f", "6"))
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        commits_tried.clear()
    assert isinstance((await asyncio.gather(*tasks, return_exceptions=True))[1], UnexpectedError)
    assert len(commits_tried) == 3  # the holder, then d and f alone; e never came as far as a commit


async def test_nobody_is_answered_before_the_commit_not_even_with_a_refusal(shelf: SqliteShelf) -> None:
    reached, release = threading.Event(), threading.Event()
    before = iter([False, True])  # the one that holds the thread commits first

    def pause() -> None:
        if next(before):
            reached.set()
            release.wait(BOUND_S)

    async with shelf.held():
        waiting = [shelf.database.submit(put, ("b", "2")), shelf.database.submit(refuse, "b")]
        points.arm("sqlite.before_commit", pause)
    try:
        assert await asyncio.to_thread(reached.wait, BOUND_S)
        assert not any(future.done() for future in waiting)
        assert ("b", "2") not in [row[1:] for row in await shelf.rows()]  # nor does a reader see it
    finally:
        points.disarm_all()
        release.set()
    assert waiting[0].result(BOUND_S) == "2"
    assert isinstance(waiting[1].exception(BOUND_S), InvalidRequest)


async def test_a_query_sees_one_moment_however_long_it_takes(shelf: SqliteShelf) -> None:
    await shelf.put("a", "1")
    began, go_on = threading.Event(), threading.Event()

    def look_twice(connection: apsw.Connection) -> tuple[int, int]:
        first = len(rows(connection))
        began.set()
        go_on.wait(BOUND_S)
        return first, len(rows(connection))

    looking = shelf.database.read(look_twice)
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


def too_few(connection: apsw.Connection, items: Sequence[tuple[str, str]]) -> list[str]:
    return put(connection, items)[1:]


def commits(connection: apsw.Connection, items: Sequence[tuple[str, str]]) -> list[str]:
    outcomes = put(connection, items)
    connection.execute("COMMIT")
    return outcomes


def goes_on_in_a_transaction_of_its_own(connection: apsw.Connection, items: Sequence[tuple[str, str]]) -> list[str]:
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    return put(connection, items)


def goes_on_after_sqlite_rolled_back(connection: apsw.Connection, items: Sequence[tuple[str, str]]) -> list[str]:
    with suppress(apsw.ConstraintError):
        connection.execute("INSERT OR ROLLBACK INTO shelf (key, text) SELECT key, text FROM shelf")
    return put(connection, items)


@pytest.mark.parametrize(
    "operation", [too_few, commits, goes_on_in_a_transaction_of_its_own, goes_on_after_sqlite_rolled_back]
)
async def test_an_operation_that_breaks_the_rules_is_found_out_and_leaves_nothing(
    shelf: SqliteShelf, operation: Operation[tuple[str, str], str]
) -> None:
    await shelf.put("before", "0")
    async with shelf.held():
        neighbour = asyncio.ensure_future(shelf.put("neighbour", "1"))
        broken = asyncio.ensure_future(shelf.database.write(operation, ("broken", "2")))
        await asyncio.sleep(0)
    with pytest.raises(IntegrityError):
        await broken
    assert await neighbour == "1"
    assert [row[1:] for row in await shelf.rows()] == [("before", "0"), ("neighbour", "1")]


async def test_whatever_an_operation_raises_reaches_its_caller_and_stops_nobody(shelf: SqliteShelf) -> None:
    for error in (StopIteration(), asyncio.CancelledError(), SystemExit(3), KeyError("x"), MemoryError()):

        def fail(_connection: apsw.Connection, _items: Sequence[None], error: BaseException = error) -> list[None]:
            raise error

        with pytest.raises((RuntimeError, KeyError, MemoryError)):
            await asyncio.wait_for(shelf.database.write(fail, None), BOUND_S)
    outcomes = [StopIteration(), "fine"]
    async with shelf.held():
        tasks = [asyncio.ensure_future(shelf.database.write(answer_with, outcome)) for outcome in outcomes]
        await asyncio.sleep(0)
    assert [type(outcome) for outcome in await asyncio.gather(*tasks, return_exceptions=True)] == [
        RuntimeError,
        str,
    ]


def answer_with(_connection: apsw.Connection, outcomes: Sequence[object]) -> list[object]:
    return list(outcomes)


async def test_the_file_is_locked_before_an_operation_looks(shelf: SqliteShelf) -> None:
    def try_to_lock(_connection: apsw.Connection, items: Sequence[None]) -> list[bool]:
        other = apsw.Connection(str(shelf.path))
        try:
            other.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return [False for _ in items]
        finally:
            other.close()
        return [True for _ in items]

    assert await shelf.database.write(try_to_lock, None) is False


async def test_a_group_never_holds_more_items_than_its_limit(tmp_path: Path, commits_tried: list[int]) -> None:
    shelf = SqliteShelf(tmp_path / "shelf.db", group_max=10)
    async with shelf.held():
        tasks = [asyncio.ensure_future(shelf.put(f"k{number}", "x")) for number in range(21)]
        await asyncio.sleep(0)
        commits_tried.clear()
    await asyncio.gather(*tasks)
    assert len(commits_tried) == 1 + 3  # the holder, then ten, ten and one
    shelf.close()


async def test_a_batch_shares_one_commit_and_has_an_outcome_for_each_item(
    shelf: SqliteShelf, commits_tried: list[int]
) -> None:
    outcomes = await shelf.database.write_many(put, [("a", "1"), ("b", "2"), ("a", "3")])
    assert outcomes == ["1", "2", "1"]
    assert len(commits_tried) == 1
    assert await shelf.database.write_many(put, []) == []
    refusals = await shelf.database.write_many(refuse, ["a", "b"])
    assert [type(outcome) for outcome in refusals] == [InvalidRequest, InvalidRequest]


async def test_one_bad_item_of_a_batch_fails_alone(shelf: SqliteShelf) -> None:
    def insert(connection: apsw.Connection, keys: Sequence[str]) -> list[str]:
        connection.executemany("INSERT INTO shelf (key, text) VALUES (?, 'x')", [(key,) for key in keys])
        return list(keys)

    outcomes = await shelf.database.write_many(insert, ["a", "b", "a", "c"])
    assert [outcome if isinstance(outcome, str) else type(outcome) for outcome in outcomes] == [
        "a",
        "b",
        IntegrityError,
        "c",
    ]
    assert [key for _, key, _ in await shelf.rows()] == ["a", "b", "c"]


async def test_a_batch_is_what_it_was_when_it_was_handed_over(shelf: SqliteShelf) -> None:
    batch = [("a", "1"), ("b", "2")]
    async with shelf.held():
        many = asyncio.ensure_future(shelf.database.write_many(put, batch))
        await asyncio.sleep(0)
        single = asyncio.ensure_future(shelf.put("c", "3"))
        await asyncio.sleep(0)
        batch.clear()
    assert (await many, await single) == (["1", "2"], "3")
    assert await shelf.database.write_many(put, (item for item in [("d", "4")])) == ["4"]


async def test_a_cursor_that_a_broken_operation_left_open_blocks_nobody(shelf: SqliteShelf) -> None:
    def leave_a_cursor(connection: apsw.Connection, items: Sequence[str]) -> list[None]:
        cursor = connection.execute(
            "INSERT INTO shelf (key, text) VALUES (?, 'x'), ('z', 'x') RETURNING key", items
        )
        cursor.fetchone()
        raise UnexpectedError

    async with shelf.held():
        calls = (shelf.put("a", "1"), shelf.database.write(leave_a_cursor, "b"), shelf.put("c", "3"))
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [str, UnexpectedError, str]
    assert await shelf.put("d", "4") == "4"  # while the error is still held


async def test_a_query_that_raises_stop_iteration_is_answered_too(shelf: SqliteShelf) -> None:
    with pytest.raises(RuntimeError):
        await asyncio.wait_for(shelf.database.read(lambda c: next(c.execute("SELECT 1 FROM shelf"))), 10)


def test_a_loop_that_was_closed_while_it_waited_does_not_disturb_the_others(shelf: SqliteShelf) -> None:
    entered, release = threading.Event(), threading.Event()

    def hold(_connection: apsw.Connection, items: Sequence[None]) -> list[None]:
        entered.set()
        release.wait(BOUND_S)
        return list(items)

    async def leave() -> None:
        task = asyncio.ensure_future(shelf.database.write(hold, None))
        await asyncio.to_thread(entered.wait, BOUND_S)
        task.cancel()

    asyncio.run(leave())
    release.set()
    assert shelf.database.write_blocking(put, ("a", "1")) == "1"


def test_an_operation_that_waits_for_its_own_writer_is_told_so(shelf: SqliteShelf) -> None:
    def wait_for_itself(_connection: apsw.Connection, items: Sequence[None]) -> list[str]:
        return [shelf.database.write_blocking(put, ("a", "1")) for _ in items]

    with pytest.raises(RuntimeError, match="for ever"):
        shelf.database.submit(wait_for_itself, None).result(BOUND_S)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # that is what this is about
def test_a_child_of_a_fork_is_told_that_the_writer_is_not_there(shelf: SqliteShelf) -> None:
    child = os.fork()
    if child == 0:  # pragma: no cover  the child reports by its exit code alone
        try:
            shelf.database.write_blocking(put, ("a", "1"))
        except StoreUnavailable:
            with suppress(StoreUnavailable):
                shelf.database.read_blocking(rows)
                os._exit(1)
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_a_future_cannot_be_cancelled_as_if_the_write_had_not_happened(shelf: SqliteShelf) -> None:
    future = shelf.database.submit(put, ("a", "1"))
    assert not future.cancel()
    assert future.result(BOUND_S) == "1"


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
    writer = database._writer

    def wait_for_the_end() -> None:
        """Keep the first group until the store is closed, so that all others stand right before the end."""
        assert wait_until(lambda: writer._is_closed, BOUND_S)
        with writer._accepting:
            pass  # whoever closes it has let go: the end is in the queue

    points.arm("sqlite.before_commit", wait_for_the_end)
    try:
        waiting = [database.submit(put, (f"k{number}", "x")) for number in range(500)]
        database.close()
    finally:
        points.disarm_all()
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


def fill(shelf: SqliteShelf, rounds: int) -> None:
    for round_ in range(rounds):
        futures = [shelf.database.submit(put, (f"{round_}-{number}", "x" * 4000)) for number in range(100)]
        for future in futures:
            future.result(BOUND_S)


def test_the_wal_does_not_grow_without_bound(shelf: SqliteShelf) -> None:
    fill(shelf, 60)
    assert len(shelf.database.read_blocking(rows)) == 6_000  # about 24 MB of texts
    assert Path(f"{shelf.path}-wal").stat().st_size < 20_000_000


@contextmanager
def overlapping_readers(shelf: SqliteShelf) -> Iterator[None]:
    over = threading.Event()

    def read_on(connection: apsw.Connection) -> None:
        connection.execute("SELECT count(*) FROM shelf").fetchall()
        over.wait(0.02)  # one of the two readers always has a snapshot open

    def keep_reading() -> None:
        while not over.is_set():
            shelf.database.read_blocking(read_on)

    readers = [threading.Thread(target=keep_reading) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        over.set()
        for reader in readers:
            reader.join(BOUND_S)


def test_the_wal_does_not_grow_without_bound_while_readers_overlap(
    shelf: SqliteShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "WAL_PAGES_MAX", 1_000)
    monkeypatch.setattr(shelf.database._writer, "_restart_at_pages", 1_000)
    with overlapping_readers(shelf):
        fill(shelf, 60)
        size = Path(f"{shelf.path}-wal").stat().st_size
    assert size < 20_000_000  # of about 26 MB written


def test_readers_that_take_over_each_others_mark_do_not_keep_the_wal_from_beginning_anew(
    shelf: SqliteShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = shelf.database._writer
    assert isinstance(writer, writer_module.Writer)
    limit, restart, found = 500, writer._restart_wal, list[int]()

    def noted() -> None:
        found.append(writer._wal_pages)
        restart()

    monkeypatch.setattr(writer_module, "WAL_PAGES_MAX", limit)
    monkeypatch.setattr(writer, "_restart_at_pages", limit)
    monkeypatch.setattr(writer, "_restart_wal", noted)
    with overlapping_readers(shelf):
        fill(shelf, 300)
    in_vain = [pages for pages in found if pages >= 2 * limit]
    assert len(found) >= 40
    assert len(in_vain) <= 1, "a busy machine may hold a reader up; of long tries a tenth failed"


async def test_a_database_in_memory_behaves_as_one_on_disk_and_leaves_no_file() -> None:
    database = Database.in_memory(SCHEMA)
    try:
        assert await database.write(put, ("a", "one")) == "one"
        assert await database.write_many(put, [("a", "two"), ("b", "three")]) == ["one", "three"]
        rows = await database.read(lambda c: c.execute("SELECT key, text FROM shelf ORDER BY position").fetchall())
        assert rows == [("a", "one"), ("b", "three")]
        with pytest.raises(apsw.SQLError):
            await database.read(lambda c: c.execute("SELECT nonsense").fetchall())
        assert await database.write(put, ("c", "four")) == "four", "a query that fails disturbs nobody"
    finally:
        database.close()
