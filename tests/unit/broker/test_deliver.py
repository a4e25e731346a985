"""The pump: in order, within its window, and never without the store's word."""

import asyncio
import random
from collections.abc import Mapping

import pytest

from claudemesh.broker import deliver
from claudemesh.broker.deliver import AckBook
from claudemesh.broker.model import Moved, Parcel
from tests.contract.broker.backends import BOUND_S, ManualClock
from tests.unit.broker.bench import ME, Shelf, parcel, pumping


async def test_what_is_there_and_what_comes_is_pushed_once_and_in_order() -> None:
    async with pumping() as bench:
        bench.shelf.put(parcel(1), parcel(2))
        bench.pump.wake()
        assert await bench.next() == [1, 2]
        bench.shelf.put(parcel(5))
        bench.pump.wake()
        bench.pump.wake()
        assert await bench.next() == [5]
        await bench.settled()
        assert bench.pushed.empty()


@pytest.mark.req("Q1")
async def test_after_a_look_that_failed_the_next_comes_without_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "RECHECK_MS", 1)
    async with pumping() as bench:
        await bench.settled()
        bench.shelf.failing = 2
        bench.shelf.put(parcel(1))
        bench.pump.wake()
        assert await bench.next() == [1]


async def test_nothing_is_pushed_while_another_connection_is_the_newest() -> None:
    async with pumping() as bench:
        bench.pump.set_active(active=False)
        bench.shelf.put(parcel(1))
        bench.pump.wake()
        await bench.settled()
        assert bench.pushed.empty()
        bench.pump.set_active(active=True)
        assert await bench.next() == [1]


@pytest.mark.req("Q4")
async def test_a_consumer_that_does_not_acknowledge_gets_no_more_than_the_window() -> None:
    async with pumping() as bench:
        bench.shelf.put(*(parcel(n) for n in range(1, 3 * deliver.WINDOW_COUNT)))
        bench.pump.wake()
        got: list[int] = []
        while len(got) < deliver.WINDOW_COUNT:
            got += await bench.next()
        await bench.settled()
        assert got == [*range(1, deliver.WINDOW_COUNT + 1)]
        assert bench.pushed.empty()
        bench.acknowledge(*got[:10])
        assert await bench.next() == [*range(deliver.WINDOW_COUNT + 1, deliver.WINDOW_COUNT + 11)]


@pytest.mark.req("Q4")
async def test_the_window_is_bounded_in_bytes_too() -> None:
    async with pumping() as bench:
        size = 300_000
        bench.shelf.put(*(parcel(n, size) for n in range(1, 101)))
        bench.pump.wake()
        await bench.settled()
        got: list[int] = []
        while not bench.pushed.empty():
            got += bench.pushed.get_nowait()
        assert 1 <= len(got) <= deliver.WINDOW_BYTES // size + 1
        bench.acknowledge(*got)
        assert (await bench.next())[0] == len(got) + 1


@pytest.mark.req("Q1")
async def test_an_unacknowledged_push_counts_and_is_repeated_only_if_the_socket_lived() -> None:
    async with pumping() as bench:
        bench.shelf.put(parcel(1), parcel(2))
        bench.pump.wake()
        assert await bench.next() == [1, 2]
        bench.clock.advance(3_600_000)  # nothing was heard of it since
        bench.pump.wake()
        await bench.settled()
        assert bench.shelf.attempts == {}
        bench.acknowledge(2)
        bench.show_life_after(1)
        assert await bench.next() == [1]
        assert bench.shelf.attempts == {1: 1}


@pytest.mark.req("Q1")
async def test_after_so_many_attempts_it_is_given_up_and_the_next_goes_on() -> None:
    async with pumping() as bench:
        bench.shelf.put(parcel(1))
        bench.pump.wake()
        for _ in range(10):
            assert await bench.next() == [1]
            bench.show_life_after(30_000)
        await bench.settled()
        assert bench.dead == [1]
        bench.shelf.put(parcel(2))
        bench.pump.wake()
        assert await bench.next() == [2]


