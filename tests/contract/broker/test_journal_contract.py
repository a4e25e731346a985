"""What happens to a delivery is written down as it happens, and stays for as long as its message does."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from claudemesh.broker.model import Accepted, Claim
from claudemesh.broker.policy import ATTEMPTS_MAX
from claudemesh.broker.upkeep import Upkeep
from claudemesh.runtime.observe import Observer
from tests.contract.broker.backends import (
    BACKENDS,
    NOW,
    Backend,
    House,
    PostgresBackend,
    Town,
    batch,
    dm,
    job,
    post,
    seat,
    settle,
    subscribe,
)
from tests.contract.broker.journal import refold, shown

DAY = 86_400_000


@pytest.fixture(params=[name for name in BACKENDS if name != "oracle"])  # which keeps no rows
def backend(request: pytest.FixtureRequest, contract_dsn: Callable[[str], str]) -> Backend:
    return BACKENDS[request.param](contract_dsn)


async def events(house: House) -> list[tuple[Any, ...]]:
    return await house.rows("SELECT history_id, what, at, attempts, reason FROM delivery_event ORDER BY id")


async def change(house: House, sql: str) -> None:
    if isinstance(house.backend, PostgresBackend):
        await house.backend.execute(f"SET search_path = mesh; {sql}")
    else:
        connection = apsw.Connection(str(house.folder / "broker.db"))
        connection.execute(sql).fetchall()
        connection.close()


async def sweep(house: House) -> None:
    await Upkeep(
        house.stores.upkeep, house.stores.work, house.stores.presence, house.clock, Observer(), 365
    ).sweep()


async def send(house: House, town: Town, id_: str) -> Accepted:
    [accepted] = await house.stores.accepts.accept(
        batch(town["alice"], dm(id_, "bob"), now_ms=house.clock.wall_ms())
    )
    assert isinstance(accepted, Accepted)
    return accepted


@pytest.mark.req("S1")
async def test_what_happens_to_a_delivery_is_noted_once_and_in_its_order(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    sent, at = await send(house, town, "1"), await seat(stores, town, "bob")
    for _ in range(ATTEMPTS_MAX):  # each but the last changes nothing that counts
        await stores.deliveries.count_attempts(at, [1], NOW + 1)
    for later in (2, 3):
        await stores.deliveries.ack(town["bob"], [1], NOW + later)
        await stores.deliveries.mark_read(town["bob"], [sent.broker_message_id], NOW + later + 2)
    answers = [dm(id_, "alice", reply_to=sent.broker_message_id) for id_ in ("2", "3")]
    await stores.accepts.accept(batch(town["bob"], *answers, now_ms=NOW + 9))
    assert await events(house) == [
        (1, "dead", NOW + 1, ATTEMPTS_MAX, "attempts_exhausted"),
        (1, "delivered", NOW + 2, ATTEMPTS_MAX, None),
        (1, "read", NOW + 4, ATTEMPTS_MAX, None),
        (1, "acted", NOW + 9, ATTEMPTS_MAX, None),
    ]
    assert await refold(house) == await shown(house)


@pytest.mark.req("S1")
async def test_work_that_comes_back_is_noted_each_time(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    await stores.accepts.accept(batch(town["alice"], job("1", "jobs")))
    for settled in (stores.work.nack, stores.work.ack):
        work = await stores.work.work(town["alice"], "jobs", 1000, NOW)
        assert work is not None
        await settled(Claim(town["alice"], "jobs", work.broker_message_id, work.lease_token), NOW)
    assert [row[1] for row in await events(house)] == ["delivered", "returned", "delivered", "acted"]
    assert await refold(house) == await shown(house)


@pytest.mark.req("S1")
@pytest.mark.parametrize(
    ("changes", "noted"),
    [
        (
            "dead_at = 4, dead_reason = 'x', acted_at = 3, read_at = 2, delivered_at = 1",
            "delivered read acted dead",
        ),
        ("delivered_at = 1", "delivered"),
        ("delivered_at = NULL, read_at = 2", "read"),
        ("attempts = 7", ""),
    ],
)
async def test_no_statement_can_forget_to_note_what_it_changes(house: House, changes: str, noted: str) -> None:
    town = await settle(house.stores, "alice", "bob")
    await send(house, town, "1")
    await change(house, f"UPDATE delivery_queue SET {changes}")  # noqa: S608  constants
    assert " ".join(row[1] for row in await events(house)) == noted


@pytest.mark.req("S1")
async def test_what_is_taken_back_and_given_up_at_once_is_no_return(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    await send(house, town, "1")
    await house.stores.deliveries.ack(town["bob"], [1], NOW)
    await change(house, "UPDATE delivery_queue SET delivered_at = NULL, dead_at = 4, dead_reason = 'x'")
    assert [row[1:] for row in await events(house)][1:] == [("dead", 4, 0, "x")]
    assert await refold(house) == await shown(house)


@pytest.mark.req("S1", "B7")
async def test_old_events_go_with_their_messages_and_no_number_is_used_again(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    for id_ in ("1", "2"):
        await send(house, town, id_)
    await stores.deliveries.ack(town["bob"], [1], NOW)
    house.clock.advance(300 * DAY)
    await send(house, town, "3")
    await stores.deliveries.ack(town["bob"], [2, 3], NOW + 300 * DAY)
    house.clock.advance(66 * DAY)
    await sweep(house)
    assert [row[0] for row in await events(house)] == [2, 3], (
        "the second message is gone, but what happened is young"
    )
    [(last,)] = await house.rows("SELECT max(id) FROM delivery_event")
    house.clock.advance(300 * DAY)
    await sweep(house)
    assert await events(house) == []
    await send(house, town, "4")
    await stores.deliveries.ack(town["bob"], [4], NOW)
    [(next_one,)] = await house.rows("SELECT id FROM delivery_event")
    assert next_one > last


@pytest.mark.req("S1", "B7")
async def test_what_happened_to_a_message_that_is_kept_stays_and_what_came_after_it_too(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    await subscribe(stores, town, "news", "alice", "bob", "carol")
    await stores.accepts.accept(batch(town["alice"], post("1", "news"), dm("2", "bob")))
    await stores.deliveries.ack(town["bob"], [1], NOW)
    await stores.deliveries.ack(town["bob"], [2], NOW)
    house.clock.advance(366 * DAY)
    await sweep(house)
    assert [row[:2] for row in await events(house)] == [(1, "delivered"), (2, "delivered"), (1, "dead")]
    assert [row[0] for row in await house.rows("SELECT history_id FROM message_history")] == [1]
    assert await refold(house) == await shown(house)
    house.clock.advance(DAY + 1)
    await sweep(house)
    assert [row[:2] for row in await events(house)] == [(1, "dead")]


async def test_a_store_has_an_id_of_its_own_for_as_long_as_it_lives(house: House, tmp_path: Path) -> None:
    async def store_id() -> str:
        [(found,)] = await house.rows("SELECT value FROM broker_state WHERE name = 'store_id'")
        return bytes(found).decode()

    first = await store_id()
    assert re.fullmatch("[0-9a-f]{16}", first)
    await house.reopen()
    assert await store_id() == first
    if not isinstance(house.backend, PostgresBackend):
        house.folder = tmp_path / "another"
        house.folder.mkdir()
        await house.reopen()
        assert await store_id() != first
