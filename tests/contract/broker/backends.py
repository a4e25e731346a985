"""The broker's stores as the contract suite sees them. A backend that joins later adds an entry, and no test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from claudemesh.broker.model import Batch, ConnectionPolicy, Identity, Member, Mesh, Message, Newcomer, Seat, Sender
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.policy import present
from claudemesh.broker.ports import Stores
from claudemesh.broker.presence.model import Arrival, Because, ResumeClaim, Seated
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.broker.stores.sqlite import SqliteStores
from claudemesh.kernel.fingerprint import Kind, SendRequest
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource
from tests.contract.broker.oracle import open_oracle
from tests.doubles import ManualClock, held_writer
from tests.services.postgres import installations

BOUND_S = 30
NOW = 1_700_000_000_000
EXPIRES = NOW + 365 * 86_400_000

# What passes for a lease without a socket.
GRACE = "UPDATE mesh.presence SET lease_until = lease_until - $1 WHERE lease_until IS NOT NULL"

ulids = UlidSource(SystemClock())


class Backend(Protocol):
    async def open(self, folder: Path, clock: ManualClock) -> Stores: ...

    def held(self, stores: Any) -> AbstractAsyncContextManager[None]:  # noqa: ANN401  those that it opened
        """Make all writes called inside wait, so that they can share a transaction."""

    async def pass_time(self, ms: int) -> None:
        """Let time pass also for what is judged by a clock of the backend's own."""

    async def stand_still(self, stores: Any, ms: int) -> int:  # noqa: ANN401  those that it opened
        """Let time pass in which nobody looked; return what a process knows itself of how long it stood still."""

    async def rows(self, stores: Any, sql: str) -> list[tuple[Any, ...]]:  # noqa: ANN401  those that it opened
        """Return what a statement says that both kinds of databases know; nothing, if it is no database."""


@dataclass
class House:
    """Opened stores with what a test needs to drive them."""

    backend: Backend
    folder: Path
    clock: ManualClock
    stores: Stores

    async def reopen(self) -> None:
        await self.stores.aclose()
        self.stores = await self.backend.open(self.folder, self.clock)

    def held(self) -> AbstractAsyncContextManager[None]:
        return self.backend.held(self.stores)

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        await self.backend.pass_time(ms)

    async def stand_still(self, ms: int) -> int:
        """Let time pass in which no broker ran; return how long one knows that it did not."""
        self.clock.advance(ms)
        return await self.backend.stand_still(self.stores, ms)

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await self.backend.rows(self.stores, sql)


@dataclass(frozen=True)
class SqliteBackend:
    group_max: int

    async def open(self, folder: Path, clock: ManualClock) -> Stores:
        return self.open_now(folder, clock)

    def open_now(self, folder: Path, clock: ManualClock) -> SqliteStores:
        return SqliteStores.open(
            folder / "broker.db", clock=clock, mint=ulids.ulid, render=render_delivery, group_max=self.group_max
        )

    def held(self, stores: SqliteStores) -> AbstractAsyncContextManager[None]:
        return held_writer(stores.database)

    async def pass_time(self, ms: int) -> None: ...

    async def stand_still(self, _stores: SqliteStores, ms: int) -> int:
        return ms

    async def rows(self, stores: SqliteStores, sql: str) -> list[tuple[Any, ...]]:
        return await stores.database.read(lambda connection: connection.execute(sql).fetchall())


