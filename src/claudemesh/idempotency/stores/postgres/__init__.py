"""Keys in a PostgreSQL database: in a schema of their own, or in the app's own, if it has MIGRATIONS too.

Leases are judged by the server's clock, whatever the clocks of the workers say. A worker that asks for a key waits
for a transaction that is just now completing it, and then sees the answer.
"""

from importlib.resources import files
from typing import Any, Final, Self

import asyncpg

from claudemesh.idempotency.model import Asked, Begun, Claim, Found, KeyRow, Settlement
from claudemesh.idempotency.ports import PAGE_MAX, SWEEP_MAX
from claudemesh.idempotency.stores import Row, render_settlement, to_key_row, to_response
from claudemesh.kernel.admission import Fresh
from claudemesh.kernel.errors import ConfigError, StoreUnavailable
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.idempotency import BUSY_RETRY_MS, MarkState, StandingMark, judge_begin
from claudemesh.kernel.lease import Lease
from claudemesh.kernel.write_errors import MarkLost
from claudemesh.runtime.world import World
from claudemesh.storage.migrate import load_migrations
from claudemesh.storage.postgres import Connection, Database, Endpoint, Schema
from claudemesh.storage.sqlfile import load_queries

SCHEMA_NAME: Final = "idempotency"
MIGRATIONS: Final = load_migrations(files(__name__) / "migrations")

_SQL: Final = load_queries(files(__name__) / "keys.sql")
_TABLE: Final = "write_idempotency_keys"
_TRIES: Final = 10  # of a key that others take and release between two of our statements


class PostgresKeyStore:
    """The keys in a database that its owner opened, with MIGRATIONS among those of `schema`, and closes."""

    def __init__(self, database: Database, world: World, schema: str = SCHEMA_NAME) -> None:
        self._database = database
        self._mint = world.ids.ulid
        # A connection of the app's has a search path of the app's: every statement says where the table is.
        self._sql = {name: _SQL[name].replace(_TABLE, f"{schema}.{_TABLE}") for name in _SQL.names()}

    @classmethod
    async def open(cls, dsn: str, world: World, schema: str = SCHEMA_NAME) -> Self:
        """Connect, and make or bring up to date a schema of its own; `aclose` leaves."""
        try:
            return cls(await Database.open(Endpoint(dsn), Schema(schema, MIGRATIONS)), world, schema)
        except (
            asyncpg.PostgresError
        ) as error:  # a role with too few rights, or a schema of this name that is not ours
            raise ConfigError(f"the database cannot be used: {str(error).partition(chr(10))[0]}") from error

    async def begin(self, asked: Asked) -> Begun | Found:
        owner = self._mint()
        values = (
            *asked[:5],
            owner,
            asked.lease_ms,
            asked.source_host,
            asked.source_agent,
            asked.now_ms,
            asked.expires_at,
        )
        for _ in range(_TRIES):
            if granted := await self._database.fetch(self._sql["begin"], *values):
                return Begun(Claim(asked.caller, asked.key, owner, granted[0]["token"]))
            found = await self._database.transact(lambda connection: self._judge(connection, asked, values))
            if found is not None:
                return found
        raise StoreUnavailable("the key is taken and released by others too often to be had")

    async def renew(self, claim: Claim, lease_ms: int) -> bool:
        return bool(await self._database.fetch(self._sql["renew"], *claim, lease_ms))

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        return bool(await self._database.fetch(self._sql["settle"], *claim, *render_settlement(settlement)))

    async def release(self, claim: Claim) -> bool:
        return bool(await self._database.fetch(self._sql["release"], *claim))

    def complete(self, *_: object) -> None:
        raise TypeError("the keys are in PostgreSQL: await mark.complete_async(connection, response)")

    async def complete_async(self, connection: Connection, claim: Claim, settlement: Settlement) -> None:
        if not await connection.fetch(self._sql["settle"], *claim, *render_settlement(settlement)):
            raise MarkLost(retry_after_ms=BUSY_RETRY_MS)

    async def sweep(self, now_ms: int, limit: int = SWEEP_MAX) -> int:
        return len(await self._database.fetch(self._sql["sweep"], now_ms, limit))

    async def page(self, after: int = 0, limit: int = PAGE_MAX) -> list[KeyRow]:
        return [to_key_row(row) for row in await self._database.fetch(self._sql["page"], after, limit)]

    async def aclose(self) -> None:
        await self._database.aclose()

    async def _judge(self, connection: Connection, asked: Asked, values: tuple[Any, ...]) -> Begun | Found | None:
        """Decide about what stands, under its lock; None if it is gone by now."""
        row = await connection.fetchrow(self._sql["standing"], asked.caller, asked.key)
        if row is None:
            return None
        standing = _to_standing(row)
        if isinstance(judge_begin(standing, asked.fingerprint, asked.now_ms, row["lease_now"]), Fresh):
            token = await connection.fetchval(self._sql["take_over"], *values)
            return Begun(Claim(asked.caller, asked.key, values[5], token))
        await connection.execute(self._sql["see"], asked.caller, asked.key, asked.now_ms)
        return Found(standing.state, standing.fingerprint, to_response(row["status"], row["headers"], row["body"]))


def _to_standing(row: Row) -> StandingMark:
    lease = Lease(row["owner"], row["token"], row["lease_until"])
    return StandingMark(MarkState(row["state"]), Fingerprint(row["request_hash"]), lease, row["expires_at"])
