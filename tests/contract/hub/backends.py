"""The hub's stores as the contract suite sees them. A backend that joins later adds an entry, and no test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from claudemesh.hub.draft import Decision
from claudemesh.hub.model import (
    NO_OPINION,
    Asked,
    Change,
    Create,
    Delete,
    Expectation,
    Kind,
    Origin,
    Shape,
    Update,
    Write,
)
from claudemesh.hub.ports import HubStore
from claudemesh.hub.stores.postgres import PostgresStores
from claudemesh.hub.stores.sqlite import SqliteStores
from claudemesh.idempotency import KeptResponse, Mark
from claudemesh.idempotency.model import Asked as AskedKey
from claudemesh.idempotency.model import Begun, Claim, Found
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.world import World
from tests.contract.hub.oracle import OracleHub, OracleKeys
from tests.doubles import ManualClock, held_writer
from tests.services.postgres import installations

BOUND_S = 30
NOW = 1_700_000_000_000
LEASE_MS = 5_000

ulids = UlidSource(SystemClock())

JOURNAL = (
    "SELECT seq, at, kind, entity_id, base_revision, revision, method, path, idempotency_key, source_host, "
    "source_agent, expectation, fields, deleted FROM hub_write ORDER BY seq"
)


def world_of(clock: ManualClock) -> World:
    return World(clock, ulids, lambda: 0.5)


class Backend(Protocol):
    before_commit: str  # the point that a transaction reaches last

    async def open(self, folder: Path, clock: ManualClock) -> Any: ...  # noqa: ANN401  stores of its own kind

    def held(self, stores: Any) -> AbstractAsyncContextManager[None]:  # noqa: ANN401  those that it opened
        """Make all writes called inside wait, so that they can share a transaction."""

    async def journal(self, stores: Any) -> list[dict[str, Any]]:  # noqa: ANN401  as above
        """Return the journal, oldest first."""

    async def execute(self, stores: Any, sql: str) -> None:  # noqa: ANN401  as above
        """Run a statement behind the hub's back."""

    async def begin(self, stores: Any, key: str) -> Begun | Found: ...  # noqa: ANN401  as above

    async def outlive(self, stores: Any, clock: ManualClock) -> None:  # noqa: ANN401  as above
        """Let all marks run out."""


@dataclass(frozen=True)
class SqliteBackend:
    group_max: int
    before_commit: str = "sqlite.before_commit"

    async def open(self, folder: Path, clock: ManualClock) -> SqliteStores:
        return SqliteStores.open(folder / "hub.db", world_of(clock), group_max=self.group_max)

    def held(self, stores: SqliteStores) -> AbstractAsyncContextManager[None]:
        return held_writer(stores.database)

    async def journal(self, stores: SqliteStores) -> list[dict[str, Any]]:
        def query(connection: Any) -> list[dict[str, Any]]:  # noqa: ANN401  an apsw.Connection
            names = JOURNAL.removeprefix("SELECT ").partition(" FROM")[0].split(", ")
            return [dict(zip(names, row, strict=True)) for row in connection.execute(JOURNAL)]

        return await stores.database.read(query)

    async def execute(self, stores: SqliteStores, sql: str) -> None:
        def run(connection: Any, items: Sequence[str]) -> list[None]:  # noqa: ANN401  an apsw.Connection
            return [connection.execute(item).fetchall() and None for item in items]

        await stores.database.write(run, sql)

    async def begin(self, stores: SqliteStores, key: str) -> Begun | Found:
        return await stores.keys.begin(asked_key(key))

    async def outlive(self, _stores: SqliteStores, clock: ManualClock) -> None:
        clock.advance(LEASE_MS + 1)


@dataclass(frozen=True)
class PostgresBackend:
    dsn: str
    before_commit: str = "postgres.before_commit"

    async def open(self, _folder: Path, clock: ManualClock) -> PostgresStores:
        return await PostgresStores.open(self.dsn, world_of(clock))

    @asynccontextmanager
    async def held(self, stores: PostgresStores) -> AsyncIterator[None]:
        entered, release = asyncio.Event(), asyncio.Event()

        async def wait(_connection: object, items: Sequence[None]) -> Sequence[None]:
            entered.set()
            await release.wait()
            return items

        (writer,) = stores.database._writers
        holding = writer.submit(wait, None)
        async with asyncio.timeout(BOUND_S):
            await entered.wait()
        try:
            yield
        finally:
            release.set()
            await holding

    async def journal(self, _stores: PostgresStores) -> list[dict[str, Any]]:
        rows = await self._run(JOURNAL)
        return [{**row, "deleted": int(row["deleted"])} for row in rows]

    async def execute(self, _stores: PostgresStores, sql: str) -> None:
        await self._run(sql)

    async def begin(self, stores: PostgresStores, key: str) -> Begun | Found:
        return await stores.keys.begin(asked_key(key))

    async def outlive(self, _stores: PostgresStores, _clock: ManualClock) -> None:
        await self._run("UPDATE write_idempotency_keys SET lease_until = 0")

    async def clear(self) -> None:
        """Make it as it is when it is new; much quicker than a new database."""
        await self._run(
            "DO $$ DECLARE name text; BEGIN IF to_regclass('hub.hub_write') IS NULL THEN RETURN; END IF; "
            "SET LOCAL session_replication_role = replica; "  # and no triggers
            "DELETE FROM hub_write; DELETE FROM entity; DELETE FROM hub_tally; DELETE FROM write_idempotency_keys; "
            "UPDATE hub_counter SET seq = 0; END $$"
        )

    async def _run(self, sql: str) -> list[Any]:
        connection = await asyncpg.connect(self.dsn, server_settings={"search_path": "hub"})
        try:
            return await connection.fetch(sql)
        finally:
            await connection.close()


