"""What two brokers do at once beside accepts: membership, seats, acks, leases, sweeps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from claudemesh.broker.model import (
    Claim,
    DeliveryState,
    Displaced,
    Meeting,
    Member,
    Role,
    SweepPage,
)
from claudemesh.kernel.errors import InviteRefused, LeaseLost, Revoked, StoreUnavailable
from tests.contract.broker.backends import (
    BOUND_S,
    NOW,
    Town,
    arrive,
    batch,
    dm,
    job,
    newcomer,
    settle,
    ulids,
)
from tests.contract.broker.pairs import (
    DAY,
    GATE_OF_DELIVERIES,
    GATE_OF_SEATS,
    GATE_OF_TOMBSTONES,
    Pair,
    begin,
    waiting_for,
)


@asynccontextmanager
async def held_mesh(dsn: str, town: Town) -> AsyncIterator[None]:
    holder = await asyncpg.connect(dsn)
    try:
        async with holder.transaction():
            await holder.execute("SELECT * FROM mesh.mesh WHERE id = $1 FOR UPDATE", town.mesh.id)
            yield
    finally:
        await holder.close()


@pytest.mark.req("I3")
async def test_an_invite_lets_in_as_many_as_it_says_also_at_two_brokers(pair: Pair, postgres_database: str) -> None:
    town = await settle(pair.one, "alice")
    async with held_mesh(postgres_database, town):
        joins = [
            begin(stores.directory.join(town.mesh.id, newcomer(f"n{number}"), "invite", "key-of-alice", 1))
            for number, stores in enumerate((pair.one, pair.two))
        ]
        await pair.until_waiting(2)
    outcomes = await asyncio.gather(*joins, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Member, InviteRefused}


@pytest.mark.req("Q8")
async def test_of_two_owners_who_revoke_each_other_at_two_brokers_one_stays(
    pair: Pair, postgres_database: str
) -> None:
    town = await settle(pair.one, "alice", "bob")
    await pair.one.directory.set_role(town["alice"], "bob", Role.OWNER)
    async with held_mesh(postgres_database, town):
        revocations = [
            begin(pair.one.directory.revoke(town["alice"], "bob", NOW)),
            begin(pair.two.directory.revoke(town["bob"], "alice", NOW)),
        ]
        await pair.until_waiting(2)
    outcomes = await asyncio.gather(*revocations, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Member, Revoked}
    assert len(await pair.one.directory.members(town.mesh.id)) == 1


@pytest.mark.req("I3")
async def test_a_mesh_that_two_brokers_make_at_once_is_one(pair: Pair) -> None:
    async with asyncio.timeout(BOUND_S):
        made = await asyncio.gather(
            *(
                stores.directory.create_mesh(ulids.ulid(), f"slug-{number}", newcomer("alice"))
                for number in range(20)
                for stores in (pair.one, pair.two)
            )
        )
    assert made[::2] == made[1::2]
    assert len({mesh.id for mesh, _ in made}) == 20


# --- seats -----------------------------------------------------------------------------------------


@pytest.mark.req("N4", "Q1")
async def test_of_two_connections_of_a_member_that_come_at_once_the_second_displaces_the_first(pair: Pair) -> None:
    town = await settle(pair.one, "bob")
    await pair.watcher.execute(GATE_OF_SEATS)
    async with pair.gate():
        coming = begin(arrive(pair.one, town, "bob", instance="slow"))
        await pair.until_waiting(1)
        next_one = begin(arrive(pair.two, town, "bob", instance="another"))
        await pair.until_waiting(2, next_one)
    first, second = await coming, await next_one
    assert second.displaced == [Displaced(first.seat.token, Meeting.SUPERSEDED)]
    assert await pair.one.seats.standing() == set()


async def test_a_broker_that_is_just_now_taken_for_dead_gives_no_seat_and_says_that_it_will(pair: Pair) -> None:
    town = await settle(pair.one, "bob")
    reaping = pair.watcher.transaction()
    await reaping.start()
    await pair.watcher.execute("DELETE FROM mesh.broker WHERE id = $1", pair.two.broker.id)
    coming = begin(arrive(pair.two, town, "bob"))
    await pair.until_waiting(1)
    await reaping.commit()
    with pytest.raises(StoreUnavailable):
        await coming
    await pair.two.seats.beat()
    assert (await arrive(pair.two, town, "bob")).displaced == []


# --- deliveries, work and retention ----------------------------------------------------------------


@asynccontextmanager
async def held_delivery(dsn: str, history_id: int) -> AsyncIterator[None]:
    holder = await asyncpg.connect(dsn)
    try:
        async with holder.transaction():
            await holder.execute("SELECT * FROM mesh.delivery_queue WHERE history_id = $1 FOR UPDATE", history_id)
            yield
    finally:
        await holder.close()


@pytest.mark.req("Q1")
@pytest.mark.usefixtures("once")
async def test_acks_of_the_same_messages_in_opposite_orders_never_wait_each_for_each(
    pair: Pair, postgres_database: str
) -> None:
    town = await settle(pair.one, "alice", "bob")
    await pair.one.accepts.accept(batch(town["alice"], dm("1", "bob"), dm("2", "bob")))
    async with held_delivery(postgres_database, 2):
        async with held_delivery(postgres_database, 1):
            acks = [begin(pair.one.deliveries.ack(town["bob"], [1, 2], NOW))]
            await pair.until_waiting(1)
            acks.append(begin(pair.two.deliveries.ack(town["bob"], [2, 1], NOW)))
            await pair.until_waiting(2)
        await pair.until_waiting(2)  # each has what it asked for first, if that was not the same
    await asyncio.gather(*acks)
    assert await waiting_for(pair.one, town, "bob") == []


async def with_leased_work(pair: Pair) -> tuple[Town, Claim]:
    town = await settle(pair.one, "alice")
    await pair.one.work.create_queue(town["alice"], "jobs", NOW)
    await pair.one.accepts.accept(batch(town["alice"], job("1", "jobs")))
    work = await pair.one.work.work(town["alice"], "jobs", 1000, NOW)
    assert work is not None
    return town, Claim(town["alice"], "jobs", work.broker_message_id, work.lease_token)


@pytest.mark.req("Q3")
async def test_a_lease_that_ran_out_is_left_to_the_broker_that_is_just_now_working_on_it(pair: Pair) -> None:
    await with_leased_work(pair)
    await pair.watcher.execute("UPDATE mesh.queue_lease SET expires_at = 1")
    async with asyncio.timeout(BOUND_S), pair.watcher.transaction():
        await pair.watcher.execute("SELECT * FROM mesh.queue_lease FOR UPDATE")
        expiring = begin(pair.two.work.expire(NOW))
        while not expiring.done():
            assert await pair.waiting() == 0
            await asyncio.sleep(0.005)
    assert await expiring == 0
    assert await pair.two.work.expire(NOW) == 1


def old_messages(town: Town) -> SweepPage:
    later = NOW + 366 * DAY
    return SweepPage(
        mesh_id=town.mesh.id, after_history_id=0, before_ms=later, buried_before_ms=NOW, now_ms=later, limit=10
    )


@pytest.mark.req("B7")
@pytest.mark.usefixtures("once")
async def test_a_sweep_and_an_ack_of_the_same_work_never_wait_each_for_each(pair: Pair) -> None:
    town, claim = await with_leased_work(pair)
    await pair.watcher.execute(GATE_OF_DELIVERIES)
    async with pair.gate():
        acking = begin(pair.one.work.ack(claim, NOW))
        await pair.until_waiting(1)
        sweeping = begin(pair.two.upkeep.sweep_messages(old_messages(town)))
        await pair.until_waiting(2)
    await acking
    assert (await sweeping).dead_letters == 0, "it was done in time"


@pytest.mark.req("B7", "Q3")
@pytest.mark.parametrize("handed_over", [True, False])
async def test_work_that_is_just_now_given_up_as_too_old_is_neither_done_nor_handed_over(
    pair: Pair, *, handed_over: bool
) -> None:
    town, claim = await with_leased_work(pair)
    await pair.watcher.execute(GATE_OF_DELIVERIES)
    async with pair.gate():
        sweeping = begin(pair.two.upkeep.sweep_messages(old_messages(town)))
        await pair.until_waiting(1)
        acking = begin(pair.one.work.ack(claim, NOW, handed_over=handed_over))
        await pair.until_waiting(2, acking)
    assert (await sweeping).dead_letters == 1
    with pytest.raises(LeaseLost):
        await acking


@pytest.mark.req("B7", "Q3")
async def test_work_that_is_just_now_handed_over_is_no_dead_letter(pair: Pair) -> None:
    town, _ = await with_leased_work(pair)
    handing_over = pair.watcher.transaction()
    await handing_over.start()
    await pair.watcher.execute("UPDATE mesh.queue_lease SET is_settled = true")
    sweeping = begin(pair.two.upkeep.sweep_messages(old_messages(town)))
    await pair.until_waiting(1, sweeping)
    await handing_over.commit()
    swept = await sweeping
    assert (swept.messages, swept.dead_letters) == (1, 0)


@pytest.mark.req("Q3", "Q6")
async def test_what_is_acked_while_a_reply_makes_it_acted_was_acted_when_the_reply_came(pair: Pair) -> None:
    town, claim = await with_leased_work(pair)
    await pair.one.work.ack(claim, NOW, handed_over=True)
    replying = pair.watcher.transaction()
    await replying.start()
    await pair.watcher.execute("UPDATE mesh.delivery_queue SET acted_at = $1", NOW + 1)
    acking = begin(pair.one.work.ack(claim, NOW + 2))
    await pair.until_waiting(1, acking)
    await replying.commit()
    assert (await acking).state is DeliveryState.ACTED
    [receipt] = await pair.two.receipts.receipts(town["alice"], ["1"], [])
    assert (receipt.state, receipt.at) == (DeliveryState.ACTED, NOW + 1)


@pytest.mark.req("Q3")
async def test_an_ack_that_is_said_at_two_brokers_at_once_holds_at_both(pair: Pair) -> None:
    _, claim = await with_leased_work(pair)
    await pair.watcher.execute(GATE_OF_DELIVERIES)
    async with pair.gate():
        acks = [begin(stores.work.ack(claim, NOW)) for stores in (pair.one, pair.two)]
        await pair.until_waiting(2)
    assert [acked.state for acked in await asyncio.gather(*acks)] == [DeliveryState.ACTED] * 2


@pytest.mark.req("B7")
async def test_ids_of_messages_that_two_brokers_sweep_at_once_are_all_forgotten(pair: Pair) -> None:
    town, other = await settle(pair.one, "alice", "bob"), await settle(pair.one, "carol", "dave", slug="other")
    for sender, message, to in (
        (town["alice"], dm("slow", "bob"), town["bob"]),
        (other["carol"], dm("1", "dave"), other["dave"]),
    ):
        await pair.one.accepts.accept(batch(sender, message, expires_at=NOW))
        await pair.one.deliveries.ack(to, [1], NOW)
    await pair.watcher.execute(GATE_OF_TOMBSTONES)
    async with pair.gate():
        slow = begin(pair.one.upkeep.sweep_messages(old_messages(town)))
        await pair.until_waiting(1)
        quick = begin(pair.two.upkeep.sweep_messages(old_messages(other)))
        await pair.until_waiting(2, quick)
    assert [(await one).messages for one in (slow, quick)] == [1, 1]
    assert await pair.two.upkeep.sweep_ids(NOW + 366 * DAY, 10) == 2
