"""A broker: what its store accepts in a second, what a retry costs, and how fast one message becomes eight.

The store is measured in this process, one batch after the other. The rest goes over WebSockets to a broker in a
process of its own, from members that do nothing but send, count and acknowledge, with 256 messages under way.
"""

import asyncio
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from benchmarks.daemon import fresh_run
from benchmarks.engine import measure_bare_sqlite
from benchmarks.members import enrol_members, pubkey_of, until_depth
from benchmarks.messages import SIZE, ids, render_wire_item, text
from benchmarks.processes import Node, node
from benchmarks.report import Figures, Rounds, measured, say_rate, say_ratio, scaled
from benchmarks.wire import FRAME, Sink, in_frames, linked, send_all
from claudemesh.broker.model import Accepted, Batch, Message, Newcomer, Sender
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.policy import present
from claudemesh.broker.ports import Stores
from claudemesh.broker.stores.sqlite import SqliteStores
from claudemesh.kernel.fingerprint import Kind, SendRequest
from claudemesh.runtime import points
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.keys import KeyPair

FAN_OUT = 8
BATCH = 64
TOPIC = "news"

T = TypeVar("T")


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


# --- the store --------------------------------------------------------------------------------------


def measure_store(scale: float) -> Figures:
    commits = 0

    def count() -> None:
        nonlocal commits
        commits += 1

    messages = scaled(100, scale, 5) * BATCH
    with tempfile.TemporaryDirectory() as name:
        clock = SystemClock()
        mint = UlidSource(clock).ulid
        stores = SqliteStores.open(Path(name) / "broker.db", clock=clock, mint=mint, render=render_delivery)
        try:
            sender = run_fast(furnish(stores))
            batches = [
                Batch(sender, tuple(make_message() for _ in range(BATCH)), clock.wall_ms(), None)
                for _ in range(messages // BATCH)
            ]
            points.arm("sqlite.before_commit", count)
            took_s = run_fast(_accept_all(stores, batches))
        finally:
            points.disarm_all()
            stores.database.close()
        bare = measure_bare_sqlite(Path(name), batches=messages // BATCH, batch=BATCH)
    return {"store": messages / took_s, "store_commits": commits / messages, "bare": bare}


async def furnish(stores: Stores) -> Sender:
    """Make a mesh whose owner posts to a topic with eight others."""
    mesh, owner = await stores.directory.create_mesh(fresh_run(), "bench", _newcomer("owner"))
    members = [
        await stores.directory.join(mesh.id, _newcomer(f"m{number}"), "invite", owner.pubkey, FAN_OUT)
        for number in range(FAN_OUT)
    ]
    sender = Sender(mesh.id, owner.id)
    await stores.topics.create_topic(sender, TOPIC, 0)
    for member in (owner, *members):
        await stores.topics.subscribe(Sender(mesh.id, member.id), TOPIC)
    return sender


def _newcomer(name: str) -> Newcomer:
    return Newcomer(uid=fresh_run(), pubkey=KeyPair.generate().pubkey, name=name, name_folded=name, now_ms=0)


_numbered = enumerate(ids(fresh_run()))


def make_message(topic: str = TOPIC) -> Message:
    number, id_ = next(_numbered)
    return present(id_, SendRequest(kind=Kind.TOPIC, ref=topic, body=text(number, SIZE)))


async def _accept_all(stores: SqliteStores, batches: list[Batch]) -> float:
    began_s = time.perf_counter()
    for batch in batches:
        for outcome in await stores.accepts.accept(batch):
            assert isinstance(outcome, Accepted)
            assert len(outcome.recipients) == FAN_OUT
    return time.perf_counter() - began_s


# --- over the wire ----------------------------------------------------------------------------------


def render_payloads(kind: Kind, ref: str, count: int) -> list[bytes]:
    numbered = enumerate(islice(ids(fresh_run()), count))
    return [render_wire_item(kind, ref, id_, number) for number, id_ in numbered]


def measure_retry(scale: float) -> Figures:
    """Accept messages for a member who is away, then the same ones again."""
    with tempfile.TemporaryDirectory() as name, node(Path(name), "broker", Path(name)) as broker:
        alice, bob = enrol_members(Path(name), broker.where, "alice", "bob")
        payloads = render_payloads(Kind.DM, pubkey_of(bob), scaled(12_000, scale, FRAME))
        return run_fast(retry(broker, alice, in_frames(payloads)))


async def retry(broker: Node, alice: Path, frames: list[Any]) -> Figures:
    messages = sum(map(len, frames))
    async with linked(alice, Sink()) as link:
        flushes, began_s = broker.flushes(), time.perf_counter()
        assert {outcome.status for outcome in await send_all(link, frames)} == {201}
        fresh_s, began_s = time.perf_counter() - began_s, time.perf_counter()
        flushes = broker.flushes() - flushes
        assert {outcome.status for outcome in await send_all(link, frames)} == {200}
        retry_s = time.perf_counter() - began_s
    return {"fresh": messages / fresh_s, "fresh_flushes": flushes / messages, "retry": messages / retry_s}


def measure_fan_out(scale: float) -> Figures:
    """One posts, eight receive and acknowledge; over when the broker has written the last ack down."""
    with tempfile.TemporaryDirectory() as name, node(Path(name), "broker", Path(name)) as broker:
        members = enrol_members(Path(name), broker.where, *(f"m{number}" for number in range(FAN_OUT + 1)))
        payloads = render_payloads(Kind.TOPIC, TOPIC, scaled(6_000, scale, FRAME))
        return run_fast(fan_out(broker, members, payloads))


async def fan_out(broker: Node, members: list[Path], payloads: list[bytes]) -> Figures:
    sinks = [Sink() for _ in members]
    async with AsyncExitStack() as stack:
        links = [
            await stack.enter_async_context(linked(member, sink))
            for member, sink in zip(members, sinks, strict=True)
        ]
        await links[0].call("topic.create", {"name": TOPIC})
        for link in links:
            await link.call("topic.subscribe", {"name": TOPIC})
        flushes, began_s = broker.flushes(), time.monotonic()
        outcomes = await send_all(links[0], in_frames(payloads))
        accepted_s = time.monotonic() - began_s
        assert {outcome.status for outcome in outcomes} == {201}
        for sink in sinks[1:]:
            await sink.until(len(payloads))
        took_s = await asyncio.to_thread(until_depth, broker.where, 0) - began_s
        flushes = broker.flushes() - flushes
    return {
        "posted": len(payloads) / accepted_s,
        "delivered": len(payloads) * FAN_OUT / took_s,
        "fan_out_flushes": flushes / len(payloads),
    }


def say_fan_out(found: Rounds) -> None:
    say_rate("posts to a topic of 8, over a WebSocket, while delivering", found["posted"], "msg/s")
    say_rate(
        "fan-out 1 to 8, acked and written down",
        found["delivered"],
        "deliveries/s",
        f"{found['fan_out_flushes']:.3f} flushes a message",
    )


def run(scale: float) -> None:
    found = measured(lambda: measure_store(scale) | measure_retry(scale) | measure_fan_out(scale))
    say_rate("bare SQLite, insert if absent, 64 rows a commit (floor)", found["bare"], "rows/s")
    say_rate(
        "store: accept, fan-out 8, batches of 64",
        found["store"],
        "msg/s",
        f"{found['store_commits']:.3f} commits a message",
    )
    say_rate(
        "accept of direct messages over a WebSocket, 256 under way",
        found["fresh"],
        "msg/s",
        f"{found['fresh_flushes']:.3f} flushes a message",
    )
    say_rate("the same ones again (B0)", found["retry"], "msg/s")
    say_fan_out(found)
    say_ratio(
        "store, fan-out 8, batch 64 / bare insert of one row", found.ratio("store", "bare"), at_least=(0.25, 0.4)
    )
    say_ratio("retry of a committed id / fresh accept", found.ratio("retry", "fresh"), at_least=(2, 4))
