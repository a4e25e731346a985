"""The stores of keys as the contract suite sees them, each beside a table of an app: `written`."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import apsw
import asyncpg

from claudemesh.idempotency.mark import Mark
from claudemesh.idempotency.model import Asked, Begun, KeptResponse
from claudemesh.idempotency.policy import derive_settlement
from claudemesh.idempotency.ports import KeyStore
from claudemesh.idempotency.stores.postgres import MIGRATIONS as POSTGRES
from claudemesh.idempotency.stores.postgres import PostgresKeyStore
from claudemesh.idempotency.stores.sqlite import MIGRATIONS as SQLITE
from claudemesh.idempotency.stores.sqlite import SqliteKeyStore
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.fingerprint import fingerprint_http_request
from claudemesh.runtime.dice import roll
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.world import World
from claudemesh.storage.migrate import Migration, in_order
from claudemesh.storage.postgres import Connection, Endpoint
from claudemesh.storage.postgres import Database as PostgresDatabase
from claudemesh.storage.postgres import Schema as PostgresSchema
from claudemesh.storage.sqlite import Database, Schema
from tests.contract.idempotency.oracle import OracleKeyStore, Shelf
from tests.doubles import ManualClock
from tests.services.postgres import installations

BOUND_S = 30
NOW = 1_700_000_000_000
LEASE_MS = 5_000
EXPIRY_MS = 30 * 86_400_000

APP = Migration(1, "app", "CREATE TABLE written (key TEXT NOT NULL)")
CREATED = KeptResponse(201, ((b"content-type", b"application/json"), (b"etag", b'"1"')), b'{"id":"t1"}')


class Refused(Exception):
    """What the app's own transaction fails with."""


def ask(key: str = "k", caller: str = "c", body: bytes = b"{}", **changes: Any) -> Asked:  # noqa: ANN401
    fingerprint = fingerprint_http_request("POST", "/tasks/", "", body)
    asked = Asked(caller, key, "POST", "/tasks/", fingerprint, NOW, NOW + EXPIRY_MS, LEASE_MS, "host", "agent")
    return asked._replace(**changes)


async def begin(store: KeyStore, *args: Any, **fields: Any) -> Mark:  # noqa: ANN401  as `ask`
    begun = await store.begin(ask(*args, **fields))
    assert isinstance(begun, Begun)
    return Mark(store, begun.claim)


async def settle(mark: Mark, response: KeptResponse = CREATED) -> bool:
    return await mark._store.settle(mark.claim, derive_settlement(response))


class Backend(Protocol):
    async def open(self, folder: Path, world: World) -> KeyStore:
        """Open one more worker's store over the same keys."""

    async def pass_time(self, ms: int) -> None:
        """Let time pass also for leases that are judged by a clock of the backend's own."""

    async def write(self, store: Any, *marks: Mark, fails: bool = False) -> list[MeshError | None]:  # noqa: ANN401
        """Write a row for each mark and complete it; the marks may share a transaction, and each has an outcome."""

    async def written(self, store: Any) -> list[str]: ...  # noqa: ANN401


@dataclass
class House:
    backend: Backend
    folder: Path
    clock: ManualClock
    stores: list[KeyStore] = field(default_factory=list)

    @property
    def store(self) -> KeyStore:
        return self.stores[0]

    async def another(self) -> KeyStore:
        world = World(self.clock, UlidSource(self.clock), roll)
        self.stores.append(await self.backend.open(self.folder, world))
        return self.stores[-1]

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        await self.backend.pass_time(ms)

    async def write(self, *marks: Mark, fails: bool = False) -> list[MeshError | None]:
        return await self.backend.write(self.store, *marks, fails=fails)

    async def written(self) -> list[str]:
        return sorted(await self.backend.written(self.store))


