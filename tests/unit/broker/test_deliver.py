"""The pump: in order, within its window, and never without the store's word."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from claudemesh.broker import deliver
from claudemesh.broker.deliver import AckBook, Pump
from claudemesh.broker.model import Moved, Parcel, Sender
from claudemesh.kernel.errors import StoreFull
from claudemesh.wire import frames
from tests.contract.broker.backends import BOUND_S, ManualClock

ME = Sender(1, 7)


def parcel(history_id: int, size: int = 100) -> Parcel:
    item = frames.DeliverItem(
        history_id=history_id,
        broker_message_id=f"b{history_id}",
        client_message_id=f"c{history_id}",
        sender_id="s",
        sender_pubkey="k",
        sender_name="n",
        kind="dm",
        ref="me",
        body="x" * size,
        accepted_at=1,
    )
    return Parcel(history_id, 3, f"c{history_id}", msgspec.json.encode(item))


class Shelf:
    """A delivery store of plain dicts."""

    def __init__(self) -> None:
        self.open: dict[int, Parcel] = {}
        self.attempts: dict[int, int] = {}
        self.acks: list[list[int]] = []
        self.is_broken = False
        self.refused = asyncio.Event()
        self.reads = 0
        self.turns = lambda: 0  # of the loop that a look takes before and after

    def put(self, *parcels: Parcel) -> None:
        self.open |= {one.history_id: one for one in parcels}

    async def page(self, _recipient: Sender, after: int, count_max: int, bytes_max: int) -> list[Parcel]:
        self.reads += 1
        await self._pass()
        found: list[Parcel] = []
        for id_ in sorted(self.open):
            if id_ > after and len(found) < count_max:
                found.append(self.open[id_])
        while len(found) > 1 and sum(len(one.payload) for one in found) > bytes_max:
            found.pop()
        await self._pass()
        return found

    async def _pass(self) -> None:
        for _ in range(self.turns()):
            await asyncio.sleep(0)

    async def replay(self, *_: object) -> list[Parcel]:
        return []

    async def ack(self, _recipient: Sender, history_ids: Sequence[int], _now_ms: int) -> None:
        if self.is_broken:
            self.refused.set()
            raise StoreFull
        self.acks.append(sorted(history_ids))
        for id_ in history_ids:
            self.open.pop(id_, None)

    async def count_attempts(self, _recipient: Sender, history_ids: Sequence[int], _now_ms: int) -> list[int]:
        dead = []
        for id_ in history_ids:
            self.attempts[id_] = self.attempts.get(id_, 0) + 1
            if self.attempts[id_] >= 10:
                dead.append(id_)
                self.open.pop(id_, None)
        return dead

    async def mark_read(self, _recipient: Sender, _ids: Sequence[str], _now_ms: int) -> list[Moved]:
        return []

    async def depth(self) -> int:
        return len(self.open)


class Bench:
    """A pump at work, with everything it pushed."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.clock = ManualClock()
        self.life = 0
        self.pushed: asyncio.Queue[list[int]] = asyncio.Queue()
        self.door = asyncio.Event()  # open while the socket takes what is pushed
        self.door.set()
        self.dead: list[int] = []
        self.pump = Pump(
            self.shelf,
            ME,
            clock=self.clock,
            push=self._push,
            last_life_ms=lambda: self.life,
            wants=lambda _: True,
            gave_up=self.dead.extend,
        )

    async def _push(self, text: str) -> None:
        frame = frames.parse_from_broker(text)
        assert isinstance(frame, frames.Deliver)
        await self.door.wait()
        self.pushed.put_nowait([item.history_id for item in frame.items])

    def commit(self, one: Parcel) -> None:
        self.shelf.put(one)
        self.pump.offer(one)

    async def next(self) -> list[int]:
        async with asyncio.timeout(BOUND_S):
            return await self.pushed.get()

    async def settled(self) -> None:
        """Wait until the pump has nothing more to do."""
        async with asyncio.timeout(BOUND_S):
            reads = -1
            while reads != self.shelf.reads or self.pump._bell.is_set():
                reads = self.shelf.reads
                for _ in range(10):
                    await asyncio.sleep(0)

    def show_life_after(self, ms: int) -> None:
        self.clock.advance(ms)
        self.life = self.clock.monotonic_ms()
        self.pump.wake()


@asynccontextmanager
async def pumping() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.pump.set_active(active=True)
    task = asyncio.create_task(bench.pump.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


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
        bench.pump.acked(got[:10])
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
        bench.pump.acked(got)
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
        bench.pump.acked([2])
        bench.shelf.open.pop(2)
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
            bench.pump.acked([number])
            bench.shelf.open.pop(number)
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
            bench.pump.acked([dice.randrange(1, number + 1)])
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
    written: asyncio.Future[list[Parcel]] = asyncio.get_running_loop().create_future()
    book = AckBook(shelf, ME, ManualClock(), written.set_result)
    shelf.is_broken = True
    book.note([parcel(1), parcel(2)])
    task = asyncio.create_task(book.run())
    async with asyncio.timeout(BOUND_S):
        await shelf.refused.wait()
        book.note([parcel(3)])
        shelf.is_broken = False
        assert [one.history_id for one in await written] == [1, 2, 3]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert shelf.acks == [[1, 2, 3]]
