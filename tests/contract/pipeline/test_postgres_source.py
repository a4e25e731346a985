"""PostgreSQL is copied from snapshot to snapshot: nothing twice, and nothing lost behind whoever commits late."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.kernel.errors import ConfigError
from claudemesh.pipeline.catalogue import BROKER
from claudemesh.pipeline.sources.postgres import PostgresStore
from claudemesh.runtime.clock import SystemClock
from tests.contract.broker.backends import NOW, batch, dm, post, settle, subscribe, ulids
from tests.contract.pipeline.pulling import Copy
from tests.contract.pipeline.visits import VISIT, visit

BURY = (
    "INSERT INTO mesh.tombstone (what, mesh_id, sender_id, client_message_id, deleted_at) "
    "SELECT 'dedupe', 1, 1, 'id-' || n, 0 FROM generate_series($1::int, $2::int) AS n"
)


@pytest.fixture
async def stores(postgres_database: str) -> AsyncIterator[PostgresStores]:
    opened = await PostgresStores.open(
        postgres_database, clock=SystemClock(), mint=ulids.ulid, render=render_delivery
    )
    yield opened
    await opened.aclose()


@pytest.fixture
def copy(stores: PostgresStores, postgres_database: str) -> Copy:  # noqa: ARG001 - which has made its tables
    return Copy(PostgresStore(postgres_database, BROKER))


@pytest.mark.req("S1")
async def test_what_commits_late_is_copied_all_the_same(copy: Copy, postgres_database: str) -> None:
    late = await asyncpg.connect(postgres_database)
    other = await asyncpg.connect(postgres_database)
    await other.execute(BURY, 1, 10)
    assert copy.pull() == 10
    transaction = late.transaction()
    await transaction.start()
    await late.execute(BURY, 11, 20)  # these numbers are taken first
    await other.execute(BURY, 21, 30)  # and these are committed first
    assert copy.pull() == 10
    assert copy.pull() == 0
    await transaction.commit()
    await other.execute(BURY, 31, 32)
    assert copy.pull() == 12
    assert copy.pull() == 0
    assert copy.values("tombstone", "client_message_id") == sorted(f"id-{n}" for n in range(1, 33))
    await late.close()
    await other.close()


@pytest.mark.req("S1")
async def test_a_step_that_is_made_again_is_the_same_whatever_came_since(
    copy: Copy, postgres_database: str
) -> None:
    other = await asyncpg.connect(postgres_database)
    await other.execute(BURY, 1, 3)
    copy.pull()
    begun = copy.position
    await other.execute(BURY, 4, 6)
    [first] = PostgresStore(postgres_database, BROKER).moments()
    upto = first.position
    await other.execute(BURY, 7, 9)
    for moment in PostgresStore(postgres_database, BROKER).moments():  # another process, after a crash
        copy.read(moment, begun, upto)
    assert copy.values("tombstone", "id") == [1, 2, 3, 4, 5, 6]
    await other.close()


@pytest.mark.req("S1")
async def test_a_row_that_changes_is_copied_once_and_its_changes_are_rows(
    copy: Copy, stores: PostgresStores
) -> None:
    town = await settle(stores, "alice", "bob")
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob"), dm("2", "bob")))
    copy.pull()
    await stores.deliveries.ack(town["bob"], [1], NOW + 5)
    copy.pull()
    assert copy.values("delivery_queue", "history_id") == [1, 2]
    assert [(row["history_id"], row["what"], row["at"]) for row in copy.rows["delivery_event"]] == [
        (1, "delivered", NOW + 5)
    ]
    assert copy.counts["delivery.delivered"] == copy.counts["delivery.accepted"] == 1


@pytest.mark.req("S1")
async def test_what_happened_to_leases_is_copied_once_in_its_order(copy: Copy, stores: PostgresStores) -> None:
    town = await settle(stores, "alice", "bob")
    await visit(stores, town, "alice")
    await visit(stores, town, "bob", "key")
    copy.pull()
    await visit(stores, town, "alice")
    assert copy.pull() == len(VISIT)
    assert copy.pull() == 0
    events = sorted(copy.rows["presence_event"], key=lambda event: event["id"])
    assert [event["what"] for event in events] == 3 * VISIT
    assert [event["seq"] for event in events if event["seq"] is not None] == [1, 2, 3, 4, 5, 6]
    assert [event["session_pubkey"] for event in events if event["what"] == "left"] == ["", "key", ""]


@pytest.mark.req("S1")
async def test_rows_of_another_servers_transactions_are_copied_too(
    copy: Copy, stores: PostgresStores, postgres_database: str
) -> None:
    """As after a dump was restored: their transactions are beyond all that this server has had."""
    town = await settle(stores, "alice", "bob")
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob")))
    other = await asyncpg.connect(postgres_database)
    await other.execute("UPDATE mesh.message_history SET commit_xid = '99999999'")
    await other.close()
    copy.pull()
    await stores.accepts.accept(batch(town["alice"], dm("2", "bob")))
    copy.pull()
    assert copy.values("message_history", "history_id") == [1, 2]


@pytest.mark.req("S1")
async def test_bodies_are_copied_only_if_they_are_asked_for(
    copy: Copy, stores: PostgresStores, postgres_database: str
) -> None:
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice", "bob")
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob", "for bob"), post("2", "news", "for all")))
    copy.pull()
    assert "for bob" not in str(copy.rows)
    assert "for all" not in str(copy.rows)
    asked = Copy(PostgresStore(postgres_database, BROKER), bodies=True)
    asked.pull()
    assert asked.values("body", "body") == ["for all", "for bob"]


@pytest.mark.req("S1")
async def test_an_open_transaction_shows_as_lag(copy: Copy, postgres_database: str) -> None:
    late = await asyncpg.connect(postgres_database)
    async with late.transaction():
        await late.execute(BURY, 1, 1)
        for moment in PostgresStore(postgres_database, BROKER).moments():
            lag = moment.lag()
    assert lag["open_transactions"] == 1
    assert lag["oldest_s"] > 0
    assert copy.pull() == 1
    await late.close()


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://pat:s3cret@db:5433/mesh?sslmode=require&password=s3cret", "postgresql://db:5433/mesh"),
        ("postgresql://pat:s3cret@one:5432,two:5432/mesh", "postgresql://one:5432,two:5432/mesh"),
        ("postgresql:///mesh?host=/run/one&port=5433", "postgresql:///mesh?host=/run/one&port=5433"),
    ],
)
def test_a_store_is_shown_where_it_is_and_without_its_password(uri: str, shown: str) -> None:
    assert PostgresStore(uri, BROKER).shown == shown


@pytest.mark.parametrize("sign", ["/", "%zz", "#", "?", "@", " ", "[", "\n"])
def test_a_url_whose_password_is_not_escaped_is_refused_and_not_quoted(sign: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PostgresStore(f"postgresql://pat:s3c{sign}ret@db/mesh", BROKER)
    assert "s3c" not in str(refused.value)
