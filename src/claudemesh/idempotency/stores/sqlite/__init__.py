"""Keys in a SQLite file: one of their own, or the app's own file, if it is opened with MIGRATIONS too.

A lease is counted by the clock that all processes of a machine share, which goes on while it sleeps and begins anew
when it starts: so a mark also names the start that it is counted from, and one of another start is over.
"""

import asyncio
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self

import apsw

from claudemesh.idempotency.model import Asked, Begun, Claim, Found, KeyRow, Settlement
from claudemesh.idempotency.ports import PAGE_MAX, SWEEP_MAX
from claudemesh.idempotency.stores import Row, render_settlement, to_key_row, to_response
from claudemesh.kernel.admission import Fresh
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.idempotency import BUSY_RETRY_MS, MarkState, StandingMark, judge_begin
from claudemesh.kernel.lease import Lease
from claudemesh.kernel.write_errors import MarkLost
from claudemesh.runtime.clock import read_boot
from claudemesh.runtime.world import World
from claudemesh.storage.migrate import load_migrations
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database, Schema

APPLICATION_ID: Final = 0x636D6964  # "cmid"
MIGRATIONS: Final = load_migrations(files(__name__) / "migrations")

SCHEMA: Final = Schema(APPLICATION_ID, MIGRATIONS)
_SQL: Final = load_queries(files(__name__) / "keys.sql")

_Values = tuple[Any, ...]


class SqliteKeyStore:
    """The keys in a database that its owner opened, with MIGRATIONS among its own, and closes."""

    def __init__(self, database: Database, world: World, boot: str | None = None) -> None:
        self._database = database
        self._clock = world.clock
        self._mint = world.ids.ulid
        self._boot = read_boot() if boot is None else boot

    @classmethod
    def open(cls, path: Path, world: World) -> Self:
        """Open or create a file of its own; `aclose` closes it."""
        return cls(Database.open(path, SCHEMA), world)

    async def begin(self, asked: Asked) -> Begun | Found:
        return await self._database.write(self._begin, asked)

    async def renew(self, claim: Claim, lease_ms: int) -> bool:
        return await self._change("renew", *claim, self._boot, self._clock.monotonic_ms() + lease_ms)

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        return await self._change("settle", *claim, *render_settlement(settlement))

    async def release(self, claim: Claim) -> bool:
        return await self._change("release", *claim)

    def complete(self, connection: apsw.Connection, claim: Claim, settlement: Settlement) -> None:
        if not _run(connection, "settle", (*claim, *render_settlement(settlement))):
            raise MarkLost(retry_after_ms=BUSY_RETRY_MS)

    async def complete_async(self, *_: object) -> None:
        raise TypeError("the keys are in SQLite: call mark.complete(connection, response) where the write is made")

    async def sweep(self, now_ms: int, limit: int = SWEEP_MAX) -> int:
        return await self._database.write(_sweep, (now_ms, self._boot, self._clock.monotonic_ms(), limit))

    async def page(self, after: int = 0, limit: int = PAGE_MAX) -> list[KeyRow]:
        rows = await self._database.read(lambda connection: _fetch(connection, "page", (after, limit)))
        return [to_key_row(row) for row in rows]

    async def aclose(self) -> None:
        await asyncio.to_thread(self._database.close)

    async def _change(self, name: str, *values: Any) -> bool:  # noqa: ANN401  what SQL takes
        return await self._database.write(_change, (name, values))

    # --- on the writer's thread --------------------------------------------------------------------

    def _begin(self, connection: apsw.Connection, asked: Sequence[Asked]) -> list[Begun | Found]:
        return [self._begin_one(connection, one) for one in asked]

    def _begin_one(self, connection: apsw.Connection, asked: Asked) -> Begun | Found:
        place, now_ms = (asked.caller, asked.key), self._clock.monotonic_ms()
        rows = _fetch(connection, "standing", place)
        standing = self._to_standing(rows[0]) if rows else None
        if isinstance(judge_begin(standing, asked.fingerprint, asked.now_ms, now_ms), Fresh) or standing is None:
            return Begun(self._put_mark(connection, asked, now_ms))
        _run(connection, "see", (*place, asked.now_ms))
        return Found(standing.state, standing.fingerprint, to_response(*rows[0][-3:]))

    def _put_mark(self, connection: apsw.Connection, asked: Asked, now_ms: int) -> Claim:
        owner = self._mint()
        lease = (owner, self._boot, now_ms + asked.lease_ms)
        source = (asked.source_host, asked.source_agent)
        values = (*asked[:5], *lease, *source, asked.now_ms, asked.expires_at)
        token = _fetch(connection, "begin", values)[0][0]
        return Claim(asked.caller, asked.key, owner, token)

    def _to_standing(self, row: Row) -> StandingMark:
        state, fingerprint, owner, token, boot, until, expires_at = row[:7]
        lease = Lease(owner, token, until if boot == self._boot else 0)
        return StandingMark(MarkState(state), Fingerprint(fingerprint), lease, expires_at)


def _change(connection: apsw.Connection, changes: Sequence[tuple[str, _Values]]) -> list[bool]:
    return [_run(connection, name, values) > 0 for name, values in changes]


def _sweep(connection: apsw.Connection, swept: Sequence[_Values]) -> list[int]:
    return [_run(connection, "sweep", values) for values in swept]


def _fetch(connection: apsw.Connection, name: str, values: _Values) -> list[Row]:
    return connection.execute(_SQL[name], values).fetchall()


def _run(connection: apsw.Connection, name: str, values: _Values) -> int:
    connection.execute(_SQL[name], values)
    return connection.changes()