@dataclass(frozen=True)
class PostgresBackend:
    dsn: str

    async def open(self, _folder: Path, clock: ManualClock) -> Stores:
        return await PostgresStores.open(self.dsn, clock=clock, mint=ulids.ulid, render=render_delivery)

    @asynccontextmanager
    async def held(self, stores: PostgresStores) -> AsyncIterator[None]:
        release = asyncio.Event()
        writers = stores.database._writers
        entered = asyncio.Barrier(len(writers) + 1)

        async def wait(_connection: object, items: Sequence[None]) -> Sequence[None]:
            await entered.wait()
            await release.wait()
            return items

        holding = [writer.submit(wait, None) for writer in writers]
        async with asyncio.timeout(BOUND_S):
            await entered.wait()
        try:
            yield
        finally:
            release.set()
            await asyncio.gather(*holding)

    async def pass_time(self, ms: int) -> None:
        await self.execute(
            "UPDATE mesh.queue_lease SET expires_at = expires_at - $1 WHERE owner_id IS NOT NULL", ms
        )
        await self.execute(f"{GRACE} AND disconnected_at IS NULL", ms)
        await self.execute("UPDATE mesh.presence_clock SET looked_at = mesh.now_ms()")  # brokers looked meanwhile

    async def stand_still(self, _stores: object, ms: int) -> int:
        await self.execute(GRACE, ms)
        await self.execute("UPDATE mesh.presence_clock SET looked_at = looked_at - $1", ms)
        return 0

    async def rows(self, _stores: object, sql: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.dsn, server_settings={"search_path": "mesh"})
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    async def execute(self, sql: str, *values: object) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(sql, *values)
        finally:
            await connection.close()

    async def clear(self) -> None:
        """Make it as it is when it is new; much quicker than a new database."""
        await self.execute(
            "DO $$ DECLARE name text; BEGIN SET LOCAL session_replication_role = replica; "  # no foreign keys
            "FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'mesh' "
            "AND tablename <> 'schema_migration' LOOP EXECUTE 'DELETE FROM mesh.' || name || "
            "CASE name WHEN 'broker_state' THEN ' WHERE name <> ''store_id''' ELSE '' END; END LOOP; END $$"
        )


class OracleBackend:
    async def open(self, folder: Path, clock: ManualClock) -> Stores:
        return await open_oracle(folder, clock)

    def held(self, _stores: object) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def pass_time(self, ms: int) -> None: ...

    async def stand_still(self, _stores: object, ms: int) -> int:
        return ms

    async def rows(self, _stores: object, _sql: str) -> list[tuple[Any, ...]]:
        return []


# Given the DSN of a database that there is for each of the servers.
BACKENDS: dict[str, Callable[[Callable[[str], str]], Backend]] = {
    "sqlite-grouped": lambda _dsn: SqliteBackend(256),
    "sqlite-one-by-one": lambda _dsn: SqliteBackend(1),
    "oracle": lambda _dsn: OracleBackend(),
    **{one.name: lambda dsn, name=one.name: PostgresBackend(dsn(name)) for one in installations()},
}


def open_house(name: str, folder: Path) -> House:
    """Open stores that need nothing but a file, for tests of something else."""
    backend, clock = {"sqlite-grouped": SqliteBackend(256)}[name], ManualClock()
    return House(backend, folder, clock, backend.open_now(folder, clock))


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


async def arrive(  # noqa: PLR0913  what a hello says
    stores: Stores,
    town: Town,
    name: str,
    session: str | None = None,
    instance: str = "one",
    *,
    resumes: Seated | None = None,
    must_resume: bool = False,
    **fields: Any,  # noqa: ANN401  of the identity
) -> Seated:
    """Take a seat for a member, or one of its sessions."""
    identity = Identity(town.mesh, town.members[name], instance, session, **fields)
    claim = None if resumes is None else ResumeClaim(resumes.presence_uid, resumes.lease_token)
    return await stores.seats.take(Arrival(identity, claim, must_resume))


async def seat(stores: Stores, town: Town, name: str, session: str | None = None, instance: str = "one") -> Seat:
    return (await arrive(stores, town, name, session, instance)).seat


async def know_session(stores: Stores, town: Town, name: str, session: str) -> None:
    """Have a session of a member be there for a moment: its key leads to the member from then on."""
    await arrive(stores, town, name, session, is_presence_only=True)
    await stores.presence.end(town[name], session, Because.GOODBYE)


async def settle(stores: Stores, *names: str, slug: str = "demo", policy: ConnectionPolicy | None = None) -> Town:
    """Make a mesh; the first name is the owner's."""
    first, *others = names
    mesh, owner = await stores.directory.create_mesh(ulids.ulid(), slug, newcomer(first))
    if policy is not None:
        mesh = await stores.directory.set_mesh(Sender(mesh.id, owner.id), policy, None)
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
