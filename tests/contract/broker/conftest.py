"""One suite for the broker's ports, over every backend."""

from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest

from tests.contract.broker.backends import BACKENDS, Backend, House, PostgresBackend
from tests.contract.broker.pairs import once, pair
from tests.doubles import ManualClock
from tests.services.postgres import Postgres

__all__ = ["once", "pair"]  # fixtures of the tests with two brokers


@pytest.fixture(scope="session")
def contract_dsn(postgres_servers: Callable[[str], Postgres]) -> Callable[[str], str]:
    """Give of each server one database, which every test leaves to the next."""
    return cache(lambda name: postgres_servers(name).create_database("contract"))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, contract_dsn: Callable[[str], str]) -> Backend:
    return BACKENDS[request.param](contract_dsn)


@pytest.fixture
async def house(backend: Backend, tmp_path: Path) -> AsyncIterator[House]:
    if isinstance(backend, PostgresBackend):
        await backend.clear()
    clock = ManualClock()
    opened = House(backend, tmp_path, clock, await backend.open(tmp_path, clock))
    yield opened
    await opened.stores.aclose()
