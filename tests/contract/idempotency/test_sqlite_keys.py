"""What only a SQLite file of keys has: the boot its leases are counted from, and a file of its own."""

from pathlib import Path

import pytest

from claudemesh.idempotency.model import Begun, Found
from claudemesh.idempotency.stores.sqlite import APPLICATION_ID, MIGRATIONS, SqliteKeyStore
from claudemesh.kernel.errors import StoreCorrupt
from claudemesh.runtime.dice import roll
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.world import World
from claudemesh.storage.sqlite import Database, Schema
from tests.contract.idempotency.backends import CREATED, LEASE_MS, ask, begin, settle
from tests.doubles import ManualClock

pytestmark = pytest.mark.req("R1")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock, UlidSource(clock), roll)


async def test_a_mark_from_before_the_machine_was_started_is_over(tmp_path: Path, world: World) -> None:
    with Database.open(tmp_path / "keys.db", Schema(APPLICATION_ID, MIGRATIONS)) as database:
        before, now = SqliteKeyStore(database, world, "boot-1"), SqliteKeyStore(database, world, "boot-2")
        await begin(before)
        assert isinstance(await before.begin(ask()), Found)
        successor = await begin(now)
        assert successor.claim.token == 2
        assert await now.sweep(ask().expires_at) == 0
        assert await before.sweep(ask().expires_at) == 1  # to which the mark is of another boot


async def test_setting_the_wall_clock_neither_frees_a_mark_nor_keeps_it(
    tmp_path: Path, clock: ManualClock, world: World
) -> None:
    store = SqliteKeyStore.open(tmp_path / "keys.db", world)
    await begin(store)
    clock.wall += 86_400_000
    assert isinstance(await store.begin(ask()), Found)
    clock.wall -= 2 * 86_400_000
    clock.monotonic += LEASE_MS
    assert isinstance(await store.begin(ask()), Begun)
    await store.aclose()


async def test_a_file_of_its_own_is_private_and_keeps_what_was_settled(tmp_path: Path, world: World) -> None:
    path = tmp_path / "keys.db"
    store = SqliteKeyStore.open(path, world)
    await settle(await begin(store))
    await store.aclose()
    assert path.stat().st_mode & 0o777 == 0o600
    again = SqliteKeyStore.open(path, world)
    found = await again.begin(ask())
    assert isinstance(found, Found)
    assert found.response == CREATED
    await again.aclose()


async def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, world: World) -> None:
    Database.open(tmp_path / "keys.db", Schema(0x74657374, MIGRATIONS)).close()
    with pytest.raises(StoreCorrupt):
        SqliteKeyStore.open(tmp_path / "keys.db", world)


async def test_an_app_that_awaits_where_nothing_is_to_be_awaited_is_told(tmp_path: Path, world: World) -> None:
    store = SqliteKeyStore.open(tmp_path / "keys.db", world)
    mark = await begin(store)
    with pytest.raises(TypeError, match=r"mark\.complete\("):
        await mark.complete_async(object(), CREATED)
    await store.aclose()
