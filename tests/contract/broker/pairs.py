"""Two brokers on one database, and gates at which a transaction is stopped in the middle, to be looked at."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from claudemesh.broker.model import Accepted, AcceptOutcome
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.storage.postgres import retrying
from tests.contract.broker.backends import BOUND_S, Town, seat, ulids
from tests.doubles import ManualClock

GATE = 4711
DAY = 86_400_000

# Whoever writes the history row of the message called `slow` waits at the gate, holding its id and the counter. All
# pass it once it is open.
GATE_SQL = f"""
CREATE FUNCTION mesh.wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NEW; END $$;
CREATE TRIGGER gate BEFORE INSERT ON mesh.message_history FOR EACH ROW
WHEN (NEW.client_message_id = 'slow') EXECUTE FUNCTION mesh.wait_at_the_gate();
"""

# Whoever has used one id waits at the gate before it uses another.
GATE_BETWEEN_IDS = f"""
CREATE FUNCTION mesh.wait_between_ids() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('test.is_second', true) = 'yes' THEN PERFORM pg_advisory_xact_lock_shared({GATE}); END IF;
  PERFORM set_config('test.is_second', 'yes', true);
  RETURN NEW;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON mesh.client_message_dedupe FOR EACH ROW
EXECUTE FUNCTION mesh.wait_between_ids();
"""

# Whoever begins a lease of the instance called `slow` waits at the gate.
GATE_OF_SEATS = """
CREATE TRIGGER gate BEFORE INSERT ON mesh.presence FOR EACH ROW
WHEN (NEW.instance_id = 'slow') EXECUTE FUNCTION mesh.wait_at_the_gate();
"""

# Whoever deletes the message called `slow` waits at the gate, with the number of its tombstone.
GATE_OF_TOMBSTONES = """
CREATE TRIGGER gate BEFORE INSERT ON mesh.tombstone FOR EACH ROW
WHEN (NEW.client_message_id = 'slow') EXECUTE FUNCTION mesh.wait_at_the_gate();
"""

# Whoever is about to change deliveries waits at the gate, before it holds any of them.
GATE_OF_DELIVERIES = """
CREATE TRIGGER gate BEFORE UPDATE ON mesh.delivery_queue EXECUTE FUNCTION mesh.wait_at_the_gate();
"""


@dataclass
class Pair:
    """Two brokers' stores on one database, and a connection that looks at its locks."""

    one: PostgresStores
    two: PostgresStores
    watcher: Any

    async def until_waiting(self, count: int, *held_up: "asyncio.Future[Any]") -> None:
        """Wait until so many transactions wait for a lock that another holds, and these have not got through."""
        async with asyncio.timeout(BOUND_S):
            while await self.waiting() < count:
                assert not any(one.done() for one in held_up)
                await asyncio.sleep(0.005)

    async def waiting(self) -> int:
        count: int = await self.watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return count

    @asynccontextmanager
    async def gate(self) -> AsyncIterator[None]:
        """Keep the gate shut."""
        await self.watcher.execute("SELECT pg_advisory_lock($1)", GATE)
        try:
            yield
        finally:
            await self.watcher.execute("SELECT pg_advisory_unlock($1)", GATE)


@pytest.fixture
async def pair(postgres_database: str) -> AsyncIterator[Pair]:
    def opened() -> Awaitable[PostgresStores]:
        return PostgresStores.open(postgres_database, clock=ManualClock(), mint=ulids.ulid, render=render_delivery)

    one, two = await asyncio.gather(opened(), opened())
    watcher = await asyncpg.connect(postgres_database)
    await watcher.execute(GATE_SQL)
    yield Pair(one, two, watcher)
    await watcher.close()
    await one.aclose()
    await two.aclose()


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a deadlock told to the caller, instead of trying again."""
    monkeypatch.setattr(retrying, "TRIES", 1)


def begin(awaitable: Awaitable[Any]) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(awaitable)


async def waiting_for(stores: PostgresStores, town: Town, name: str) -> list[int]:
    """Return the history ids of what waits for a member."""
    page = await stores.deliveries.page(await seat(stores, town, name), 0, 1000, 1_000_000)
    return [parcel.history_id for parcel in page.parcels]


def ids(outcomes: list[AcceptOutcome]) -> list[int]:
    return [outcome.history_id for outcome in outcomes if isinstance(outcome, Accepted)]
