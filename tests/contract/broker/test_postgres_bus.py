"""LISTEN and NOTIFY: a listener that is lost comes back and says so, and nobody can break it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import asyncpg
import pytest

from claudemesh.broker.model import Woken
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores, bus
from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.storage.postgres import Connection, Endpoint
from claudemesh.storage.postgres.connection import connect
from tests.contract.broker.backends import BOUND_S, ulids
from tests.contract.broker.test_brokers_contract import Ear
from tests.doubles import ManualClock

WITHIN_S = 10  # much less than what a server that does not answer is given
LISTENERS = "FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"


async def open_stores(dsn: str) -> PostgresStores:
    return await PostgresStores.open(dsn, clock=ManualClock(), mint=ulids.ulid, render=render_delivery)


@pytest.fixture
async def watcher(postgres_database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_database)
    yield connection
    await connection.close()


async def overhear(watcher: asyncpg.Connection, stores: PostgresStores) -> "asyncio.Queue[str]":
    told: asyncio.Queue[str] = asyncio.Queue()
    await watcher.add_listener(stores.bus.channel, lambda *notification: told.put_nowait(notification[3]))
    return told


async def test_a_listener_whose_connection_was_cut_listens_again_and_says_that_it_missed_something(
    postgres_database: str, watcher: asyncpg.Connection
) -> None:
    one, two = await open_stores(postgres_database), await open_stores(postgres_database)
    there = await Ear().listen(one).joined_by(two)
    one.bus.publish(Woken([4]))
    await there.until(lambda ear: Woken([4]) in ear.bulletins)  # and the answer to its hello before that
    missed = there.missed
    assert await watcher.fetchval(f"SELECT count(pg_terminate_backend(pid)) {LISTENERS}") == 2
    await there.until(lambda ear: ear.missed > missed)
    one.bus.publish(Woken([5]))
    await there.until(lambda ear: Woken([5]) in ear.bulletins)
    await one.aclose()
    await two.aclose()


async def test_a_listener_whose_server_answers_nothing_any_more_listens_on_another_connection(
    postgres_database: str, watcher: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Connection] = []

    async def connect_and_note(endpoint: Endpoint) -> Connection:
        made.append(await connect(endpoint))
        return made[-1]

    monkeypatch.setattr(bus, "connect", connect_and_note)
    monkeypatch.setattr(bus, "PROBE_S", 0.2)
    one = await open_stores(postgres_database)
    told = await overhear(watcher, one)
    here = Ear().listen(one)
    async with asyncio.timeout(BOUND_S):
        assert "hello" in await told.get()
    pid = made[-1].get_server_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(WITHIN_S):
            await here.until(lambda ear: ear.missed > 0)
    finally:
        os.kill(pid, signal.SIGCONT)
    await watcher.reset()
    await one.aclose()


async def test_what_could_not_be_told_is_told_to_be_missed(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await open_stores(postgres_database), await open_stores(postgres_database)
    there = await Ear().listen(one).joined_by(two)
    one.bus.publish(Woken([4]))
    await there.until(lambda ear: Woken([4]) in ear.bulletins)  # and the answer to its hello before that
    missed, failed = there.missed, asyncio.Event()

    async def fail(*_: object) -> None:
        failed.set()
        raise StoreUnavailable

    with monkeypatch.context() as away:
        away.setattr(one.database, "transact", fail)
        one.bus.publish(Woken([5]))
        async with asyncio.timeout(BOUND_S):
            await failed.wait()
    one.bus.publish(Woken([6]))
    await there.until(lambda ear: Woken([6]) in ear.bulletins)
    assert there.missed == missed + 1
    await one.aclose()
    await two.aclose()


async def test_what_is_no_notification_is_passed_over(postgres_database: str, watcher: asyncpg.Connection) -> None:
    one, two = await open_stores(postgres_database), await open_stores(postgres_database)
    here = Ear().listen(one)
    there = await here.joined_by(two)
    for wrong in ("", "{", '{"broker": 7, "notices": []}', '{"broker": "x", "notices": [{"type": "no such"}]}'):
        await watcher.execute("SELECT pg_notify($1, $2)", one.bus.channel, wrong)
    two.bus.publish(Woken([5]))
    await here.until(lambda ear: Woken([5]) in ear.bulletins)
    assert here.bulletins == [Woken([5])]
    assert there.bulletins == []
    await one.aclose()
    await two.aclose()


async def test_a_broker_that_is_alone_tells_nobody(postgres_database: str, watcher: asyncpg.Connection) -> None:
    one = await open_stores(postgres_database)
    told = await overhear(watcher, one)
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
        await watcher.execute("SELECT pg_notify($1, 'the last')", one.bus.channel)
        assert await told.get() == "the last"
    await watcher.reset()
    await one.aclose()


async def test_what_was_published_is_still_told_when_the_bus_stops_at_that_moment(postgres_database: str) -> None:
    one, two = await open_stores(postgres_database), await open_stores(postgres_database)
    there = await Ear().listen(one).joined_by(two)
    one.bus.publish(Woken([1]))
    await one.bus.aclose()  # before anything could be sent
    async with asyncio.timeout(WITHIN_S):
        await there.until(lambda ear: Woken([1]) in ear.bulletins)
    await one.aclose()
    await two.aclose()


async def test_a_broker_that_joins_others_tells_them_from_its_first_moment_on(
    postgres_database: str, watcher: asyncpg.Connection
) -> None:
    one, two = await open_stores(postgres_database), await open_stores(postgres_database)
    told = await overhear(watcher, one)
    two.bus.publish(Woken([1]))  # neither of the two listens yet
    await two.bus.aclose()
    await watcher.execute("SELECT pg_notify($1, 'the last')", one.bus.channel)
    async with asyncio.timeout(BOUND_S):
        assert '"members":[1]' in await told.get()
    await watcher.reset()
    await one.aclose()
    await two.aclose()


@pytest.mark.req("B6")
@pytest.mark.parametrize("package", ["claudemesh.broker.stores.postgres", "claudemesh.storage.postgres"])
def test_nothing_but_the_bus_notifies_and_it_is_part_of_no_accept(package: str) -> None:
    sources = [path for path in Path(str(files(package))).rglob("*") if path.suffix in {".py", ".sql"}]
    assert sources
    notifying = {path.name for path in sources if "notify" in path.read_text(encoding="utf-8").casefold()}
    assert notifying <= {"bus.py", "bus.sql"}
    assert {path.name for path in sources if "bus.sql" in path.read_text(encoding="utf-8")} <= {"bus.py"}
