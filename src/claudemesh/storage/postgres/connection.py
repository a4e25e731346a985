"""How a connection is made, and what makes it fit for our promises.

Every wait has an end: of connecting, of a statement (here and at the server), of a lock, of a transaction that its
owner forgot. `synchronous_commit` is never off, whatever the database says: an acknowledgement is a promise.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from claudemesh.kernel.errors import ConfigError
from claudemesh.storage.postgres.errors import translated

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
    Record = asyncpg.Record
else:
    Connection, Record = asyncpg.Connection, asyncpg.Record

CONNECT_S: Final = 5.0
STATEMENT_MS: Final = 15_000
LOCK_MS: Final = 10_000
FORGOTTEN_MS: Final = 20_000  # of a transaction in which nothing happens
CALLER_S: Final = 20.0  # for a server that does not answer at all

VERSION_MIN: Final = 140_000


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the database is. The text may hold a password, and is therefore not shown."""

    dsn: str
    application: str = "claudemesh"

    def __repr__(self) -> str:
        return f"Endpoint({self.application})"


async def connect(endpoint: Endpoint, **overrides: str) -> Connection:
    settings = {
        "application_name": endpoint.application,
        "statement_timeout": str(STATEMENT_MS),
        "lock_timeout": str(LOCK_MS),
        "idle_in_transaction_session_timeout": str(FORGOTTEN_MS),
        "jit": "off",  # it costs more than any statement here takes
        **overrides,
    }
    with translated():
        connection: Any = await asyncpg.connect(endpoint.dsn, timeout=CONNECT_S, server_settings=settings)
        try:
            with bounded(connection):
                if await connection.fetchval("SHOW synchronous_commit") == "off":
                    await connection.execute("SET synchronous_commit = on")
        except BaseException:
            connection.terminate()
            raise
    return connection  # type: ignore[no-any-return]


@contextmanager
def bounded(connection: Connection, seconds: float | None = None) -> Iterator[None]:
    """Cut the connection if what is done inside takes too long: the server does not answer at all.

    Cut, and nothing is asked of the server: a commit that waits for its standby, and is asked to stop, stands as if
    it had waited.
    """
    timer = asyncio.get_running_loop().call_later(CALLER_S if seconds is None else seconds, connection.terminate)
    try:
        yield
    finally:
        timer.cancel()


async def check_server(connection: Connection) -> None:
    """Refuse a server that cannot keep our promise."""
    if await connection.fetchval("SHOW fsync") != "on":
        raise ConfigError("the PostgreSQL server runs with fsync = off: what it confirms, a power cut takes back")
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise ConfigError(f"the database is encoded in {encoding}, which cannot keep every text: make one in UTF8")
    version = int(await connection.fetchval("SHOW server_version_num"))
    if version < VERSION_MIN:
        raise ConfigError(f"PostgreSQL {version // 10_000} is too old: at least {VERSION_MIN // 10_000}")
