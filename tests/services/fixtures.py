"""The servers that tests share: one of each kind for a test process, started when first asked for."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import asyncpg
import pytest

from tests.services.postgres import Installation, Postgres, installations, private_postgres
from tests.services.redis import Redis, private_redis


@pytest.fixture(scope="session", params=installations(), ids=lambda installation: installation.name)
def postgres_installation(request: pytest.FixtureRequest) -> Installation:
    """For a test that stops, crashes or fills its server: it starts its own with `private_postgres`."""
    installation: Installation = request.param
    return installation


@pytest.fixture(scope="session")
def postgres_server(postgres_installation: Installation) -> Iterator[Postgres]:
    """To be left running, and its `postgres` database left as it was found."""
    with private_postgres(postgres_installation) as server:
        yield server


@pytest.fixture
async def postgres_database(postgres_server: Postgres) -> AsyncIterator[str]:
    """Say where an empty database is, for one test only."""
    name = f"test_{uuid4().hex}"
    admin = await asyncpg.connect(postgres_server.dsn)
    try:
        await admin.execute(f"CREATE DATABASE {name}")
        yield postgres_server.dsn.replace("/postgres?", f"/{name}?")
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """To be left running; a test uses keys of its own."""
    with private_redis() as server:
        yield server