@pytest.mark.req("Q1")
async def test_an_inbox_that_is_full_gets_nothing_and_counts_nothing() -> None:
    async with pumping() as bench:
        bench.shelf.put(parcel(1))
        bench.pump.wake()
        assert await bench.next() == [1]
        bench.pump.set_paused(paused=True)
        bench.shelf.put(parcel(2))
        bench.show_life_after(3_600_000)
        await bench.settled()
        assert bench.shelf.attempts == {}
        assert bench.pushed.empty()
        bench.pump.set_paused(paused=False)
        assert await bench.next() == [2]


@pytest.mark.req("Q8")
async def test_what_was_offered_during_a_pause_is_pushed_on_the_stores_word_alone() -> None:
    async with pumping() as bench:
        await bench.settled()
        bench.pump.set_paused(paused=True)
        bench.commit(parcel(1))
        bench.shelf.others.add(1)  # its member was revoked, say, and nobody told this broker
        bench.pump.set_paused(paused=False)
        await bench.settled()
        assert bench.pushed.empty()


@pytest.mark.req("Q1")
async def test_what_a_look_finds_that_was_under_way_when_a_pause_began_waits_for_its_end() -> None:
    async with pumping() as bench:
        await bench.settled()
        bench.shelf.turns = lambda: 3
        bench.shelf.put(parcel(1))
        bench.shelf.looked.clear()
        bench.pump.wake()
        async with asyncio.timeout(BOUND_S):
            await bench.shelf.looked.wait()
        bench.pump.set_paused(paused=True)
        await bench.settled()
        assert bench.pushed.empty()
        bench.pump.set_paused(paused=False)
        assert await bench.next() == [1]


async def test_what_is_in_the_window_is_not_pushed_again_with_what_is_overdue() -> None:
    async with pumping() as bench:
        bench.shelf.put(parcel(1))
        bench.pump.wake()
        assert await bench.next() == [1]
        bench.clock.advance(29_000)
        bench.shelf.put(parcel(2))
        bench.pump.wake()
        assert await bench.next() == [2]
        bench.show_life_after(1_000)
        assert await bench.next() == [1]
        await bench.settled()
        assert bench.pushed.empty()


@pytest.mark.req("B6")
async def test_what_is_committed_next_is_pushed_without_a_look_into_the_store() -> None:
    async with pumping() as bench:
        await bench.settled()
        looks = bench.shelf.reads
        for number in (3, 4, 9):
            bench.commit(parcel(number))
            assert await bench.next() == [number]
            bench.acknowledge(number)
        await bench.settled()
        assert bench.shelf.reads == looks
        bench.shelf.put(parcel(12))
        bench.pump.wake()
        bench.commit(parcel(13))
        assert await bench.next() == [12, 13], "what it was not offered comes first"


@pytest.mark.req("Q4")
async def test_what_is_offered_while_nobody_reads_is_left_in_the_store() -> None:
    async with pumping() as bench:
        await bench.settled()
        bench.door.clear()
        for number in range(1, 4 * deliver.OFFERED_MAX):
            bench.commit(parcel(number))
            await asyncio.sleep(0)
            assert len(bench.pump._offered) <= deliver.OFFERED_MAX
        bench.door.set()
        got: list[int] = []
        while len(got) < 4 * deliver.OFFERED_MAX - 1:
            got += await bench.next()
        assert got == [*range(1, 4 * deliver.OFFERED_MAX)]


