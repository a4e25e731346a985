"""The servers that tests share: one of each kind for a test process, started when first asked for."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.services.postgres import LENT, Installation, Postgres, installations, private_postgres
from tests.services.redis import Redis, private_redis


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[Callable[[str], Postgres]]:
    """Ask for a server by the name of its installation. To be left running, and `postgres` left as it was found."""
    by_name = {installation.name: installation for installation in installations()}
    running: dict[str, Postgres] = {}
    with ExitStack() as stack:

        def server(name: str) -> Postgres:
            if LENT in os.environ:
                return Postgres.borrow(os.environ[LENT])
            if name not in running:
                running[name] = stack.enter_context(private_postgres(by_name[name]))
            return running[name]

        yield server


@pytest.fixture(scope="session", params=installations(), ids=lambda installation: installation.name)
def postgres_installation(request: pytest.FixtureRequest) -> Installation:
    """For a test that stops, crashes or fills its server: it starts its own with `private_postgres`."""
    installation: Installation = request.param
    return installation


@pytest.fixture(scope="session")
def postgres_server(postgres_installation: Installation, postgres_servers: Callable[[str], Postgres]) -> Postgres:
    """To be left running, and its `postgres` database left as it was found."""
    return postgres_servers(postgres_installation.name)


@pytest.fixture
def postgres_database(postgres_server: Postgres) -> str:
    """Give the DSN of a new and empty database."""
    return postgres_server.create_database("test")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """To be left running; a test uses keys of its own."""
    with private_redis() as server:
        yield server
