"""The broker's stores as the contract suite sees them. A backend that joins later adds an entry, and no test."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import apsw

from claudemesh.broker.model import Batch, Member, Mesh, Message, Newcomer, Sender
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.policy import present
from claudemesh.broker.ports import (
    AcceptStore,
    DeliveryStore,
    DirectoryStore,
    ReceiptStore,
    TopicStore,
    UpkeepStore,
    WorkStore,
)
from claudemesh.broker.stores.sqlite import SqliteStores
from claudemesh.kernel.fingerprint import Kind, SendRequest
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource

BOUND_S = 30
NOW = 1_700_000_000_000
EXPIRES = NOW + 365 * 86_400_000

ulids = UlidSource(SystemClock())


class ManualClock:
    """A clock that a test turns by hand."""

    def __init__(self) -> None:
        self.wall = NOW
        self.monotonic = 5_000_000

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def advance(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms


class Stores(Protocol):
    accepts: AcceptStore
    deliveries: DeliveryStore
    receipts: ReceiptStore
    directory: DirectoryStore
    topics: TopicStore
    work: WorkStore
    upkeep: UpkeepStore


@dataclass
class House:
    """Opened stores with what a test needs to drive them."""

    path: Path
    clock: ManualClock
    open_stores: Callable[["House"], SqliteStores]
    stores: SqliteStores

    def reopen(self) -> None:
        self.stores.close()
        self.stores = self.open_stores(self)

    def held(self) -> AbstractAsyncContextManager[None]:
        """Make all writes called inside wait, so that they can share a transaction."""
        return _held(self.stores)


@asynccontextmanager
async def _held(stores: SqliteStores) -> AsyncIterator[None]:
    entered, release = threading.Event(), threading.Event()

    def wait(_connection: apsw.Connection, items: Sequence[None]) -> list[None]:
        entered.set()
        release.wait(BOUND_S)
        return list(items)

    holding = stores.database.write(wait, None)
    assert await asyncio.to_thread(entered.wait, BOUND_S)
    try:
        yield
    finally:
        release.set()
        await holding


def _sqlite(group_max: int) -> Callable[[House], SqliteStores]:
    return lambda house: SqliteStores.open(
        house.path, clock=house.clock, mint=ulids.ulid, render=render_delivery, group_max=group_max
    )


BACKENDS = {"sqlite-grouped": _sqlite(256), "sqlite-one-by-one": _sqlite(1)}


def open_house(backend: str, folder: Path) -> House:
    opener = BACKENDS[backend]
    house = House(folder / "broker.db", ManualClock(), opener, None)  # type: ignore[arg-type]
    house.stores = opener(house)
    return house


# --- who and what ----------------------------------------------------------------------------------


def newcomer(name: str) -> Newcomer:
    return Newcomer(uid=ulids.ulid(), pubkey=f"key-of-{name}", name=name, name_folded=name.casefold(), now_ms=NOW)


@dataclass(frozen=True)
class Town:
    """A mesh with members, by name."""

    mesh: Mesh
    members: dict[str, Member]

    def __getitem__(self, name: str) -> Sender:
        return Sender(self.mesh.id, self.members[name].id)


async def settle(stores: Stores, *names: str, slug: str = "demo") -> Town:
    """Make a mesh; the first name is the owner's."""
    first, *others = names
    mesh, owner = await stores.directory.create_mesh(ulids.ulid(), slug, newcomer(first))
    members = {first: owner}
    for name in others:
        members[name] = await stores.directory.join(mesh.id, newcomer(name), "invite", owner.pubkey, 1000)
    return Town(mesh, members)


async def subscribe(stores: Stores, town: Town, topic: str, *names: str) -> None:
    await stores.topics.create_topic(town[names[0]], topic, NOW)
    for name in names:
        await stores.topics.subscribe(town[name], topic)


def message(id_: str, kind: Kind, ref: str, body: str = "hi", **fields: object) -> Message:
    return present(id_, SendRequest(kind=kind, ref=ref, body=body, **fields))  # type: ignore[arg-type]


def dm(id_: str, to: str, body: str = "hi", **fields: object) -> Message:
    return message(id_, Kind.DM, f"key-of-{to}", body, **fields)


def post(id_: str, topic: str, body: str = "hi", **fields: object) -> Message:
    return message(id_, Kind.TOPIC, topic, body, **fields)


def job(id_: str, queue: str, body: str = "hi", **fields: object) -> Message:
    return message(id_, Kind.QUEUE, queue, body, **fields)


def batch(sender: Sender, *messages: Message, now_ms: int = NOW, expires_at: int | None = EXPIRES) -> Batch:
    return Batch(sender, messages, now_ms, expires_at)
