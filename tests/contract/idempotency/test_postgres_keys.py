"""What only keys in PostgreSQL have: a schema of their own, and workers that wait for each other's transactions."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from claudemesh.idempotency.model import Begun, Found
from claudemesh.idempotency.stores.postgres import PostgresKeyStore
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.world import real_world
from tests.contract.idempotency.backends import BOUND_S, CREATED, NOW, ask, begin, settle

pytestmark = pytest.mark.req("R1")

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
async def store(postgres_database: str) -> AsyncIterator[PostgresKeyStore]:
    opened = await PostgresKeyStore.open(postgres_database, real_world())
    yield opened
    await opened.aclose()


async def until_somebody_waits(dsn: str) -> None:
    watch = await asyncpg.connect(dsn)
    async with asyncio.timeout(BOUND_S):
        while not await watch.fetchval(WAITING):
            pass
    await watch.close()


@pytest.mark.parametrize("commits", [True, False])
async def test_who_asks_while_the_write_commits_waits_for_its_end(
    store: PostgresKeyStore, postgres_database: str, *, commits: bool
) -> None:
    mark = await begin(store, lease_ms=1)  # over at once: only the transaction is in the way
    connection = await asyncpg.connect(postgres_database)
    transaction = connection.transaction()
    await transaction.start()
    await mark.complete_async(connection, CREATED)
    asking = asyncio.create_task(store.begin(ask()))
    await until_somebody_waits(postgres_database)
    assert not asking.done()
    await (transaction.commit() if commits else transaction.rollback())
    async with asyncio.timeout(BOUND_S):
        outcome = await asking
    assert isinstance(outcome, Found if commits else Begun)
    await connection.close()


async def test_who_asks_while_the_key_is_released_waits_and_begins(
    store: PostgresKeyStore, postgres_database: str
) -> None:
    mark = await begin(store)
    connection = await asyncpg.connect(postgres_database)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("DELETE FROM idempotency.write_idempotency_keys")  # as a release that is not done yet
    asking = asyncio.create_task(store.begin(ask()))
    await until_somebody_waits(postgres_database)
    await transaction.commit()
    async with asyncio.timeout(BOUND_S):
        assert isinstance(await asking, Begun)
    assert not await settle(mark)
    await connection.close()


async def test_a_sweep_keeps_to_its_limit_whatever_plan_the_server_makes(postgres_database: str) -> None:
    connection = await asyncpg.connect(postgres_database)
    name = await connection.fetchval("SELECT current_database()")
    for way in ("hashagg", "hashjoin", "material", "mergejoin", "sort"):  # what is left is a loop in a loop
        await connection.execute(f'ALTER DATABASE "{name}" SET enable_{way} = off')
    await connection.close()
    store = await PostgresKeyStore.open(postgres_database, real_world())
    for number in range(9):
        await settle(await begin(store, f"k{number}", expires_at=NOW + number))
    swept = [await store.sweep(NOW + 9, limit=4) for _ in range(4)]
    await store.aclose()
    assert swept == [4, 4, 1, 0]


async def test_an_app_that_does_not_await_where_it_has_to_is_told(store: PostgresKeyStore) -> None:
    mark = await begin(store)
    with pytest.raises(TypeError, match=r"await mark\.complete_async\("):
        mark.complete(object(), CREATED)


async def test_a_schema_of_that_name_that_is_not_ours_is_refused(postgres_database: str) -> None:
    connection = await asyncpg.connect(postgres_database)
    await connection.execute("CREATE SCHEMA idempotency; CREATE TABLE idempotency.write_idempotency_keys (x int)")
    await connection.close()
    with pytest.raises(ConfigError):
        await PostgresKeyStore.open(postgres_database, real_world())
