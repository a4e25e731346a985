"""Queries that run with every message look things up and never go through a table, however much is stored."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from typing import Any

import asyncpg
import pytest

from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.storage.sqlfile import load_queries
from tests.contract.broker.backends import ulids
from tests.doubles import ManualClock
from tests.services.postgres import Postgres

FOLDER = files("claudemesh.broker.stores.postgres")

# Tables that stay small: one row for each mesh, topic, queue or broker.
SMALL = {"mesh", "history_counter", "history_jump", "topic", "queue", "broker", "broker_state", "keeper"}
SMALL |= {"presence_counter", "presence_clock"}

# What is asked now and then, of the whole store or of one mesh's whole past.
MAY_SCAN = {
    "directory.end_subscriptions",  # once in a member's life
    "directory.members",
    "directory.owners",
    "brokers.reap",  # when a broker died, all of its own
    "deliveries.backlogs",  # somebody lists the peers of a mesh
    "presence.extend",  # after a standstill, all that were without a socket
    "topics.topics",
    "upkeep.gaps",
    "upkeep.ids_without_rows",
    "upkeep.rows_without_ids",
    "upkeep.void_tokens",
    "work.queues",
}

# The rows of the few messages or members that it was given are put into their order.
MAY_SORT = {"upkeep.bury", "upkeep.hold_leases", "upkeep.buried_since"}
MAY_SORT |= {"presence.of_key", "presence.of_members", "presence.present", "seats.sitters"}

FILL = """
SET session_replication_role = replica;
INSERT INTO mesh.mesh (uid, slug, owner_pubkey, created_at) SELECT n::text, 's', n::text, 0 FROM generate_series(1, 4) AS n;
INSERT INTO mesh.history_counter SELECT id, 20000 FROM mesh.mesh;
INSERT INTO mesh.member (uid, mesh_id, pubkey, name, name_folded, role, joined_at)
SELECT n::text, 1 + n % 4, n::text, n::text, n::text, 'member', 0 FROM generate_series(1, 4000) AS n;
INSERT INTO mesh.member_key SELECT mesh_id, pubkey, id, 'member', 0 FROM mesh.member;
INSERT INTO mesh.invite_use SELECT mesh_id, (id % 40)::text, id, 0 FROM mesh.member;
INSERT INTO mesh.topic (mesh_id, name, created_by, created_at)
SELECT 1 + n % 4, n::text, n, 0 FROM generate_series(1, 100) AS n;
INSERT INTO mesh.topic_subscription SELECT t.id, m.id, 0 FROM mesh.topic AS t JOIN mesh.member AS m ON m.id % 20 = t.id % 20;
INSERT INTO mesh.queue (mesh_id, name, created_by, created_at)
SELECT 1 + n % 4, n::text, n, 0 FROM generate_series(1, 100) AS n;
INSERT INTO mesh.message_history
SELECT 1 + n % 4, n, 'b' || n, CASE WHEN n % 2 = 0 THEN 1 ELSE 1 + n % 50 END, n::text, 'dm', n FROM generate_series(1, 20000) AS n;
INSERT INTO mesh.client_message_dedupe
SELECT sender_id, client_message_id, mesh_id, 'accepted', '', broker_message_id, NULL, true, 0, NULL
FROM mesh.message_history;
INSERT INTO mesh.client_message_dedupe
SELECT 1, 'r' || n, 1, 'retired', NULL, NULL, NULL, false, 0, n FROM generate_series(1, 2000) AS n;
INSERT INTO mesh.message_queue
SELECT mesh_id, history_id, CASE WHEN history_id % 2 = 0 THEN 1 END, CASE WHEN history_id % 2 = 1 THEN 1 END, '', NULL, '',
  '', '', '', '' FROM mesh.message_history;
