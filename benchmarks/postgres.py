"""A broker on PostgreSQL and Redis, beside what the same server does for a bare insert and for pgmq.

The store is measured in this process; the rest goes over WebSockets to a broker in a process of its own, with 256
messages under way. Flushes are those of the server's own log, by its own count.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from uuid import uuid4

import asyncpg

from benchmarks.broker import FAN_OUT, TOPIC, fan_out, furnish, make_message, render_payloads, retry, run_fast
from benchmarks.members import enrol_members, pubkey_of
from benchmarks.nats_peer import measure_deliveries, nats_server
from benchmarks.pgmq_peer import install, measure_insert, measure_send
from benchmarks.processes import Node, node
from benchmarks.redis_peer import redis_server
from benchmarks.report import Figures, measured, say_rate, say_ratio, say_value, scaled
from benchmarks.wire import FRAME, Sink, in_frames, linked, send_all
from claudemesh.broker.model import Accepted, Batch, Sender
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource
from tests.services.postgres import Postgres, private_postgres, wheel

SEVERAL = 64
MANY = 256
BATCH = 64
MESHES = 8
FLUSH_COUNT_S = 1.2  # after which a server has written down what its processes counted

_FLUSHES_SINCE_18 = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
_FLUSHES_BEFORE = "SELECT wal_sync FROM pg_stat_wal"


@dataclass
class Servers:
    postgres: Postgres
    redis: str

    async def flushes(self) -> int:
        await asyncio.sleep(FLUSH_COUNT_S)
        connection = await asyncpg.connect(self.postgres.dsn)
        try:
            since_18 = connection.get_server_version().major >= 18  # noqa: PLR2004  as the name says
            return int(await connection.fetchval(_FLUSHES_SINCE_18 if since_18 else _FLUSHES_BEFORE))
        finally:
            await connection.close()

    @contextmanager
    def broker(self, folder: Path) -> Iterator[Node]:
        """Start a broker on a database of its own."""
        dsn = run_fast(self._create_database(f"bench_{uuid4().hex}"))
        with node(folder, "broker", folder, dsn, f"unix://{self.redis}") as one:
            yield one

    async def _create_database(self, name: str) -> str:
        connection = await asyncpg.connect(self.postgres.dsn)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        return self.postgres.dsn.replace("/postgres?", f"/{name}?")


@contextmanager
def servers() -> Iterator[Servers]:
    with private_postgres(wheel(), max_connections="400") as postgres, redis_server(appendonly="no") as redis:
        yield Servers(postgres, redis.where)


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[PostgresStores]:
    clock = SystemClock()
    stores = await PostgresStores.open(dsn, clock=clock, mint=UlidSource(clock).ulid, render=render_delivery)
    try:
        yield stores
    finally:
        await stores.aclose()


# --- the store --------------------------------------------------------------------------------------


async def measure_store(
    stores: PostgresStores, senders: Sequence[Sender], messages: int, topics: Sequence[str] = (TOPIC,)
) -> float:
    """Return how many messages a second are accepted, of the senders and for the topics in turn, 256 under way."""
    turns = cycle(topics)
    batches = iter(
        [
            Batch(senders[number % len(senders)], tuple(make_message(next(turns)) for _ in range(BATCH)), 0, None)
            for number in range(messages // BATCH)
        ]
    )

    async def accept() -> None:
        for batch in batches:
            for outcome in await stores.accepts.accept(batch):
                assert isinstance(outcome, Accepted)
                assert len(outcome.recipients) == FAN_OUT

    began_s = time.perf_counter()
    await asyncio.gather(*(accept() for _ in range(MANY // BATCH)))
    return messages / (time.perf_counter() - began_s)


async def _measure_stores(there: Servers, scale: float) -> Figures:
    messages = scaled(160, scale, 8) * BATCH
    async with opened(there.postgres.dsn) as stores:
        senders = [await furnish(stores) for _ in range(1 + MESHES)]
        before = await there.flushes()
        one = await measure_store(stores, senders[:1], messages)
        flushes = await there.flushes() - before
        eight = await measure_store(stores, senders[1:], messages)
    return {"store": one, "store_flushes": flushes / messages, "store_eight": eight}


# --- over the wire ----------------------------------------------------------------------------------


async def _post(members: list[Path], posts: list[bytes]) -> float:
    """Post to a topic of eight who are away; return how many are accepted in a second."""
    async with linked(members[0], Sink()) as link:
        began_s = time.perf_counter()
        assert {outcome.status for outcome in await send_all(link, in_frames(posts))} == {201}
        return len(posts) / (time.perf_counter() - began_s)


async def _subscribe(members: list[Path]) -> None:
    for number, member in enumerate(members):
        async with linked(member, Sink()) as link:
            if not number:
                await link.call("topic.create", {"name": TOPIC})
            await link.call("topic.subscribe", {"name": TOPIC})


def measure_broker(there: Servers, scale: float) -> Figures:
    with tempfile.TemporaryDirectory() as name, there.broker(Path(name)) as broker:
        members = enrol_members(Path(name), broker.where, *(f"m{number}" for number in range(FAN_OUT + 1)))
        run_fast(_subscribe(members))
        posts = render_payloads(Kind.TOPIC, TOPIC, scaled(12_000, scale, FRAME))
        before = run_fast(there.flushes())
        rate = run_fast(_post(members, posts))
        found = {"broker": rate, "broker_flushes": (run_fast(there.flushes()) - before) / len(posts)}
    with tempfile.TemporaryDirectory() as name, there.broker(Path(name)) as broker:
        alice, bob = enrol_members(Path(name), broker.where, "alice", "bob")
        direct = render_payloads(Kind.DM, pubkey_of(bob), scaled(12_000, scale, FRAME))
        again = run_fast(retry(broker, alice, in_frames(direct)))
    with tempfile.TemporaryDirectory() as name, there.broker(Path(name)) as broker:
        members = enrol_members(Path(name), broker.where, *(f"m{number}" for number in range(FAN_OUT + 1)))
        delivered = run_fast(
            fan_out(broker, members, render_payloads(Kind.TOPIC, TOPIC, scaled(6_000, scale, FRAME)))
        )
    return found | {name: again[name] for name in ("fresh", "retry")} | {"delivered": delivered["delivered"]}


def one_round(scale: float) -> Figures:
    with servers() as there:
        dsn = there.postgres.dsn
        run_fast(install(dsn))
        found = {
            "bare": run_fast(measure_insert(dsn, scaled(10_000, scale), connections=SEVERAL)),
            "pgmq_64": run_fast(measure_send(dsn, scaled(6_000, scale), connections=SEVERAL)),
            "pgmq_256": run_fast(measure_send(dsn, scaled(6_000, scale), connections=MANY)),
        }
        found |= run_fast(_measure_stores(there, scale))
        found |= measure_broker(there, scale)
    with nats_server() as nats:
        found["nats"] = run_fast(
            measure_deliveries(nats.where, scaled(2_500, scale), consumers=FAN_OUT, in_flight=MANY)
        )
    # Of the two ways to have 256 sends under way, the one that suits the peer better.
    return found | {"pgmq": max(found["pgmq_64"], found["pgmq_256"])}


def run(scale: float) -> None:
    found = measured(lambda: one_round(scale))
    say_rate("bare INSERT of one row, asyncpg, 64 connections (floor)", found["bare"], "rows/s")
    say_rate("pgmq.send of one row, asyncpg, 64 connections", found["pgmq_64"], "msg/s")
    say_rate("pgmq.send of one row, asyncpg, 256 connections", found["pgmq_256"], "msg/s")
    say_rate(
        "store: accept, fan-out 8, batches of 64, 256 under way, one mesh",
        found["store"],
        "msg/s",
        f"{found['store_flushes']:.3f} flushes a message",
    )
    say_rate("the same over 8 meshes", found["store_eight"], "msg/s")
    say_rate(
        "whole broker: WebSocket, B0, Redis limiter, fan-out 8",
        found["broker"],
        "msg/s",
        f"{found['broker_flushes']:.3f} flushes a message",
    )
    say_rate("whole broker: accept of direct messages", found["fresh"], "msg/s")
    say_rate("the same ones again (B0)", found["retry"], "msg/s")
    say_rate("fan-out 1 to 8, acked and written down", found["delivered"], "deliveries/s")
    say_rate("NATS JetStream, sync_interval always, 1 to 8, acked", found["nats"], "deliveries/s")
    say_ratio("store, one mesh / bare insert x64", found.ratio("store", "bare"), at_least=(0.7, 1))
    say_ratio("store, 8 meshes / bare insert x64", found.ratio("store_eight", "bare"))
    say_ratio("whole broker x256, fan-out 8 / pgmq of one row", found.ratio("broker", "pgmq"), at_least=(1, 1.8))
    say_ratio("retry of a committed id / fresh accept", found.ratio("retry", "fresh"), at_least=(2, 4))
    say_ratio("fan-out 1 to 8 / NATS 1 to 8", found.ratio("delivered", "nats"), at_least=(1, 2.5))
    say_value("rounds", "3, each with servers of its own")
