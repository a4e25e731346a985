"""The orphan check finds every kind of hole. They are made with SQL: this is about the PostgreSQL store alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.broker.backends import NOW, PostgresBackend, batch, dm, job, post, settle, subscribe
from tests.doubles import ManualClock
from tests.services.postgres import Installation

HOLES = {
    "DELETE FROM message_history WHERE history_id = 1": ("1", "message_history"),
    "DELETE FROM message_queue WHERE history_id = 1": ("1", "message"),
    "DELETE FROM topic_message": ("2", "message"),
    "DELETE FROM delivery_queue WHERE history_id = 1": ("1", "delivery_queue"),
    "DELETE FROM delivery_queue WHERE history_id = 3": ("3", "delivery_queue"),
    "DELETE FROM queue_lease": ("3", "queue_lease"),
    "DELETE FROM queue": ("3", "queue"),
    "DELETE FROM client_message_dedupe WHERE client_message_id = '2'": ("2", "client_message_dedupe"),
    "UPDATE client_message_dedupe SET broker_message_id = 'x' WHERE client_message_id = '1'": (
        "1",
        "message_history",
    ),
    "UPDATE client_message_dedupe SET history_available = false, history_id = 1 WHERE client_message_id = '1'": (
        "1",
        "client_message_dedupe",
    ),
    "INSERT INTO delivery_queue (mesh_id, history_id, recipient_id) VALUES (1, 99, 2)": (None, "message_history"),
    "INSERT INTO mention_index (mesh_id, mentioned, history_id) VALUES (1, 'bob', 99)": (None, "message_history"),
    "INSERT INTO queue_lease (mesh_id, history_id, queue_id) VALUES (1, 99, 1)": (None, "message_queue"),
    "UPDATE history_counter SET history_id = 4": (None, "history_id"),
    "UPDATE history_jump SET skipped = skipped - 1": (None, "history_id"),
}


@pytest.fixture
async def backend(postgres_installation: Installation, contract_dsn: Callable[[str], str]) -> PostgresBackend:
    found = PostgresBackend(contract_dsn(postgres_installation.name))
    await found.clear()
    return found


@pytest.mark.req("B8")
@pytest.mark.parametrize("hole", HOLES)
async def test_a_hole_in_an_accept_is_found(backend: PostgresBackend, tmp_path: Path, hole: str) -> None:
    stores = await backend.open(tmp_path, ManualClock())
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice", "bob")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    sent = [dm("1", "bob"), post("2", "news", meta={"mentions": ["bob"]}), job("3", "jobs")]
    await stores.accepts.accept(batch(town["alice"], *sent))
    await stores.accepts.retire(town["alice"], "given-up", NOW, None)
    await stores.upkeep.begin_epoch(NOW)
    assert await stores.upkeep.check() == []
    await backend.execute(f"SET search_path = mesh; SET session_replication_role = replica; {hole}")
    id_, missing = HOLES[hole]
    found = {(one.client_message_id, part) for one in await stores.upkeep.check() for part in one.missing}
    assert (id_, missing) in found
    await stores.aclose()
