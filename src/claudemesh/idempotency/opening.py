"""Which store a URL names. No error quotes a URL of PostgreSQL: it may hold a password."""

import asyncio
from pathlib import Path
from typing import Final

from claudemesh.idempotency.ports import KeyStore
from claudemesh.idempotency.stores.sqlite import SqliteKeyStore
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.extras import how_to_get
from claudemesh.runtime.world import World

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgres://")


def check_url(url: str) -> None:
    """Refuse what is no store at all, before anything is opened."""
    if not url.startswith(_POSTGRES) and not Path(url.removeprefix(_SQLITE)).name:
        raise ConfigError(f"store = {url!r} names no file")
    if not url.startswith((*_POSTGRES, _SQLITE)):
        raise ConfigError(f"store begins with none of {', '.join((_SQLITE, *_POSTGRES))}")


async def open_store(url: str, world: World) -> KeyStore:
    """Open it. A file or a schema is made if there is none."""
    check_url(url)
    if not url.startswith(_POSTGRES):
        return await asyncio.to_thread(SqliteKeyStore.open, Path(url.removeprefix(_SQLITE)), world)
    try:
        from claudemesh.idempotency.stores.postgres import PostgresKeyStore  # noqa: PLC0415  not all have the extra
    except ModuleNotFoundError:
        raise ConfigError(f"PostgreSQL needs an extra: {how_to_get('postgres')}") from None
    try:
        return await PostgresKeyStore.open(url, world)
    except ValueError:  # its text quotes from the URL
        raise ConfigError(f"store = {_POSTGRES[0]}… is no URL that a PostgreSQL is reached by") from None
