"""LISTEN and NOTIFY: a listener that is lost comes back and says so, and nobody can break it."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from claudemesh.broker.model import Woken
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.broker.stores.postgres.bus import CHANNEL
from tests.contract.broker.backends import BOUND_S, ulids
from tests.contract.broker.test_brokers_contract import Ear
from tests.doubles import ManualClock


async def open_stores(dsn: str) -> PostgresStores:
    return await PostgresStores.open(dsn, clock=ManualClock(), mint=ulids.ulid, render=render_delivery)


@pytest.fixture
async def watcher(postgres_database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_database)
    yield connection
    await connection.close()


async def test_a_listener_whose_connection_was_cut_listens_again_and_says_that_it_missed_something(
    postgres_database: str, watcher: asyncpg.Connection
) -> None:
    one, two = await open_stores(postgres_database), await open_stores(postgres_database)
    there = await Ear().listen(one).joined_by(two)
    one.bus.publish(Woken([4]))
    await there.until(lambda ear: Woken([4]) in ear.bulletins)  # and the answer to its hello before that
    missed = there.missed
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    assert await watcher.fetchval(cut) == 2
    await there.until(lambda ear: ear.missed > missed)
    one.bus.publish(Woken([5]))
    await there.until(lambda ear: Woken([5]) in ear.bulletins)
    await one.aclose()
    await two.aclose()


async def test_what_is_no_notification_is_counted_and_passed_over(
    postgres_database: str, watcher: asyncpg.Connection
) -> None:
    one, two = await open_stores(postgres_database), await open_stores(postgres_database)
    here = Ear().listen(one)
    there = await here.joined_by(two)
    for wrong in ("", "{", '{"broker": 7, "notices": []}', '{"broker": "x", "notices": [{"type": "no such"}]}'):
        await watcher.execute("SELECT pg_notify($1, $2)", CHANNEL, wrong)
    two.bus.publish(Woken([5]))
    await here.until(lambda ear: Woken([5]) in ear.bulletins)
    assert one.bus.malformed == 4
    assert there.bulletins == []
    await one.aclose()
    await two.aclose()


async def test_a_broker_that_is_alone_tells_nobody(postgres_database: str, watcher: asyncpg.Connection) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    await watcher.add_listener(CHANNEL, lambda *notification: told.put_nowait(notification[3]))
    one = await open_stores(postgres_database)
    one.bus.publish(Woken([1]))
    Ear().listen(one)
    async with asyncio.timeout(BOUND_S):
        assert "hello" in await told.get()
        two = await open_stores(postgres_database)
        await one.seats.beat()  # now it knows
        one.bus.publish(Woken([2]))
        assert '"members":[2]' in await told.get()
        await two.aclose()
        await one.seats.beat()
        one.bus.publish(Woken([3]))
        await watcher.execute("SELECT pg_notify($1, 'the last')", CHANNEL)
        assert await told.get() == "the last"
    await watcher.reset()
    await one.aclose()


async def test_what_was_published_is_still_told_when_the_bus_stops_at_that_moment(postgres_database: str) -> None:
    one, two = await open_stores(postgres_database), await open_stores(postgres_database)
    there = await Ear().listen(one).joined_by(two)
    one.bus.publish(Woken([1]))
    await one.bus.aclose()  # before anything could be sent
    await there.until(lambda ear: Woken([1]) in ear.bulletins)
    await one.aclose()
    await two.aclose()
