"""Holes in what one accept wrote: the statement that makes one, and what the orphan check must say of it."""

from collections.abc import Set as AbstractSet

from tests.contract.broker.backends import NOW, Stores, batch, dm, job, post, settle, subscribe

Hole = tuple[str | None, str]  # the id, where one is known, and what is missing

# Of both stores, after `fill`. Foreign keys are off where they are run.
HOLES: dict[str, Hole] = {
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


async def fill(stores: Stores) -> None:
    """Accept one message of each kind, give an id up, begin an epoch: all of it without a hole."""
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice", "bob")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    sent = [dm("1", "bob"), post("2", "news", meta={"mentions": ["bob"]}), job("3", "jobs")]
    await stores.accepts.accept(batch(town["alice"], *sent))
    await stores.accepts.retire(town["alice"], "given-up", NOW, None)
    await stores.upkeep.begin_epoch(NOW)
    assert await found(stores) == set()


async def found(stores: Stores) -> AbstractSet[Hole]:
    return {(one.client_message_id, part) for one in await stores.upkeep.check() for part in one.missing}