@dataclass(frozen=True)
class SqliteBackend:
    group_max: int

    async def open(self, folder: Path, world: World) -> KeyStore:
        schema = Schema(0x74657374, in_order(*SQLITE, APP))
        return SqliteKeyStore(Database.open(folder / "app.db", schema, group_max=self.group_max), world)

    async def pass_time(self, ms: int) -> None: ...

    async def write(self, store: SqliteKeyStore, *marks: Mark, fails: bool = False) -> list[MeshError | None]:
        def operation(connection: apsw.Connection, items: Sequence[Mark]) -> list[None]:
            for mark in items:
                connection.execute("INSERT INTO written VALUES (?)", (mark.key,))
                mark.complete(connection, CREATED)
                if fails:
                    raise Refused
            return [None for _ in items]

        outcomes = await asyncio.gather(
            *(store._database.write(operation, mark) for mark in marks), return_exceptions=True
        )
        return _refusals(outcomes)

    async def written(self, store: SqliteKeyStore) -> list[str]:
        return await store._database.read(lambda c: [row[0] for row in c.execute("SELECT key FROM written")])


@dataclass(frozen=True)
class PostgresBackend:
    dsn: str

    async def open(self, _folder: Path, world: World) -> KeyStore:
        schema = PostgresSchema("app", in_order(*POSTGRES, APP))
        return PostgresKeyStore(await PostgresDatabase.open(Endpoint(self.dsn), schema), world, "app")

    async def pass_time(self, ms: int) -> None:
        await self.execute("UPDATE app.write_idempotency_keys SET lease_until = lease_until - $1", ms)

    async def write(self, store: PostgresKeyStore, *marks: Mark, fails: bool = False) -> list[MeshError | None]:
        async def write_one(mark: Mark) -> None:
            async def operation(connection: Connection) -> None:
                await connection.execute("INSERT INTO app.written VALUES ($1)", mark.key)
                await mark.complete_async(connection, CREATED)
                if fails:
                    raise Refused

            await store._database.transact(operation)

        return _refusals(await asyncio.gather(*map(write_one, marks), return_exceptions=True))

    async def written(self, store: PostgresKeyStore) -> list[str]:
        return [row[0] for row in await store._database.fetch("SELECT key FROM app.written")]

    async def execute(self, sql: str, *values: object) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(sql, *values)
        finally:
            await connection.close()


@dataclass(frozen=True)
class OracleBackend:
    shelf: Shelf = field(default_factory=Shelf)

    async def open(self, _folder: Path, world: World) -> KeyStore:
        return OracleKeyStore(self.shelf, world)

    async def pass_time(self, ms: int) -> None: ...

    async def write(self, _store: OracleKeyStore, *marks: Mark, fails: bool = False) -> list[MeshError | None]:
        outcomes: list[BaseException | None] = []
        for mark in marks:
            try:
                with self.shelf.transaction():
                    self.shelf.written.append(mark.key)
                    mark.complete(self.shelf, CREATED)
                    if fails:
                        raise Refused  # noqa: TRY301  inside, so that it rolls back
            except (MeshError, Refused) as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return _refusals(outcomes)

    async def written(self, _store: OracleKeyStore) -> list[str]:
        return list(self.shelf.written)


def _refusals(outcomes: Sequence[BaseException | None]) -> list[MeshError | None]:
    for outcome in outcomes:
        if outcome is not None and not isinstance(outcome, MeshError | Refused):
            raise outcome
    return [outcome if isinstance(outcome, MeshError) else None for outcome in outcomes]


# Given the DSN of a database that there is for each of the servers.
BACKENDS: dict[str, Callable[[Callable[[str], str]], Backend]] = {
    "sqlite-grouped": lambda _dsn: SqliteBackend(256),
    "sqlite-one-by-one": lambda _dsn: SqliteBackend(1),
    "oracle": lambda _dsn: OracleBackend(),
    **{one.name: lambda dsn, name=one.name: PostgresBackend(dsn(name)) for one in installations()},
}
