"""The embedded broker's store at work: senders in batches to members, a topic and a queue; recipients acknowledge.

The careful workload is the broker's own store. The careless ones weaken it in ways that people really do.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import apsw

from claudemesh.broker.model import Accepted, Identity
from claudemesh.broker.presence.model import Arrival
from claudemesh.broker.stores.sqlite import SqliteStores
from claudemesh.broker.stores.sqlite.upkeep import check
from claudemesh.storage.sqlite import connection as settings
from tests.contract.broker.backends import (
    NOW,
    Town,
    batch,
    dm,
    job,
    open_house,
    post,
    settle,
    subscribe,
)
from tests.powercut.harness import Subject, Tell
from tests.powercut.states import Marks

FILE: Final = "broker.db"
NAMES: Final = ("ann", "ben", "cem", "dan")
ROUNDS: Final = 10
BATCH: Final = 6


async def _send(stores: SqliteStores, town: Town, mark: Tell, name: str, life: str) -> None:
    others = [other for other in NAMES if other != name]
    for turn in range(ROUNDS):
        ids = [f"{life}-{turn}-{number}" for number in range(BATCH)]
        messages = [
            (
                dm(id_, others[turn % 3], body=id_ * 40),
                post(id_, "news", body=id_ * 9),
                job(id_, "work", body=id_),
            )[number % 3]
            for number, id_ in enumerate(ids)
        ]
        for id_ in ids:
            mark("sent", f"{name} {id_}")
        outcomes = await stores.accepts.accept(batch(town[name], *messages))
        for id_, outcome in zip(ids, outcomes, strict=True):
            assert isinstance(outcome, Accepted), outcome
            mark("ack", f"{name} {id_} {outcome.broker_message_id} {outcome.history_id}")
        if turn % 3 == 0:
            again = await stores.accepts.accept(batch(town[name], *messages[:2]))
            assert not any(isinstance(outcome, Accepted) for outcome in again)


async def _receive(stores: SqliteStores, town: Town, mark: Tell, name: str) -> None:
    seat = (await stores.seats.take(Arrival(Identity(town.mesh, town.members[name], "instance")))).seat
    for _ in range(ROUNDS):
        page = await stores.deliveries.page(seat, 0, 16, 100_000)
        history_ids = [parcel.history_id for parcel in page.parcels]
        if history_ids:
            await stores.deliveries.ack(town[name], history_ids, NOW)
            for history_id in history_ids:
                mark("delivered", f"{name} {history_id}")
        await asyncio.sleep(0)


async def _live(stores: SqliteStores, town: Town, mark: Tell, life: str) -> None:
    senders = [_send(stores, town, mark, name, life) for name in NAMES]
    await asyncio.gather(*senders, *(_receive(stores, town, mark, name) for name in NAMES))


async def _begin(stores: SqliteStores) -> Town:
    town = await settle(stores, *NAMES)
    await subscribe(stores, town, "news", *NAMES)
    await stores.work.create_queue(town["ann"], "work", NOW)
    return town


def two_lives(folder: Path, mark: Tell) -> None:
    first = open_house("sqlite-grouped", folder).stores

    async def begin() -> Town:
        town = await _begin(first)
        await _live(first, town, mark, "1")
        return town

    town = asyncio.run(begin())
    first.database.close()
    second = open_house("sqlite-grouped", folder).stores
    asyncio.run(_live(second, town, mark, "2"))


def with_sync_normal(folder: Path, mark: Tell) -> None:
    settings._SETTINGS["synchronous"] = ("normal", 1)
    two_lives(folder, mark)


def with_dedupe_in_memory(folder: Path, mark: Tell) -> None:
    """Forget the ids that are older than the last few: a window that is lost with the process."""
    house = open_house("sqlite-grouped", folder)

    def forget(connection: apsw.Connection, items: Sequence[None]) -> list[None]:
        connection.execute("DELETE FROM client_message_dedupe")
        return list(items)

    async def live() -> None:
        town = await _begin(house.stores)
        for life in ("1", "2"):
            await _live(house.stores, town, mark, life)
            await house.stores.database.write(forget, None)

    asyncio.run(live())


# --- what must hold -------------------------------------------------------------------------------------


def reopen(folder: Path) -> None:
    house = open_house("sqlite-grouped", folder)
    house.stores.database.close()


def verify(connection: apsw.Connection, marks: Marks) -> list[str]:
    acked = marks.of("ack")
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'client_message_dedupe'").fetchall():
        return [f"acknowledged and lost: {one}" for one in sorted(acked)]
    found = {
        f"{name} {id_} {broker_id} {history_id}"
        for name, id_, broker_id, history_id in connection.execute(
            "SELECT member.name, d.client_message_id, d.broker_message_id, d.history_id "
            "FROM client_message_dedupe AS d JOIN member ON member.id = d.sender_id"
        )
    }
    wrong = [f"acknowledged and lost: {one}" for one in sorted(acked - found)]
    sent = marks.of("sent")
    wrong += [f"nobody sent this: {one}" for one in sorted(found) if " ".join(one.split()[:2]) not in sent]
    wrong += [f"torn: {violation}" for violation in check(connection)]
    delivered = {
        f"{name} {history_id}"
        for name, history_id in connection.execute(
            "SELECT member.name, q.history_id FROM delivery_queue AS q JOIN member ON member.id = q.recipient_id "
            "WHERE q.delivered_at IS NOT NULL"
        )
    }
    wrong += [f"an ack was forgotten: {one}" for one in sorted(marks.of("delivered") - delivered)]
    numbers = [row[0] for row in connection.execute("SELECT history_id FROM message_history ORDER BY history_id")]
    if numbers != list(range(1, len(numbers) + 1)):
        wrong.append("the history has a gap")
    return wrong


BROKER: Final = Subject(two_lives, reopen, verify, FILE)