INSERT INTO mesh.topic_message SELECT mesh_id, history_id, 1, '', '', '', '', '' FROM mesh.message_history;
INSERT INTO mesh.delivery_queue (mesh_id, history_id, recipient_id, delivered_at)
SELECT mesh_id, history_id, n, CASE WHEN history_id % 10 > 0 THEN 1 END
FROM mesh.message_history, generate_series(0, 2) AS n;
INSERT INTO mesh.mention_index SELECT mesh_id, 'x', history_id FROM mesh.message_history;
INSERT INTO mesh.queue_lease
SELECT mesh_id, history_id, 1 + history_id % 100, CASE WHEN history_id % 7 = 0 THEN 1 END, 0, history_id, 0, history_id % 3 > 0
FROM mesh.message_history;
INSERT INTO mesh.tombstone (what, mesh_id, sender_id, client_message_id, deleted_at)
SELECT 'message', mesh_id, sender_id, client_message_id, 0 FROM mesh.message_history;
INSERT INTO mesh.delivery_event (mesh_id, history_id, recipient_id, what, at, attempts)
SELECT mesh_id, history_id, recipient_id, 'delivered', 0, 0 FROM mesh.delivery_queue;
INSERT INTO mesh.broker (expires_at) SELECT 0 FROM generate_series(1, 5);
INSERT INTO mesh.seat (broker_id, member_id, session_pubkey, presence_only)
SELECT 1 + id % 5, id, CASE WHEN id % 2 = 0 THEN id::text ELSE '' END, id % 3 = 0 FROM mesh.member;
INSERT INTO mesh.presence (
  uid, mesh_id, member_id, session_pubkey, instance_id, presence_only, token, seat, broker_id, lease_until, info,
  connected_at, disconnected_at
)
SELECT n || '.' || s.token, m.mesh_id, m.id, s.session_pubkey, '', false, 1,
  CASE WHEN n = 0 AND m.id % 2 = 0 THEN s.token END, CASE WHEN n = 0 AND m.id % 2 = 0 THEN s.broker_id END,
  CASE WHEN n > 0 OR m.id % 2 = 1 THEN 1 END, '', n, CASE WHEN n > 0 THEN n END
FROM mesh.seat AS s JOIN mesh.member AS m ON m.id = s.member_id, generate_series(0, 5) AS n;
INSERT INTO mesh.presence_counter SELECT id, 1 FROM mesh.mesh;
INSERT INTO mesh.presence_clock (looked_at) VALUES (0);
INSERT INTO mesh.presence_event (mesh_id, member_id, session_pubkey, presence_uid, what, at, seq)
SELECT mesh_id, member_id, session_pubkey, uid, 'joined', 0, id FROM mesh.presence;
ANALYZE;
"""  # noqa: E501  data


def queries() -> Iterator[tuple[str, str]]:
    for file in sorted(FOLDER.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql") and file.name != "schema.sql":
            loaded = load_queries(file)
            yield from ((f"{file.name.removesuffix('.sql')}.{name}", loaded[name]) for name in loaded.names())


@pytest.fixture(scope="module")
def filled(postgres_server: Postgres) -> str:
    dsn = postgres_server.create_database(f"plans_{ulids.ulid().lower()}")
    asyncio.run(fill(dsn))
    return dsn


async def fill(dsn: str) -> None:
    stores = await PostgresStores.open(dsn, clock=ManualClock(), mint=ulids.ulid, render=render_delivery)
    await stores.aclose()
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(FILL)
    finally:
        await connection.close()


@pytest.fixture
async def connection(filled: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(filled)
    yield connection
    await connection.close()


async def plan(connection: asyncpg.Connection, query: str) -> dict[str, Any]:
    """Return how the server runs it whatever the values are."""
    count = max((int(number) for number in re.findall(r"\$(\d+)", query)), default=0)
    values = f"({', '.join(['NULL'] * count)})" if count else ""
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.execute(f"PREPARE asked AS {query}")
    try:
        rows = await connection.fetchval(f"EXPLAIN (FORMAT JSON, COSTS OFF) EXECUTE asked{values}")
    finally:
        await connection.execute("DEALLOCATE asked")
    found: dict[str, Any] = json.loads(rows)[0]["Plan"]
    return found


def nodes(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield step
    for below in step.get("Plans", ()):
        yield from nodes(below)


def scans(step: dict[str, Any]) -> list[str]:
    return [
        node["Relation Name"]
        for node in nodes(step)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL
    ]


def sorts(step: dict[str, Any]) -> list[str]:
    """Return the tables whose rows are sorted, other than those of what was asked for by its keys."""
    return [
        below["Relation Name"]
        for node in nodes(step)
        if node["Node Type"] in ("Sort", "Incremental Sort")
        if not any(below["Node Type"] == "Function Scan" for below in nodes(node))
        for below in nodes(node)
        if below.get("Relation Name", "mesh") not in SMALL
    ]


@pytest.mark.parametrize("name", [name for name, _ in queries() if name not in MAY_SCAN])
async def test_a_query_of_every_message_neither_scans_nor_sorts(connection: asyncpg.Connection, name: str) -> None:
    found = await plan(connection, dict(queries())[name])
    assert scans(found) == []
    assert name in MAY_SORT or sorts(found) == []


async def test_a_scan_is_noticed(connection: asyncpg.Connection) -> None:
    assert scans(await plan(connection, "SELECT * FROM mesh.delivery_queue WHERE attempts = $1"))
    by_time = "SELECT * FROM mesh.message_history WHERE mesh_id = $1 ORDER BY accepted_at"
    assert sorts(await plan(connection, by_time))