@dataclass
class OracleStores:
    hub: OracleHub = field(default_factory=OracleHub)
    keys: Any = field(default_factory=OracleKeys)

    async def aclose(self) -> None: ...


class OracleBackend:
    before_commit = ""

    def __init__(self) -> None:
        self._stores = OracleStores()

    async def open(self, _folder: Path, _clock: ManualClock) -> OracleStores:
        return self._stores

    def held(self, _stores: object) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def journal(self, stores: OracleStores) -> list[dict[str, Any]]:
        return stores.hub.journal

    async def execute(self, _stores: OracleStores, sql: str) -> None:
        raise AssertionError(f"it knows no SQL: {sql}")

    async def begin(self, stores: OracleStores, key: str) -> Begun | Found:
        token, kept = stores.keys.marks.get(key, (0, None))
        if kept is not None:
            return Found("settled", Fingerprint(bytes(32)), kept)  # type: ignore[arg-type]
        stores.keys.marks[key] = (token + 1, None)
        return Begun(Claim("", key, "", token + 1))

    async def outlive(self, _stores: OracleStores, _clock: ManualClock) -> None: ...


# Given the DSN of a database that there is for each of the servers.
DATABASES: dict[str, Callable[[Callable[[str], str]], Backend]] = {
    "sqlite-grouped": lambda _dsn: SqliteBackend(256),
    "sqlite-one-by-one": lambda _dsn: SqliteBackend(1),
    **{one.name: lambda dsn, name=one.name: PostgresBackend(dsn(name)) for one in installations()},
}
BACKENDS: dict[str, Callable[[Callable[[str], str]], Backend]] = {
    **DATABASES,
    "oracle": lambda _dsn: OracleBackend(),
}


def asked_key(key: str) -> AskedKey:
    return AskedKey("", key, "POST", "/", Fingerprint(bytes(32)), NOW, NOW + 30 * 86_400_000, LEASE_MS)


# --- a hub in the hands of a test ------------------------------------------------------------------


@dataclass
class House:
    backend: Backend
    folder: Path
    clock: ManualClock
    stores: Any
    _numbers: Any = field(default_factory=count)

    @property
    def hub(self) -> HubStore:
        hub: HubStore = self.stores.hub
        return hub

    async def reopen(self) -> None:
        await self.stores.aclose()
        self.stores = await self.backend.open(self.folder, self.clock)

    def held(self) -> AbstractAsyncContextManager[None]:
        return self.backend.held(self.stores)

    async def together(self, *writing: Coroutine[Any, Any, Any]) -> list[Any]:
        """Run them so that they can share a transaction; return what each returned or raised."""
        async with self.held():
            tasks = [asyncio.ensure_future(one) for one in writing]
            await asyncio.sleep(0)  # each has submitted, in this order
        async with asyncio.timeout(BOUND_S):
            return await asyncio.gather(*tasks, return_exceptions=True)

    async def journal(self) -> list[dict[str, Any]]:
        return await self.backend.journal(self.stores)

    async def execute(self, sql: str) -> None:
        await self.backend.execute(self.stores, sql)

    # --- keys ---------------------------------------------------------------------------------------

    async def mark(self, key: str) -> Mark:
        begun = await self.backend.begin(self.stores, key)
        assert isinstance(begun, Begun), begun
        return Mark(self.stores.keys, begun.claim)

    async def take_over(self, key: str) -> Mark:
        """Have another worker take the key over from one that does not renew it."""
        await self.backend.outlive(self.stores, self.clock)
        return await self.mark(key)

    async def kept(self, key: str) -> KeptResponse | None:
        """Return what the next who asks under the key is given; None if it may begin, or has to wait."""
        found = await self.backend.begin(self.stores, key)
        is_kept = isinstance(found, Found) and found.state == "settled"
        return found.response if is_kept else None  # type: ignore[union-attr]

    # --- writes -------------------------------------------------------------------------------------

    async def make(self, kind: Kind = Kind.TASKS, *, mark: Mark | None = None, **fields: object) -> str:
        """Make a row; return its id."""
        row_id = ulids.ulid()
        made = await self.hub.write(self.creation(kind, row_id, mark, **fields), mark)
        assert made.answer.status == 201
        return row_id

    def creation(self, kind: Kind, row_id: str, mark: Mark | None = None, **fields: object) -> Write:
        values = {"title": "t", "status": "todo", **fields} if kind is Kind.TASKS else fields
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
        return self.write(Asked(kind, row_id, Create(text)), mark=mark, method="POST", path=f"/{kind}/")

    def write(
        self,
        *asks: Asked,
        mark: Mark | None = None,
        shape: Shape = Shape.ONE,
        method: str = "PATCH",
        path: str = "/x",
    ) -> Write:
        origin = Origin(method, path, None if mark is None else mark.key, "laptop", "codex")
        return Write(asks, origin, self.clock.wall_ms(), shape)

    async def change(
        self,
        row_id: str,
        change: Change | None = None,
        expected: Expectation = NO_OPINION,
        *,
        kind: Kind = Kind.TASKS,
        mark: Mark | None = None,
        **values: str | None,
    ) -> Decision:
        asked = Asked(kind, row_id, change or Update({**values}), expected)
        return await self.hub.write(self.write(asked, mark=mark), mark)

    async def delete(self, row_id: str, expected: Expectation = NO_OPINION) -> Decision:
        return await self.change(row_id, Delete(), expected)


def told(decision: Decision) -> Any:  # noqa: ANN401  JSON
    return json.loads(decision.answer.body)
