"""Which store a URL or a file means, and which stores a home holds."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from claudemesh.kernel.errors import ConfigError, DependencyError, InvalidRequest
from claudemesh.pipeline.catalogue import KINDS, kind_of
from claudemesh.pipeline.sources.connection import connected, fetch_rows
from claudemesh.pipeline.sources.model import Store
from claudemesh.pipeline.sources.postgres import open_postgres
from claudemesh.pipeline.sources.sqlite import SqliteStore

POSTGRES: Final = ("postgresql://", "postgres://")
SQLITE: Final = "sqlite:///"
_MAGIC: Final = b"SQLite format 3\0"


def find_stores(home: Path) -> list[str]:
    """Return what a home holds: its broker's store, those of its daemons, and so on."""
    return [str(path) for kind in KINDS.values() for path in sorted(home.glob(kind.files)) if path.is_file()]


def open_stores(places: Iterable[str]) -> list[Store]:
    """Return the stores, in the order to read them in; one that is named twice is one."""
    stores = {(store.kind.name, store.shown): store for place in places for store in open_place(place)}
    order = [*KINDS]
    return sorted(stores.values(), key=lambda store: order.index(store.kind.name))


def open_place(place: str) -> Sequence[Store]:
    """Return the stores that are there: of a file one, of a database perhaps more."""
    return open_postgres(place) if place.startswith(POSTGRES) else [open_file(place)]


def open_file(place: str) -> Store:
    if "://" in place and not place.startswith(SQLITE):  # not quoted: it may hold a password
        raise InvalidRequest(f"a store is none of {SQLITE}PATH, {POSTGRES[0]}HOST/NAME or a file")
    path = Path(place.removeprefix(SQLITE))
    if not path.is_file():
        raise InvalidRequest("there is no such store" if "password" in place else f"{path}: there is no store")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ConfigError(f"{path} is not a store")
    with connected("sqlite", f"{path.absolute().as_uri()}?mode=ro") as cursor:
        tables = {name for (name,) in fetch_rows(cursor, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    kind = kind_of(tables)
    if kind is None:
        raise ConfigError(f"{path} is not a store of claudemesh")
    return SqliteStore(path, kind)


def measure(place: str) -> float:
    """Return the size of a store's file, with the log that its writer keeps beside; of what is none, no end."""
    path = Path(place.removeprefix(SQLITE))
    if not path.is_file():
        return math.inf
    return sum(one.stat().st_size for one in (path, Path(f"{path}-wal")) if one.is_file())


@contextmanager
def readable() -> Iterator[None]:
    """Give an error of a driver the form of ours."""
    from adbc_driver_manager import Error  # noqa: PLC0415 - loaded with the drivers

    try:
        yield
    except Error as error:
        raise DependencyError(str(error).partition("\n")[0]) from error
