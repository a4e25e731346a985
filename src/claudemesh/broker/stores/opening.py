"""Which store the settings name, and how it is opened. No error quotes a URL as it is: it may hold a password."""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final

from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.ports import Stores
from claudemesh.broker.settings import BrokerSettings
from claudemesh.broker.stores.sqlite import SqliteStores
from claudemesh.kernel.errors import ConfigError, StoreUnavailable
from claudemesh.runtime.extras import how_to_get
from claudemesh.runtime.home import InstanceLock, ensure_private_dir
from claudemesh.runtime.world import World

_SQLITE: Final = "sqlite:///"
_MEMORY: Final = "memory:"
_POSTGRES: Final = ("postgresql://", "postgres://")
_PLACE: Final = re.compile(r"(postgres(?:ql)?://)(?:[^@/?#]*@)?([\w.,:\[\]-]*(?:/[\w-]*)?)(?:\?[^@]*)?")


async def open_stores(settings: BrokerSettings, world: World) -> Stores:
    """Open what `store` names. A file is made if there is none."""
    clock, mint, lease_ttl_ms = world.clock, world.ids.ulid, settings.presence.lease_ttl_ms
    if settings.store.startswith(_POSTGRES):
        try:
            from claudemesh.broker.stores.postgres import PostgresStores  # noqa: PLC0415  an extra that not all have
        except ModuleNotFoundError:
            raise ConfigError(f"PostgreSQL needs an extra: {how_to_get('postgres')}") from None
        pool_max = settings.database.pool_max
        try:
            return await PostgresStores.open(
                settings.store,
                clock=clock,
                mint=mint,
                render=render_delivery,
                observer=world.observer,
                pool_max=pool_max,
                lease_ttl_ms=lease_ttl_ms,
            )
        except ValueError:  # its text quotes from the URL
            raise ConfigError(f"store = {_POSTGRES[0]}… is no URL that a PostgreSQL is reached by") from None
        except StoreUnavailable as error:
            raise ConfigError(f"the store at {redact(settings.store)} cannot be used: {error.detail}") from error
    path = store_path(settings)
    if path is None:
        return SqliteStores.in_memory(clock=clock, mint=mint, render=render_delivery, lease_ttl_ms=lease_ttl_ms)
    return SqliteStores.open(path, clock=clock, mint=mint, render=render_delivery, lease_ttl_ms=lease_ttl_ms)


@asynccontextmanager
async def opened(settings: BrokerSettings, world: World, *, alone: bool) -> AsyncIterator[Stores]:
    """Open it for a while; `alone` keeps a file from all others who ask for that."""
    path = store_path(settings)
    with _lock(path) if path is not None and alone else nullcontext():
        async with aclosing(await open_stores(settings, world)) as stores:
            yield stores


def _lock(path: Path) -> InstanceLock:
    ensure_private_dir(path.parent)
    return InstanceLock(path.with_name(path.name + ".lock"))


def check_is_there(settings: BrokerSettings) -> None:
    """Refuse to make a store where somebody means one that stands. A server says by itself what it has not got."""
    path = store_path(settings)
    if settings.store == _MEMORY or (path is not None and not path.exists()):
        raise ConfigError(f"there is no store at {path or _MEMORY}")


def store_path(settings: BrokerSettings) -> Path | None:
    """Return the file of a `sqlite:///PATH` store; None if it is another kind. Refuse what is no store at all."""
    url = settings.store
    if url == _MEMORY or url.startswith(_POSTGRES):
        return None
    if not url.startswith(_SQLITE) or url == _SQLITE:
        raise ConfigError(f"store begins with none of {_SQLITE}, {', '.join(_POSTGRES)}, or names no file")
    path = Path(url.removeprefix(_SQLITE)).absolute()
    if not path.name:
        raise ConfigError(f"store = {url!r} names no file")
    return path


def redact(url: str) -> str:
    """Return of a PostgreSQL URL where it leads, for people to read: without user, password and options."""
    found = _PLACE.fullmatch(url)
    return f"{found[1]}{found[2]}" if found else f"{_POSTGRES[0]}…"
