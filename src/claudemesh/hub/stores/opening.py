"""Which store the settings name, and how it is opened. No error quotes a URL as it is: it may hold a password."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final

from claudemesh.hub.ports import Stores
from claudemesh.hub.settings import HubSettings
from claudemesh.hub.stores.sqlite import SqliteStores
from claudemesh.kernel.errors import ConfigError, StoreUnavailable
from claudemesh.runtime.extras import how_to_get
from claudemesh.runtime.home import InstanceLock, ensure_private_dir
from claudemesh.runtime.world import World

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgres://")


async def open_stores(settings: HubSettings, world: World) -> Stores:
    """Open what `store` names. A file is made if there is none."""
    path = store_path(settings)
    if path is not None:
        return await asyncio.to_thread(SqliteStores.open, path, world)
    try:
        from claudemesh.hub.stores.postgres import PostgresStores  # noqa: PLC0415  an extra that not all have
    except ModuleNotFoundError:
        raise ConfigError(f"PostgreSQL needs an extra: {how_to_get('postgres')}") from None
    try:
        return await PostgresStores.open(settings.store, world, pool_max=settings.pool_max)
    except ValueError:  # its text quotes from the URL
        raise ConfigError(f"store = {_POSTGRES[0]}… is no URL that a PostgreSQL is reached by") from None
    except StoreUnavailable as error:
        raise ConfigError(f"the store at {_POSTGRES[0]}… cannot be used: {error.detail}") from error


@asynccontextmanager
async def opened(settings: HubSettings, world: World, *, alone: bool) -> AsyncIterator[Stores]:
    """Open it for a while; `alone` keeps a file from all others who ask for that."""
    path = store_path(settings)
    with _lock(path) if path is not None and alone else nullcontext():
        async with aclosing(await open_stores(settings, world)) as stores:
            yield stores


def check_is_there(settings: HubSettings) -> None:
    """Refuse to make a store where somebody means one that stands."""
    path = store_path(settings)
    if path is not None and not path.exists():
        raise ConfigError(f"there is no store at {path}")


def store_path(settings: HubSettings) -> Path | None:
    """Return the file of a `sqlite:///PATH` store; None if it is on a server. Refuse what is no store at all."""
    url = settings.store
    if url.startswith(_POSTGRES):
        return None
    if not url.startswith(_SQLITE) or not Path(url.removeprefix(_SQLITE)).name:
        raise ConfigError(f"store begins with none of {_SQLITE}, {', '.join(_POSTGRES)}, or names no file")
    return Path(url.removeprefix(_SQLITE)).absolute()


def store_kind(settings: HubSettings) -> str:
    return "postgresql" if store_path(settings) is None else "sqlite"


def _lock(path: Path) -> InstanceLock:
    ensure_private_dir(path.parent)
    return InstanceLock(path.with_name(path.name + ".lock"))
