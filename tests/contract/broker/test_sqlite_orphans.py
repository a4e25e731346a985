"""The orphan check finds every kind of hole. Holes are made with SQL, so this is about the SQLite store alone."""

from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from claudemesh.broker.stores.sqlite import SqliteStores
from tests.contract.broker.backends import NOW, Town, batch, dm, job, open_house, post, settle, subscribe


async def filled(stores: SqliteStores) -> Town:
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice", "bob")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    sent = [dm("1", "bob"), post("2", "news", meta={"mentions": ["bob"]}), job("3", "jobs")]
    await stores.accepts.accept(batch(town["alice"], *sent))
    await stores.accepts.retire(town["alice"], "given-up", NOW, None)
    return town


HOLES = {
    "DELETE FROM message_history WHERE history_id = 1": ("1", "message_history"),
    "DELETE FROM message_queue WHERE history_id = 1": ("1", "message"),
    "DELETE FROM topic_message": ("2", "message"),
    "DELETE FROM delivery_queue WHERE history_id = 1": ("1", "delivery_queue"),
    "DELETE FROM delivery_queue WHERE history_id = 3": ("3", "delivery_queue"),
    "DELETE FROM queue_lease": ("3", "queue_lease"),
    "PRAGMA foreign_keys = 0; DELETE FROM queue": ("3", "queue"),
    "DELETE FROM client_message_dedupe WHERE history_id = 2": ("2", "client_message_dedupe"),
    "UPDATE client_message_dedupe SET broker_message_id = 'x' WHERE history_id = 1": ("1", "message_history"),
    "INSERT INTO delivery_queue (mesh_id, history_id, recipient_id) VALUES (1, 99, 2)": (None, "message_history"),
    "INSERT INTO mention_index VALUES (1, 'bob', 99)": (None, "message_history"),
    "UPDATE history_counter SET history_id = 4": (None, "history_id"),
    "DELETE FROM delivery_open": (None, "delivery_open"),
    "UPDATE delivery_queue SET delivered_at = 1 WHERE history_id = 1": (None, "delivery_open"),
}


@pytest.mark.req("B8")
@pytest.mark.parametrize("hole", HOLES)
async def test_a_hole_in_an_accept_is_found(tmp_path: Path, hole: str) -> None:
    house = open_house("sqlite-grouped", tmp_path)
    try:
        await filled(house.stores)
        assert await house.stores.upkeep.check() == []

        def dig(connection: apsw.Connection, items: Sequence[str]) -> list[None]:
            connection.execute(items[0]).fetchall()
            return [None]

        if hole.startswith("PRAGMA"):
            connection = apsw.Connection(str(tmp_path / "broker.db"))
            connection.execute(hole).fetchall()
            connection.close()
        else:
            await house.stores.database.write(dig, hole)
        id_, missing = HOLES[hole]
        found = {(one.client_message_id, part) for one in await house.stores.upkeep.check() for part in one.missing}
        assert (id_, missing) in found
    finally:
        await house.stores.aclose()
