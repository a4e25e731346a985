"""Random histories: whatever is asked in whatever order, a store answers as the oracle does."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from claudemesh.broker.model import Accepted, AcceptOutcome, Duplicate, Message, Sender
from claudemesh.kernel.fingerprint import Kind
from claudemesh.wire.frames import DeliverItem
from tests.contract.broker.backends import BOUND_S, NOW, House, Town, batch, message, settle
from tests.contract.broker.oracle import Oracle

NAMES = ("ann", "ben", "cid", "dot")
TOPICS = ("t1", "t2", "t3")
QUEUES = ("q1", "q2")
STEPS = 60

Check = Callable[[], Awaitable[None]]


def short(outcome: AcceptOutcome) -> object:
    match outcome:
        case Accepted():
            return "accepted", outcome.history_id, frozenset(outcome.recipients)
        case Duplicate():
            return "duplicate", outcome.history_id
        case _:
            return outcome.code


class History:
    """One random history, step by step, on both sides."""

    def __init__(self, house: House, town: Town, seed: int) -> None:
        self.house = house
        self.town = town
        self.dice = random.Random(seed)  # noqa: S311  repeatable, not secret
        keys = {f"key-of-{name}": town[name].member_id for name in NAMES}
        self.oracle = Oracle(keys, topics={topic: set() for topic in TOPICS})

    def any_message(self) -> Message:
        kind = self.dice.choice([*Kind])
        ref = {
            Kind.DM: f"key-of-{self.dice.choice([*NAMES, 'nobody'])}",
            Kind.TOPIC: self.dice.choice([*TOPICS, "nowhere"]),
            Kind.QUEUE: self.dice.choice([*QUEUES, "nothing"]),
        }[kind]
        return message(f"id-{self.dice.randrange(40)}", kind, ref, f"body {self.dice.randrange(3)}")

    def step(self) -> Check:
        """Ask the oracle now; return a call that asks the store and compares."""
        who = self.town[self.dice.choice(NAMES)]
        kinds = (self._accept,) * 4 + (self._subscription, self._queue, self._ack, self._retire)
        return self.dice.choice(kinds)(who)

    def _accept(self, who: Sender) -> Check:
        messages = tuple(self.any_message() for _ in range(self.dice.randint(1, 6)))
        right = self.oracle.accept(who, messages)

        async def accept() -> None:
            found = await self.house.stores.accepts.accept(batch(who, *messages))
            assert [short(one) for one in found] == right

        return accept

    def _subscription(self, who: Sender) -> Check:
        topic, leaves = self.dice.choice(TOPICS), self.dice.random() < 1 / 3
        (set.discard if leaves else set.add)(self.oracle.topics[topic], who.member_id)
        topics = self.house.stores.topics

        async def change() -> None:
            await (topics.unsubscribe(who, topic, NOW) if leaves else topics.subscribe(who, topic))

        return change

    def _queue(self, who: Sender) -> Check:
        queue = self.dice.choice(QUEUES)
        self.oracle.queues.add(queue)

        async def create() -> None:
            await self.house.stores.work.create_queue(who, queue, NOW)

        return create

    def _ack(self, who: Sender) -> Check:
        ids = [self.dice.randint(0, self.oracle.last + 1) for _ in range(self.dice.randint(1, 8))]
        self.oracle.ack(who, ids)

        async def ack() -> None:
            await self.house.stores.deliveries.ack(who, ids, NOW)

        return ack

    def _retire(self, who: Sender) -> Check:
        id_ = f"id-{self.dice.randrange(40)}"
        right = self.oracle.retire(who, id_)

        async def retire() -> None:
            found = await self.house.stores.accepts.retire(who, id_, NOW, None)
            assert (found and found.history_id) == right

        return retire

    async def compare_deliveries(self) -> None:
        for name in NAMES:
            after, count = self.dice.randint(0, self.oracle.last), self.dice.randint(1, 20)
            parcels = await self.house.stores.deliveries.page(self.town[name], after, count, 1 << 30)
            bodies = [msgspec.json.decode(parcel.payload, type=DeliverItem).body for parcel in parcels]
            found = [*zip([parcel.history_id for parcel in parcels], bodies, strict=True)]
            assert found == self.oracle.page(self.town[name], after, count)


@pytest.mark.req("B3", "B4", "B5")
@pytest.mark.parametrize("seed", range(6))
async def test_a_store_answers_as_the_oracle_does(house: House, seed: int, effort: int) -> None:
    for round_ in range(effort):
        town = await settle(house.stores, *NAMES, slug=f"demo-{round_}")
        for topic in TOPICS:
            await house.stores.topics.create_topic(town["ann"], topic, NOW)
        history = History(house, town, seed * 10_007 + round_)
        async with asyncio.timeout(BOUND_S):
            for _ in range(STEPS // 6):
                async with house.held():  # six calls at a time, which may share a transaction
                    tasks = []
                    for _ in range(6):
                        tasks.append(asyncio.ensure_future(history.step()()))
                        await asyncio.sleep(0)  # the call is made, not finished
                await asyncio.gather(*tasks)
                await history.compare_deliveries()
    assert await house.stores.upkeep.check() == []