@pytest.mark.req("Q4")
@pytest.mark.parametrize(("count", "size"), [(deliver.WINDOW_COUNT - 3, 1), (2, 300_000)])
async def test_what_is_offered_fills_the_window_and_no_more(count: int, size: int) -> None:
    async with pumping() as bench:
        bench.shelf.put(*(parcel(number, size) for number in range(1, count + 1)))
        bench.pump.wake()
        await bench.settled()
        for number in range(count + 1, count + 1 + deliver.OFFERED_MAX):
            bench.commit(parcel(number, size))
        await bench.settled()
        got: list[int] = []
        while not bench.pushed.empty():
            got += bench.pushed.get_nowait()
        assert got == [*range(1, min(deliver.WINDOW_COUNT, deliver.WINDOW_BYTES // size + 1) + 1)]


@pytest.mark.req("Q1")
async def test_what_is_offered_after_a_later_one_is_pushed_too() -> None:
    async with pumping() as bench:
        await bench.settled()
        bench.shelf.put(parcel(1), parcel(2))
        bench.pump.offer(parcel(2))
        assert await bench.next() == [2]
        bench.pump.offer(parcel(1))
        assert await bench.next() == [1]
        bench.pump.wake()
        await bench.settled()
        assert bench.pushed.empty()


@pytest.mark.req("Q1")
async def test_of_offers_that_come_together_the_order_is_that_of_the_history() -> None:
    async with pumping() as bench:
        await bench.settled()
        bench.shelf.put(parcel(1), parcel(2))
        bench.pump.offer(parcel(2))
        bench.pump.offer(parcel(1))
        assert await bench.next() == [1, 2]


@pytest.mark.req("Q1")
async def test_what_is_never_offered_is_found_by_the_next_look_behind_a_later_push_too() -> None:
    async with pumping() as bench:
        await bench.settled()
        bench.shelf.put(parcel(1), parcel(2))
        bench.pump.offer(parcel(2))
        assert await bench.next() == [2]
        bench.pump.acked([2])  # its ack is not yet written down
        bench.pump.wake()
        assert await bench.next() == [1]
        await bench.settled()
        assert bench.pushed.empty()


@pytest.mark.req("Q1")
async def test_what_was_pushed_as_offered_and_is_overdue_is_pushed_again() -> None:
    async with pumping() as bench:
        await bench.settled()
        bench.commit(parcel(5))
        assert await bench.next() == [5]
        bench.show_life_after(30_000)
        assert await bench.next() == [5]
        assert bench.shelf.attempts == {5: 1}


@pytest.mark.req("Q1")
async def test_a_rewind_during_a_look_is_not_forgotten() -> None:
    async with pumping() as bench:
        bench.shelf.others.add(1)
        bench.shelf.put(parcel(1), parcel(2))
        bench.pump.wake()
        assert await bench.next() == [2]
        bench.shelf.turns = lambda: 3
        await bench.settled()
        bench.shelf.put(parcel(3))
        bench.shelf.looked.clear()
        bench.pump.wake()
        async with asyncio.timeout(BOUND_S):
            await bench.shelf.looked.wait()
        bench.shelf.others.clear()
        bench.pump.rewind()
        assert await bench.next() == [1, 3]


@pytest.mark.req("Q1")
@pytest.mark.parametrize("seed", range(25))
async def test_in_whatever_order_commits_are_told_each_is_pushed_once(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  the same course for the same seed
    async with pumping() as bench:
        bench.shelf.turns = lambda: dice.randrange(4)
        told: list[Parcel] = []  # committed, and not told yet
        for number in range(1, 60):
            bench.shelf.put(parcel(number))
            told.append(parcel(number))
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)
            while told and dice.random() < 0.6:
                one = told.pop(dice.randrange(len(told)))
                if dice.random() < 0.9:
                    bench.pump.offer(one)
                else:
                    bench.pump.wake()
            bench.acknowledge(dice.randrange(1, number + 1))
        bench.pump.wake()
        got: list[int] = []
        while len(got) < 59:
            got += await bench.next()
        for one in told:
            bench.pump.offer(one)
        await bench.settled()
        assert sorted(got) == [*range(1, 60)]
        assert bench.pushed.empty()


@pytest.mark.req("Q1")
@pytest.mark.parametrize("seed", range(25))
async def test_however_commits_and_looks_interleave_all_is_pushed_once_in_order(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  the same course for the same seed
    async with pumping() as bench:
        bench.shelf.turns = lambda: dice.randrange(4)
        told: list[Parcel] = []  # committed, and about to be told

        async def pause() -> None:
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)

        for number in range(1, 60):
            bench.shelf.put(parcel(number))
            told.append(parcel(number))
            await pause()
            while told and dice.random() < 0.7:
                if dice.random() < 0.8:
                    bench.pump.offer(told.pop(0))
                else:
                    told.pop(0)
                    bench.pump.wake()
                await pause()
            bench.acknowledge(dice.randrange(1, number + 1))
        for one in told:
            bench.pump.offer(one)
        got: list[int] = []
        while len(got) < 59:
            got += await bench.next()
        await bench.settled()
        assert got == [*range(1, 60)]
        assert bench.pushed.empty()


async def test_acks_that_come_together_are_written_together_and_kept_when_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deliver, "RECHECK_MS", 1)
    shelf = Shelf()
    written: asyncio.Future[Mapping[int, Moved]] = asyncio.get_running_loop().create_future()
    book = AckBook(shelf, ME, ManualClock(), written.set_result)
    shelf.is_broken = True
    book.note({1: Moved(3, "c1"), 2: Moved(3, "c2")})
    task = asyncio.create_task(book.run())
    async with asyncio.timeout(BOUND_S):
        await shelf.refused.wait()
        book.note({3: Moved(3, "c3")})
        shelf.is_broken = False
        assert [*await written] == [1, 2, 3]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert shelf.acks == [[1, 2, 3]]


@pytest.mark.req("Q4")
async def test_what_is_acknowledged_and_cannot_be_written_down_takes_up_the_window() -> None:
    async with pumping() as bench:
        bench.shelf.put(*(parcel(n) for n in range(1, 3 * deliver.WINDOW_COUNT)))
        bench.pump.wake()
        got: list[int] = []
        while len(got) < deliver.WINDOW_COUNT:
            got += await bench.next()
        assert [*bench.pump.acked(got)] == got
        await bench.settled()
        assert bench.pushed.empty(), "the store takes no acknowledgement, and gets rid of no message"
        bench.pump.written(got[:10])
        assert await bench.next() == [*range(deliver.WINDOW_COUNT + 1, deliver.WINDOW_COUNT + 11)]


@pytest.mark.req("Q1")
async def test_what_is_acknowledged_is_not_pushed_again_while_that_waits_to_be_written_down() -> None:
    async with pumping() as bench:
        bench.shelf.put(parcel(1), parcel(2))
        bench.pump.wake()
        assert await bench.next() == [1, 2]
        bench.pump.acked([1, 2])
        bench.pump.rewind()
        await bench.settled()
        assert bench.pushed.empty()


@pytest.mark.req("Q1")
async def test_what_is_written_down_during_a_look_that_saw_it_open_is_not_pushed_again() -> None:
    async with pumping() as bench:
        bench.shelf.put(parcel(1))
        bench.pump.wake()
        assert await bench.next() == [1]
        await bench.settled()
        bench.pump.acked([1])
        bench.shelf.turns = lambda: 3
        bench.shelf.looked.clear()
        bench.pump.rewind()
        async with asyncio.timeout(BOUND_S):
            await bench.shelf.looked.wait()
        bench.pump.written([1])  # the look is answered from before this commit
        await bench.settled()
        assert bench.pushed.empty()


@pytest.mark.req("Q1")
async def test_a_rewind_during_the_first_look_is_not_forgotten() -> None:
    async with pumping() as bench:
        bench.shelf.others.add(1)
        bench.shelf.put(parcel(1))
        bench.shelf.turns = lambda: 3
        bench.pump.wake()
        async with asyncio.timeout(BOUND_S):
            await bench.shelf.looked.wait()
            for _ in range(5):  # it has looked, and is about to say so
                await asyncio.sleep(0)
        bench.shelf.others.clear()
        bench.pump.rewind()
        assert await bench.next() == [1]


@pytest.mark.req("Q1")
async def test_a_page_that_is_all_anothers_is_passed_over() -> None:
    async with pumping() as bench:
        count = 2 * deliver.PAGE_COUNT
        bench.shelf.others.update(range(1, count))
        bench.shelf.put(*(parcel(n) for n in range(1, count + 1)))
        bench.pump.wake()
        assert await bench.next() == [count]
