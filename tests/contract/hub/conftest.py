"""One suite for the hub's store, over every backend."""

from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest

from tests.contract.hub.backends import BACKENDS, DATABASES, Backend, House, PostgresBackend
from tests.doubles import ManualClock
from tests.services.postgres import Postgres


@pytest.fixture(scope="session")
def hub_dsn(postgres_servers: Callable[[str], Postgres]) -> Callable[[str], str]:
    """Give of each server one database, which every test leaves to the next."""
    return cache(lambda name: postgres_servers(name).create_database("hub_contract"))


async def open_house(backend: Backend, folder: Path) -> House:
    if isinstance(backend, PostgresBackend):
        await backend.clear()
    clock = ManualClock()
    return House(backend, folder, clock, await backend.open(folder, clock))


@pytest.fixture(params=BACKENDS)
async def house(
    request: pytest.FixtureRequest, hub_dsn: Callable[[str], str], tmp_path: Path
) -> AsyncIterator[House]:
    opened = await open_house(BACKENDS[request.param](hub_dsn), tmp_path)
    yield opened
    await opened.stores.aclose()


@pytest.fixture(params=DATABASES)
async def stored(
    request: pytest.FixtureRequest, hub_dsn: Callable[[str], str], tmp_path: Path
) -> AsyncIterator[House]:
    """As `house`, for what only a database can do."""
    opened = await open_house(DATABASES[request.param](hub_dsn), tmp_path)
    yield opened
    await opened.stores.aclose()
