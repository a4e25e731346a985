"""A hub's journal is copied line by line, from a file and from a server, and says how its rows stand."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import asyncpg
import pytest

from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores as BrokerStores
from claudemesh.hub.model import Asked, Delete, Expectation, Kind, Origin, Update, Write
from claudemesh.hub.ports import HubStore
from claudemesh.kernel.errors import ConfigError
from claudemesh.pipeline.catalogue import HUB
from claudemesh.pipeline.sources.postgres import PostgresStore
from claudemesh.pipeline.sources.sqlite import SqliteStore
from claudemesh.pipeline.stores import open_stores
from claudemesh.runtime.clock import SystemClock
from tests.contract.hub.backends import NOW, ulids
from tests.contract.pipeline.pulling import Copy
from tests.contract.pipeline.writes import TASK, WORDS, change, make_task, open_hub, open_hub_on
from tests.services.postgres import installations

OTHER = f"tasks/{'0' * 25}2"
LINE = (
    "INSERT INTO hub.hub_write (seq, at, kind, entity_id, base_revision, revision, method, path, fields, deleted)"
    " VALUES ({0}, 0, 'progress', 'p{0}', 0, 1, 'POST', '/progress/', '{{}}', false)"
)

Opening = Callable[[], AbstractAsyncContextManager[HubStore]]


@pytest.fixture(params=["sqlite", *(one.name for one in installations())])
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Opening, Callable[..., Copy]]]:
    """Give a hub to be opened and closed, and copies of it to be begun."""
    if request.param == "sqlite":
        path = tmp_path / "hub.db"
        yield lambda: open_hub(path), lambda **wish: Copy(SqliteStore(path, HUB), **wish)
    else:
        dsn = request.getfixturevalue("postgres_servers")(request.param).create_database("hub_to_copy")
        yield lambda: open_hub_on(dsn), lambda **wish: Copy(PostgresStore(dsn, HUB), **wish)


@pytest.mark.req("S1")
async def test_a_journal_is_copied_line_by_line_with_what_each_expected(
    hub: tuple[Opening, Callable[..., Copy]],
) -> None:
    opened, begun = hub
    copy = begun()
    async with opened() as store:
        await make_task(store)
    copy.pull()
    async with opened() as store:
        asked = Asked(
            Kind.TASKS, TASK.partition("/")[2], Update({"status": "doing"}), Expectation((1, 9), NOW, "todo")
        )
        origin = Origin("PATCH", f"/{TASK}", "a-key", "laptop", "codex")
        await store.write(Write((asked,), origin, NOW))
        await change(store, "done", expected=Expectation(revisions=(2,)))
    assert copy.pull() == 2
    assert copy.pull() == 0
    made, expecting, last = copy.rows["hub_write"]
    assert (made["seq"], made["base_revision"], made["revision"], made["method"]) == (1, 0, 1, "POST")
    assert (made["expected_revisions"], made["expected_updated_at"], made["expected_status"]) == (None, None, None)
    assert (made["status"], made["deleted"], made["kind"]) == ("todo", 0, "tasks")
    assert (expecting["expected_revisions"], expecting["expected_status"]) == ("[1,9]", "todo")
    assert expecting["expected_updated_at"] == made["at"]
    assert (expecting["idempotency_key"], expecting["source_host"], expecting["source_agent"]) == (
        "a-key",
        "laptop",
        "codex",
    )
    assert (last["status"], last["revision"], last["idempotency_key"]) == ("done", 3, None)
    assert copy.counts == {"hub_write": 3, "rows.tasks.done": 1}


@pytest.mark.req("S1")
async def test_rows_that_stand_are_counted_by_the_hub_itself(hub: tuple[Opening, Callable[..., Copy]]) -> None:
    opened, begun = hub
    copy = begun()
    async with opened() as store:
        for place in (TASK, OTHER):
            await make_task(store, place)
        asked = Asked(Kind.TASKS, OTHER.partition("/")[2], Delete())
        await store.write(Write((asked,), Origin("DELETE", f"/{OTHER}"), NOW))
    copy.pull()
    assert copy.counts == {"hub_write": 3, "rows.tasks.todo": 1}
    assert [row["deleted"] for row in copy.rows["hub_write"]] == [0, 0, 1]


@pytest.mark.req("S1")
async def test_what_rows_hold_is_copied_only_if_it_is_asked_for(hub: tuple[Opening, Callable[..., Copy]]) -> None:
    opened, begun = hub
    async with opened() as store:
        await make_task(store)
    without, with_bodies = begun(), begun(bodies=True)
    without.pull()
    with_bodies.pull()
    assert WORDS not in str([without.rows, without.wholes])
    (body,) = with_bodies.rows["write_body"]
    assert WORDS in body["fields"]
    assert without.rows["hub_write"][0]["fields_bytes"] == len(body["fields"])
    (state,) = without.wholes["hub_state"]
    assert state["name"] == "store_id"


@pytest.mark.req("S1")
async def test_a_hub_that_came_back_from_a_backup_is_another_one_once_it_uses_its_numbers_again(
    tmp_path: Path,
) -> None:
    path, backup = tmp_path / "hub.db", tmp_path / "backup.db"
    async with open_hub(path) as store:
        await make_task(store)
    shutil.copy(path, backup)
    async with open_hub(path) as store:
        await make_task(store, OTHER)
    *_, last = SqliteStore(path, HUB).moments()
    shutil.copy(backup, path)
    async with open_hub(path) as store:
        await change(store, "doing")
    for moment in SqliteStore(path, HUB).moments():
        assert moment.went_back(last.position)
        assert not moment.went_back(moment.position)


@pytest.mark.req("S1")
async def test_a_line_that_commits_late_is_copied_all_the_same(postgres_database: str) -> None:
    async with open_hub_on(postgres_database):
        copy = Copy(PostgresStore(postgres_database, HUB))
        late, other = [await asyncpg.connect(postgres_database) for _ in range(2)]
        transaction = late.transaction()
        await transaction.start()
        await late.execute(LINE.format(1))
        await other.execute(LINE.format(2))
        assert copy.pull() == 1
        await transaction.commit()
        assert copy.pull() == 1
        assert copy.pull() == 0
        assert copy.values("hub_write", "seq") == [1, 2]
        for connection in (late, other):
            await connection.close()


@pytest.mark.req("S1")
async def test_a_database_has_a_brokers_store_a_hubs_or_both(postgres_database: str) -> None:
    with pytest.raises(ConfigError, match="no store of claudemesh"):
        open_stores([postgres_database])
    async with open_hub_on(postgres_database):
        (hub,) = open_stores([postgres_database])
        assert hub.identify().name.startswith("hub-")
    stores = await BrokerStores.open(
        postgres_database, clock=SystemClock(), mint=ulids.ulid, render=render_delivery
    )
    await stores.aclose()
    both = open_stores([postgres_database, postgres_database])
    assert [store.kind.name for store in both] == ["broker", "hub"]
