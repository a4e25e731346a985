"""Whatever happens at two brokers of a store, all that was sent arrives at whoever stays.

Seeded histories over the oracle: connections come, share, take over and go at either broker, and the store answers
late. What the brokers tell each other is heard, and then nobody has to look by itself; or some of it is lost, and
then it is enough that everybody looks once more.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from claudemesh.broker.deliver import Pump
from claudemesh.broker.hub import Hub
from claudemesh.broker.model import Accepted, ConnectionPolicy, Fresh, Identity, Page, Seat
from claudemesh.broker.presence.herald import Herald
from claudemesh.broker.presence.model import Arrival, Departure, Seated
from claudemesh.broker.presence.standstill import Standstill
from claudemesh.broker.seating import Seating
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.rhythm import Rhythm
from claudemesh.runtime.observe import Observer
from claudemesh.wire import frames
from tests.contract.broker.backends import NOW, Town, batch, dm, settle
from tests.contract.broker.oracle import OracleStores, open_oracle
from tests.doubles import ManualClock

BOUND_S = 30
STEPS = 120


class Late:
    """A delivery store whose looks take a while, before and after."""

    def __init__(self, stores: OracleStores, dice: random.Random) -> None:
        self._store = stores.deliveries
        self._dice = dice

    async def page(self, seat: Seat, after: int, count_max: int, bytes_max: int) -> Page:
        await self._pass()
        found = await self._store.page(seat, after, count_max, bytes_max)
        await self._pass()
        return found

    async def _pass(self) -> None:
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)


class Phone:
    """A connection with a pump, and what it was given."""

    def __init__(self, office: "Office", identity: Identity, seat: Seat) -> None:
        self.office, self.identity, self.seat = office, identity, seat
        store: Any = office.looks
        self.got: list[int] = []
        self.pump = Pump(
            store, seat, clock=office.clock, push=self._push, last_life_ms=lambda: 0, gave_up=lambda _: None
        )
        self.running = asyncio.create_task(self.pump.run())
        self.wake, self.offer, self.rewind = self.pump.wake, self.pump.offer, self.pump.rewind

    async def _push(self, text: str) -> None:
        frame = frames.parse_from_broker(text)
        assert isinstance(frame, frames.Deliver)
        self.got += [item.history_id for item in frame.items]

    def set_active(self, active: bool) -> None:  # noqa: FBT001  as the port has it
        self.pump.set_active(active=active)

    def close(self, _code: int, _reason: str) -> None:
        self.office.hang_up(self)

    def tell(self, _text: str) -> None: ...

    def hint(self, _client_message_ids: Sequence[str]) -> None: ...

    async def acknowledge(self, count: int) -> None:
        acked, self.got = self.got[:count], self.got[count:]
        found = self.pump.acked(acked)
        await self.office.stores.deliveries.ack(self.identity.sender, [*found], NOW)
        self.pump.written(found)


class Office:
    """One broker, without its sockets."""

    def __init__(self, stores: OracleStores, clock: ManualClock, dice: random.Random) -> None:
        self.stores, self.clock = stores, clock
        self.looks = Late(stores, dice)
        observer = Observer()
        self.hub = Hub(observer)
        self.board = Switchboard(self.hub, stores.bus, observer)
        standstill = Standstill(clock, Rhythm().tick_ms, stores.presence.stand_still, observer)
        herald = Herald(stores.presence, self.board, Rhythm(), standstill, observer)
        self.seating = Seating(stores.seats, self.hub, self.board, herald, clock, observer)
        self.phones: list[Phone] = []
        self.leaving: set[asyncio.Task[None]] = set()
        stores.bus.listen(self.board.heard, self.board.missed)

    async def call(self, identity: Identity) -> None:
        def join(seated: Seated) -> None:
            phone = Phone(self, identity, seated.seat)
            self.phones.append(phone)
            self.hub.join(phone)

        await self.seating.admit(Arrival(identity), join)

    def hang_up(self, phone: Phone) -> None:
        if phone in self.phones:
            self.phones.remove(phone)
            self.hub.leave(phone)
            phone.running.cancel()
            self.leaving.add(asyncio.create_task(self.seating.leave(Departure(phone.seat.token))))


class History:
    def __init__(self, offices: tuple[Office, Office], town: Town, dice: random.Random, losing: str) -> None:
        self.offices, self.town, self.dice = offices, town, dice
        self.is_losing = losing == "some"
        self.listeners = dict(offices[0].stores.world.listeners)
        self.sent = 0

    async def step(self) -> None:
        office = self.dice.choice(self.offices)
        match self.dice.randrange(10):
            case 0 | 1 | 2 | 3:
                await self.send(office)
            case 4 | 5:
                await office.call(self.someone())
            case 6 if office.phones:
                office.hang_up(self.dice.choice(office.phones))
            case 7 if office.phones:
                await self.dice.choice(office.phones).acknowledge(self.dice.randrange(1, 5))
            case 8 if self.is_losing:
                self.hear(is_heard=self.dice.random() < 0.5)
            case _:
                for _ in range(self.dice.randrange(8)):
                    await asyncio.sleep(0)

    async def send(self, office: Office) -> None:
        self.sent += 1
        letter = dm(f"{self.sent}", "bob")
        [accepted] = await office.stores.accepts.accept(batch(self.town["alice"], letter))
        assert isinstance(accepted, Accepted)
        office.board.committed([Fresh(self.town.members["alice"], letter, accepted, NOW)])

    def someone(self) -> Identity:
        return Identity(self.town.mesh, self.town.members["bob"], f"{self.dice.randrange(4)}")

    def hear(self, *, is_heard: bool) -> None:
        world = self.offices[0].stores.world
        world.listeners.clear()
        world.listeners.update(self.listeners if is_heard else {})

    async def finish(self) -> None:
        """Let some of those who are still there stay, and acknowledge whatever comes until nothing waits."""
        if self.is_losing:
            self.hear(is_heard=True)
            for office in self.offices:
                await office.seating.look_over()
                for phone in office.phones:
                    phone.rewind()
        if not any(office.phones for office in self.offices):
            await self.offices[0].call(self.someone())
        phones = [phone for office in self.offices for phone in office.phones]
        self.dice.shuffle(phones)
        for _ in range(self.dice.randrange(len(phones))):
            leaves = phones.pop()
            leaves.office.hang_up(leaves)
        while await self.offices[0].stores.deliveries.depth():
            await asyncio.sleep(0)
            for phone in phones:
                await phone.acknowledge(len(phone.got))
        for phone in phones:
            phone.office.hang_up(phone)
        await asyncio.gather(*(task for office in self.offices for task in office.leaving))


@pytest.mark.req("Q1")
@pytest.mark.parametrize("policy", [ConnectionPolicy.PREFER_NEWEST, ConnectionPolicy.ALLOW_CONCURRENT])
@pytest.mark.parametrize("losing", ["nothing", "some"])
@pytest.mark.parametrize("seed", range(10))
async def test_all_that_was_sent_arrives_whoever_comes_and_goes_where(
    tmp_path: Path, policy: ConnectionPolicy, losing: str, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311  the same course for the same seed
    clock = ManualClock()
    stores = [await open_oracle(tmp_path, clock) for _ in range(2)]
    town = await settle(stores[0], "alice", "bob")
    mesh = await stores[0].directory.set_mesh(town["alice"], policy, None)
    one, other = (Office(view, clock, dice) for view in stores)
    history = History((one, other), Town(mesh, town.members), dice, losing)
    async with asyncio.timeout(BOUND_S):
        for _ in range(STEPS):
            await history.step()
        await history.finish()
    found = await stores[0].receipts.receipts(town["alice"], [f"{n + 1}" for n in range(history.sent)], [])
    assert [receipt.state for receipt in found] == ["delivered"] * history.sent
    assert stores[0].world.chairs == []
