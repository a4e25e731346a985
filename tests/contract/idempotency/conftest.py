"""One suite for stores of keys, over every backend."""

from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest

from tests.contract.idempotency.backends import BACKENDS, Backend, House, PostgresBackend
from tests.doubles import ManualClock
from tests.services.postgres import Postgres


@pytest.fixture(scope="session")
def key_dsn(postgres_servers: Callable[[str], Postgres]) -> Callable[[str], str]:
    """Give of each server one database, which every test leaves to the next."""
    return cache(lambda name: postgres_servers(name).create_database("idempotency_contract"))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, key_dsn: Callable[[str], str]) -> Backend:
    return BACKENDS[request.param](key_dsn)


@pytest.fixture
async def house(backend: Backend, tmp_path: Path) -> AsyncIterator[House]:
    opened = House(backend, tmp_path, ManualClock())
    await opened.another()
    if isinstance(backend, PostgresBackend):
        await backend.execute("DELETE FROM app.write_idempotency_keys")
        await backend.execute("DELETE FROM app.written")
    yield opened
    for store in opened.stores:
        await store.aclose()
