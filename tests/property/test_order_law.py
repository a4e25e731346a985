"""Order per destination holds whatever the broker refuses for a while and whatever the network swallows (D7).

The real outbox and the real sender, against a broker that is all bad luck: it refuses items for now, refuses some
for good, loses answers after it applied a batch, and loses batches. It keeps its side of the rule, which is that
after an answer that is not final the rest for that destination is deferred.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from claudemesh.daemon.drain import Drain
from claudemesh.daemon.model import Destination, SendAsked, Submission
from claudemesh.daemon.policy import fingerprint
from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore
from claudemesh.kernel.errors import BrokerUnreachable
from claudemesh.kernel.fingerprint import Kind
from claudemesh.kernel.ids import ClientMessageId
from claudemesh.kernel.outbox import OutboxState
from claudemesh.runtime.world import World, real_world
from claudemesh.wire.frames import Outcome, SendItem, parse_item, render_item

DESTINATIONS = [Destination(Kind.DM, "a" * 64), Destination(Kind.TOPIC, "news"), Destination(Kind.QUEUE, "builds")]
MESSAGES = 120


class UnluckyBroker:
    """A link and the broker behind it. `up` is told when the connection it broke is back."""

    def __init__(self, luck: random.Random) -> None:
        self._luck = luck
        self.applied: defaultdict[str, list[str]] = defaultdict(list)
        self.refused: set[str] = set()
        self.batches: defaultdict[str, int] = defaultdict(int)  # unanswered, by destination
        self.worst = 0
        self.drops = 0
        self._ids: dict[str, str] = {}
        self._seen: set[str] = set()

    async def send(self, payloads: Sequence[bytes]) -> "asyncio.Future[list[Outcome]]":
        items = [parse_item(payload) for payload in payloads]
        for destination in {item.ref for item in items}:
            self.batches[destination] += 1
        self.worst = max(self.worst, *self.batches.values())
        return asyncio.ensure_future(self._work(items))

    async def call(self, op: str, args: dict[str, Any]) -> Any:  # noqa: ANN401
        raise NotImplementedError(op, args)

    async def _work(self, items: list[SendItem]) -> list[Outcome]:
        try:
            for _ in range(self._luck.randrange(4)):
                await asyncio.sleep(0)
            if self._luck.random() < 0.1:
                self.drops += 1
                raise BrokerUnreachable("lost on the way there")
            outcomes = self._apply(items)
            if self._luck.random() < 0.1:
                self.drops += 1
                raise BrokerUnreachable("lost on the way back")
            return outcomes
        finally:
            for destination in {item.ref for item in items}:
                self.batches[destination] -= 1

    def _apply(self, items: list[SendItem]) -> list[Outcome]:
        deferred: set[str] = set()
        return [self._apply_one(item, deferred) for item in items]

    def _apply_one(self, item: SendItem, deferred: set[str]) -> Outcome:
        key = item.client_message_id
        if key in self._ids:
            return Outcome(status=200, broker_message_id=self._ids[key], history_id=1, duplicate=True)
        if item.ref in deferred:
            return Outcome(status=425, code="predecessor_deferred")
        roll = self._luck.random()
        if roll < 0.15:
            deferred.add(item.ref)
            return Outcome(status=self._luck.choice([408, 429, 500, 503]), code="for_now")
        if key in self.refused or (key not in self._seen and roll < 0.2):
            self.refused.add(key)  # for good: what is wrong with an item itself stays wrong
            return Outcome(status=400, code="invalid_request")
        self._seen.add(key)
        self._ids[key] = f"B-{key}"
        self.applied[item.ref].append(key)
        return Outcome(status=201, broker_message_id=self._ids[key], history_id=len(self._ids))


def a_submission(world: World, number: int, destination: Destination) -> Submission:
    key = ClientMessageId(f"m{number:04}")
    asked = SendAsked(client_message_id=key, to=destination.ref, body=f"body {number}")
    digest = fingerprint(asked, destination)
    item = SendItem(
        client_message_id=key,
        kind=destination.kind,
        ref=destination.ref,
        body=asked.body,
        fingerprint=digest.hex(),
    )
    return Submission(
        row_id=world.ids.ulid(),
        asked=asked,
        destination=destination,
        fingerprint=digest,
        payload=render_item(item),
        enqueued_at=world.clock.wall_ms(),
    )


async def run_one(seed: int, folder: Path) -> tuple[UnluckyBroker, dict[str, list[str]], dict[OutboxState, int]]:
    luck = random.Random(seed)  # noqa: S311  the same seed, the same run
    world = real_world()
    world = World(world.clock, world.ids, lambda: 0.0, world.observer)  # no waiting: every backoff is 0 ms
    outbox = SqliteOutboxStore.open(folder / "outbox.db")
    broker = UnluckyBroker(luck)
    drain = Drain(outbox, world, lambda: 144 * 3_600_000)
    await drain.start()
    running = asyncio.create_task(drain.run())
    asked: defaultdict[str, list[str]] = defaultdict(list)
    try:
        drain.connected(broker)
        for number in range(MESSAGES):
            submission = a_submission(world, number, luck.choice(DESTINATIONS))
            putting = outbox.accept(submission)
            asked[submission.destination.ref].append(submission.asked.client_message_id)
            drain.queued([submission.destination])
            await putting
            drain.connected(broker)
        async with asyncio.timeout(60):
            while (counts := await outbox.counts())[OutboxState.PENDING] + counts[OutboxState.INFLIGHT]:
                drain.connected(broker)  # as after a reconnect
                await asyncio.sleep(0)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await asyncio.to_thread(outbox.close)
    return broker, asked, counts


@pytest.mark.req("D7")
@pytest.mark.parametrize("seed", range(6))
async def test_each_destination_gets_its_messages_in_the_order_they_were_accepted(
    seed: int, tmp_path: Path, effort: int
) -> None:
    for turn in range(effort):
        folder = tmp_path / str(turn)
        folder.mkdir()
        broker, asked, counts = await run_one(seed + 1000 * turn, folder)
        expected = {ref: [key for key in keys if key not in broker.refused] for ref, keys in asked.items()}
        assert {ref: broker.applied[ref] for ref in asked} == expected
        assert counts[OutboxState.DEAD] == len(broker.refused)
        assert broker.worst == 1, "two batches of one destination were out at once"
        assert broker.drops, "this run had no fault to withstand"
