"""The broker's stores as the contract suite sees them. A backend that joins later adds an entry, and no test."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from claudemesh.broker.limiter import MemoryLimiter
from claudemesh.broker.model import Batch, Member, Mesh, Message, Newcomer, Sender
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.policy import present
from claudemesh.broker.ports import Limiter, Stores
from claudemesh.broker.stores.sqlite import SqliteStores
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.fingerprint import Kind, SendRequest
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource
from tests.doubles import ManualClock, held_writer

BOUND_S = 30
NOW = 1_700_000_000_000
EXPIRES = NOW + 365 * 86_400_000

ulids = UlidSource(SystemClock())


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
        return held_writer(self.stores.database)


def _sqlite(group_max: int) -> Callable[[House], SqliteStores]:
    return lambda house: SqliteStores.open(
        house.path, clock=house.clock, mint=ulids.ulid, render=render_delivery, group_max=group_max
    )


BACKENDS = {"sqlite-grouped": _sqlite(256), "sqlite-one-by-one": _sqlite(1)}

LIMITERS: dict[str, Callable[[Clock, int], Limiter]] = {"memory": MemoryLimiter}  # of a clock and a window in ms


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
