"""A database that came back from a backup, or whose standby took over, may lack a part of its past."""

import asyncio

import asyncpg
import pytest

from claudemesh.broker.model import Accepted
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.policy import EPOCH_SKIP
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.kernel.errors import ConfigError
from tests.contract.broker.backends import PostgresBackend, Town, batch, dm, settle, ulids
from tests.doubles import ManualClock


async def open_stores(dsn: str) -> PostgresStores:
    return await PostgresStores.open(dsn, clock=ManualClock(), mint=ulids.ulid, render=render_delivery)


async def filled(dsn: str) -> Town:
    stores = await open_stores(dsn)
    town = await settle(stores, "alice", "bob")
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob")))
    await stores.aclose()
    return town


async def next_number(stores: PostgresStores, town: Town) -> int:
    [accepted] = await stores.accepts.accept(batch(town["alice"], dm(ulids.ulid(), "bob")))
    assert isinstance(accepted, Accepted)
    return accepted.history_id


@pytest.mark.req("B4")
async def test_the_same_server_goes_on_where_it_stood(postgres_database: str) -> None:
    town = await filled(postgres_database)
    stores = await open_stores(postgres_database)
    assert await next_number(stores, town) == 2
    await stores.aclose()


@pytest.mark.req("B4")
@pytest.mark.parametrize("part", [0, 1])
async def test_on_another_server_or_timeline_the_first_broker_begins_an_epoch_and_the_next_finds_it(
    postgres_database: str, part: int
) -> None:
    town = await filled(postgres_database)
    connection = await asyncpg.connect(postgres_database)
    server = (await connection.fetchval("SELECT value FROM mesh.broker_state WHERE name = 'server'")).split(b"/")
    server[part] = b"7"
    await connection.execute("UPDATE mesh.broker_state SET value = $1 WHERE name = 'server'", b"/".join(server))
    await connection.close()
    both = await asyncio.gather(open_stores(postgres_database), open_stores(postgres_database))
    assert await next_number(both[0], town) == EPOCH_SKIP + 2
    assert await both[1].upkeep.check() == []
    for stores in both:
        await stores.aclose()
    again = await open_stores(postgres_database)
    assert await next_number(again, town) == EPOCH_SKIP + 3
    await again.aclose()


async def test_a_role_that_may_not_ask_which_server_it_is_is_told_what_it_lacks(postgres_database: str) -> None:
    await filled(postgres_database)
    role = f"plain_{ulids.ulid().lower()}"
    grants = f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA mesh TO {role}; "
    grants += f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA mesh TO {role}; "
    await PostgresBackend(postgres_database).execute(
        f"{grants} REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"
    )
    with pytest.raises(ConfigError, match="pg_control_system"):
        await open_stores(postgres_database.replace("postgres@", f"{role}@"))
