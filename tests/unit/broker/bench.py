"""A pump over a delivery store of plain dicts."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from claudemesh.broker.deliver import Pump
from claudemesh.broker.model import Moved, Page, Parcel, Seat, Sender
from claudemesh.kernel.errors import StoreFull, StoreUnavailable
from claudemesh.wire import frames
from tests.contract.broker.backends import BOUND_S, ManualClock

ME = Sender(1, 7)
SEAT = Seat(ME, None, 1)


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
        self.others: set[int] = set()  # what another seat gets
        self.reads = 0
        self.failing = 0  # looks that fail
        self.looked = asyncio.Event()
        self.turns = lambda: 0  # of the loop that a look takes before and after

    def put(self, *parcels: Parcel) -> None:
        self.open |= {one.history_id: one for one in parcels}

    async def page(self, _seat: Seat, after: int, count_max: int, bytes_max: int) -> Page:
        self.reads += 1
        self.looked.set()
        if self.failing:
            self.failing -= 1
            raise StoreUnavailable
        await self._pass()
        found: list[Parcel] = []
        for id_ in sorted(self.open):
            if id_ > after and len(found) < count_max:
                found.append(self.open[id_])
        while len(found) > 1 and sum(len(one.payload) for one in found) > bytes_max:
            found.pop()
        mine = [one for one in found if one.history_id not in self.others]
        await self._pass()
        return Page(mine, found[-1].history_id if found else after)

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

    async def count_attempts(self, _seat: Seat, history_ids: Sequence[int], _now_ms: int) -> list[int]:
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
            SEAT,
            clock=self.clock,
            push=self._push,
            last_life_ms=lambda: self.life,
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

    def acknowledge(self, *history_ids: int) -> None:
        """Say that these arrived; it is written down at once."""
        for id_ in self.pump.acked(history_ids):
            self.shelf.open.pop(id_)
            self.pump.written([id_])

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
