"""A broker's store in a process of its own, driven by lines: a file must not be open twice in one process.

python -m tests.spark.writer URL
fill 100      accept so many, of every kind; acknowledge, read, lease and answer some of them
old 100       accept so many that are older than retention allows, and acknowledge them
sweep         retention
visit 3       have so many come, one after the other, and go
live          all of that, over and over, until the next line comes
"""

import asyncio
import sys
from itertools import count
from pathlib import Path

from claudemesh.broker.model import Accepted, Claim
from claudemesh.broker.ports import Stores
from claudemesh.broker.upkeep import Upkeep
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.observe import Observer
from tests.contract.broker.backends import (
    PostgresBackend,
    SqliteBackend,
    Town,
    batch,
    dm,
    job,
    post,
    settle,
    subscribe,
)
from tests.contract.pipeline.visits import visit
from tests.doubles import ManualClock

DAY = 86_400_000
NOW = SystemClock().wall_ms()


class Writer:
    def __init__(self, stores: Stores, town: Town, past: Town) -> None:
        self._stores = stores
        self._town = town
        self._past = past  # a mesh of old messages: retention goes by the order of a mesh
        self._ids = count(1)

    @classmethod
    async def begin(cls, stores: Stores) -> "Writer":
        town = await settle(stores, "alice", "bob", "carol", "dave")
        await subscribe(stores, town, "news", "alice", "bob", "carol", "dave")
        await stores.work.create_queue(town["alice"], "jobs", NOW)
        return cls(stores, town, await settle(stores, "ada", "ben", slug="past"))

    async def fill(self, number: int, now_ms: int = NOW) -> None:
        for _ in range(-(-number // 4)):
            id_ = next(self._ids)
            sent = await self._stores.accepts.accept(
                batch(
                    self._town["alice"],
                    dm(f"dm-{id_}", "bob", "a word @carol", meta={"mentions": ["carol"]}),
                    post(f"post-{id_}", "news", "for all"),
                    job(f"job-{id_}", "jobs", "do it"),
                    dm(f"second-{id_}", "carol", "hi"),
                    now_ms=now_ms,
                )
            )
            assert all(isinstance(one, Accepted) for one in sent), sent
            first, second, *_ = sent
            await self._stores.deliveries.ack(self._town["bob"], [first.history_id, second.history_id], now_ms + 3)
            if id_ % 2:
                await self._stores.deliveries.mark_read(self._town["bob"], [first.broker_message_id], now_ms + 4)
                work = await self._stores.work.work(self._town["dave"], "jobs", 60_000, now_ms + 5)
                assert work is not None
                claim = Claim(self._town["dave"], "jobs", work.broker_message_id, work.lease_token)
                await (self._stores.work.ack if id_ % 4 == 1 else self._stores.work.nack)(claim, now_ms + 6)

    async def old(self, number: int) -> None:
        for _ in range(number):
            then = NOW - 400 * DAY
            [sent] = await self._stores.accepts.accept(
                batch(self._past["ada"], dm(f"old-{next(self._ids)}", "ben"), now_ms=then)
            )
            assert isinstance(sent, Accepted)
            await self._stores.deliveries.ack(self._past["ben"], [sent.history_id], then)

    async def visit(self, number: int) -> None:
        for _ in range(number):
            await visit(self._stores, self._town, "carol", f"session-{next(self._ids)}")

    async def sweep(self) -> None:
        stores = self._stores
        await Upkeep(stores.upkeep, stores.work, stores.presence, SystemClock(), Observer(), 365).sweep()

    async def reuse(self) -> None:
        """Give an id up, let it be forgotten, and use it after all."""
        then = NOW - 400 * DAY
        await self._stores.accepts.retire(self._town["alice"], "again", then, then + 1)
        [sent] = await self._stores.accepts.accept(
            batch(self._past["ada"], dm("again", "ben"), now_ms=then, expires_at=then + DAY)
        )
        assert isinstance(sent, Accepted)
        await self._stores.deliveries.ack(self._past["ben"], [sent.history_id], then)
        await self.sweep()
        for town, to in ((self._town, "bob"), (self._past, "ben")):
            first = next(iter(town.members))
            [used] = await self._stores.accepts.accept(batch(town[first], dm("again", to), now_ms=NOW))
            assert isinstance(used, Accepted), used

    async def live(self) -> None:
        await self.old(3)
        await self.fill(8)
        await self.visit(1)
        await self.sweep()


async def main(url: str) -> None:
    is_file = url.startswith("sqlite:///")
    backend = SqliteBackend(256) if is_file else PostgresBackend(url)
    clock = ManualClock()
    clock.wall = NOW
    stores = await backend.open(Path(url.removeprefix("sqlite:///")).parent, clock)
    writer = await Writer.begin(stores)
    print("ready", flush=True)  # noqa: T201 - to whoever started it
    loop = asyncio.get_running_loop()
    line = await loop.run_in_executor(None, sys.stdin.readline)
    while line:
        word, *rest = line.split()
        following = loop.run_in_executor(None, sys.stdin.readline)
        if word == "live":
            while not following.done():
                await writer.live()
                await asyncio.sleep(0.02)  # two cores are all there is for everybody
        else:
            await getattr(writer, word)(*map(int, rest))
        print("done", flush=True)  # noqa: T201 - as above
        line = await following
    await stores.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
