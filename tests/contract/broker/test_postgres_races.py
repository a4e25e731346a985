"""Two brokers on one database, held where it hurts: a transaction is stopped in the middle, and looked at."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from claudemesh.broker.model import (
    Accepted,
    AcceptOutcome,
    Claim,
    Displaced,
    Duplicate,
    Identity,
    Meeting,
    Member,
    Role,
    Sender,
    SweepPage,
)
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.kernel.errors import IdempotencyConflict, InviteRefused, Revoked, StoreUnavailable
from claudemesh.storage.postgres import database, writer
from tests.contract.broker.backends import (
    BOUND_S,
    NOW,
    Town,
    batch,
    dm,
    job,
    newcomer,
    post,
    settle,
    subscribe,
    ulids,
)
from tests.doubles import ManualClock

GATE = 4711
DAY = 86_400_000

# Whoever writes the history row of the message called `slow` waits at the gate, holding its id and the counter. All
# pass it once it is open.
GATE_SQL = f"""
CREATE FUNCTION mesh.wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NEW; END $$;
CREATE TRIGGER gate BEFORE INSERT ON mesh.message_history FOR EACH ROW
WHEN (NEW.client_message_id = 'slow') EXECUTE FUNCTION mesh.wait_at_the_gate();
"""

# Whoever has used one id waits at the gate before it uses another.
GATE_BETWEEN_IDS = f"""
CREATE FUNCTION mesh.wait_between_ids() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('test.is_second', true) = 'yes' THEN PERFORM pg_advisory_xact_lock_shared({GATE}); END IF;
  PERFORM set_config('test.is_second', 'yes', true);
  RETURN NEW;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON mesh.client_message_dedupe FOR EACH ROW
EXECUTE FUNCTION mesh.wait_between_ids();
"""

# Whoever gives a seat to the instance called `slow` waits at the gate.
GATE_OF_SEATS = """
CREATE TRIGGER gate BEFORE INSERT ON mesh.seat FOR EACH ROW
WHEN (NEW.instance_id = 'slow') EXECUTE FUNCTION mesh.wait_at_the_gate();
"""

# Whoever deletes the message called `slow` waits at the gate, with the number of its tombstone.
GATE_OF_TOMBSTONES = """
CREATE TRIGGER gate BEFORE INSERT ON mesh.tombstone FOR EACH ROW
WHEN (NEW.client_message_id = 'slow') EXECUTE FUNCTION mesh.wait_at_the_gate();
"""

# Whoever is about to change deliveries waits at the gate, before it holds any of them.
GATE_OF_DELIVERIES = """
CREATE TRIGGER gate BEFORE UPDATE ON mesh.delivery_queue EXECUTE FUNCTION mesh.wait_at_the_gate();
"""


@dataclass
class Pair:
    """Two brokers' stores on one database, and a connection that looks at its locks."""

    one: PostgresStores
    two: PostgresStores
    watcher: Any

    async def until_waiting(self, count: int, *held_up: "asyncio.Future[Any]") -> None:
        """Wait until so many transactions wait for a lock that another holds, and these have not got through."""
        async with asyncio.timeout(BOUND_S):
            while await self.waiting() < count:
                assert not any(one.done() for one in held_up)
                await asyncio.sleep(0.005)

    async def waiting(self) -> int:
        count: int = await self.watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return count

    @asynccontextmanager
    async def gate(self) -> AsyncIterator[None]:
        """Keep the gate shut."""
        await self.watcher.execute("SELECT pg_advisory_lock($1)", GATE)
        try:
            yield
        finally:
            await self.watcher.execute("SELECT pg_advisory_unlock($1)", GATE)


@pytest.fixture
async def pair(postgres_database: str) -> AsyncIterator[Pair]:
    def opened() -> Awaitable[PostgresStores]:
        return PostgresStores.open(postgres_database, clock=ManualClock(), mint=ulids.ulid, render=render_delivery)

    one, two = await asyncio.gather(opened(), opened())
    watcher = await asyncpg.connect(postgres_database)
    await watcher.execute(GATE_SQL)
    yield Pair(one, two, watcher)
    await watcher.close()
    await one.aclose()
    await two.aclose()


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a deadlock told to the caller, instead of trying again."""
    for module in (database, writer):
        monkeypatch.setattr(module, "TRIES", 1)


def begin(awaitable: Awaitable[Any]) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(awaitable)


async def waiting_for(stores: PostgresStores, town: Town, name: str) -> list[int]:
    """Return the history ids of what waits for a member."""
    seated = await stores.seats.take(Identity(town.mesh, town.members[name], "an-instance"))
    page = await stores.deliveries.page(seated.seat, 0, 1000, 1_000_000)
    return [parcel.history_id for parcel in page.parcels]


def ids(outcomes: list[AcceptOutcome]) -> list[int]:
    return [outcome.history_id for outcome in outcomes if isinstance(outcome, Accepted)]


@pytest.mark.req("B2")
@pytest.mark.parametrize("body", ["the same", "another"])
async def test_of_one_id_at_two_brokers_one_takes_it_and_the_other_waits_and_sees_it(pair: Pair, body: str) -> None:
    town = await settle(pair.one, "alice", "bob")
    async with pair.gate():
        first = begin(pair.one.accepts.accept(batch(town["alice"], dm("slow", "bob", "the same"))))
        await pair.until_waiting(1)
        second = begin(pair.two.accepts.accept(batch(town["alice"], dm("slow", "bob", body))))
        await pair.until_waiting(2)
    [accepted], [answer] = await first, await second
    assert isinstance(accepted, Accepted)
    if body == "the same":
        assert isinstance(answer, Duplicate)
        assert (answer.broker_message_id, answer.history_id) == (accepted.broker_message_id, accepted.history_id)
    else:
        assert isinstance(answer, IdempotencyConflict)
    assert await pair.two.upkeep.check() == []


@pytest.mark.req("B0", "B2")
async def test_an_id_that_both_brokers_looked_up_and_missed_is_accepted_once(pair: Pair) -> None:
    town = await settle(pair.one, "alice", "bob")
    both = (pair.one.accepts, pair.two.accepts)
    for number in range(20):
        message, looked_up = dm(f"m{number}", "bob"), asyncio.Barrier(2)

        async def miss_then_accept(accepts: Any) -> AcceptOutcome:  # noqa: ANN401
            assert await accepts.standing(town["alice"].member_id, [message.client_message_id]) == {}  # noqa: B023
            await looked_up.wait()  # noqa: B023
            [outcome] = await accepts.accept(batch(town["alice"], message))  # noqa: B023
            return outcome

        outcomes = await asyncio.gather(*(miss_then_accept(accepts) for accepts in both))
        assert {type(outcome) for outcome in outcomes} == {Accepted, Duplicate}
        assert len({(outcome.broker_message_id, outcome.history_id) for outcome in outcomes}) == 1
    assert await pair.one.upkeep.check() == []


@pytest.mark.req("B2")
@pytest.mark.usefixtures("once")
async def test_frames_with_the_same_ids_in_opposite_orders_wait_one_for_the_other_and_never_each_for_each(
    pair: Pair,
) -> None:
    town = await settle(pair.one, "alice", "bob")
    await pair.watcher.execute(GATE_BETWEEN_IDS)
    frame = [dm("a", "bob"), dm("b", "bob")]
    async with pair.gate():
        first = begin(pair.one.accepts.accept(batch(town["alice"], *frame)))
        await pair.until_waiting(1)
        second = begin(pair.two.accepts.accept(batch(town["alice"], *reversed(frame))))
        await pair.until_waiting(2)
    outcomes = [*(await first), *(await second)]
    assert [type(outcome) for outcome in outcomes] == [Accepted, Accepted, Duplicate, Duplicate]


@pytest.mark.req("B4")
async def test_a_slow_transaction_with_a_lower_number_is_waited_for_so_no_reader_sees_a_later_one_first(
    pair: Pair,
) -> None:
    town = await settle(pair.one, "alice", "bob")
    async with pair.gate():
        slow = begin(pair.one.accepts.accept(batch(town["alice"], dm("slow", "bob"))))
        await pair.until_waiting(1)
        quick = begin(pair.two.accepts.accept(batch(town["bob"], dm("quick", "bob"))))
        await pair.until_waiting(2)
        assert await waiting_for(pair.two, town, "bob") == []
    assert ids(await slow) == [1]
    assert ids(await quick) == [2]
    assert await waiting_for(pair.two, town, "bob") == [1, 2]


@pytest.mark.req("B4")
async def test_a_slow_transaction_holds_up_no_other_mesh(pair: Pair) -> None:
    town, other = await settle(pair.one, "alice", "bob"), await settle(pair.one, "carol", "dave", slug="other")
    async with pair.gate():
        slow = begin(pair.one.accepts.accept(batch(town["alice"], dm("slow", "bob"))))
        await pair.until_waiting(1)
        async with asyncio.timeout(BOUND_S):
            assert ids(await pair.two.accepts.accept(batch(other["carol"], dm("1", "dave")))) == [1]
    assert ids(await slow) == [1]


@pytest.mark.req("B4")
async def test_a_key_that_is_waited_for_does_not_hold_the_counter(pair: Pair, postgres_database: str) -> None:
    town = await settle(pair.one, "alice", "bob")
    holder = await asyncpg.connect(postgres_database)
    undecided = holder.transaction()
    await undecided.start()
    await holder.execute(
        "INSERT INTO mesh.client_message_dedupe (sender_id, client_message_id, mesh_id, state, history_available, "
        "first_seen_at) VALUES ($1, 'k', $2, 'retired', false, 0)",
        town["alice"].member_id,
        town.mesh.id,
    )
    held_up = begin(pair.one.accepts.accept(batch(town["alice"], dm("k", "bob"))))
    await pair.until_waiting(1)
    async with asyncio.timeout(BOUND_S):
        assert ids(await pair.two.accepts.accept(batch(town["bob"], dm("1", "alice")))) == [1]
    await undecided.rollback()
    assert ids(await held_up) == [2]
    await holder.close()


@pytest.mark.req("Q8")
async def test_whoever_subscribes_during_a_fan_out_begins_behind_it(pair: Pair) -> None:
    town = await settle(pair.one, "alice", "bob", "carol")
    await subscribe(pair.one, town, "news", "alice", "bob")
    async with pair.gate():
        posting = begin(pair.one.accepts.accept(batch(town["alice"], post("slow", "news"))))
        await pair.until_waiting(1)
        subscribing = begin(pair.two.topics.subscribe(town["carol"], "news"))
        await pair.until_waiting(2, subscribing)
    assert ids(await posting) == [1]
    assert await subscribing == 1
    assert ids(await pair.one.accepts.accept(batch(town["alice"], post("2", "news")))) == [2]
    assert await waiting_for(pair.one, town, "carol") == [2]


@asynccontextmanager
async def held_counter(dsn: str, town: Town) -> AsyncIterator[None]:
    holder = await asyncpg.connect(dsn)
    try:
        async with holder.transaction():
            await holder.execute("SELECT * FROM mesh.history_counter WHERE mesh_id = $1 FOR UPDATE", town.mesh.id)
            yield
    finally:
        await holder.close()


@pytest.mark.req("Q8")
async def test_a_post_that_waited_for_a_subscription_is_delivered_to_it(pair: Pair, postgres_database: str) -> None:
    town = await settle(pair.one, "alice", "bob", "carol")
    await subscribe(pair.one, town, "news", "alice", "bob")
    async with held_counter(postgres_database, town):
        subscribing = begin(pair.two.topics.subscribe(town["carol"], "news"))
        await pair.until_waiting(1)
        posting = begin(pair.one.accepts.accept(batch(town["alice"], post("1", "news"))))
        await pair.until_waiting(2)
    after, posted = await subscribing, ids(await posting)
    assert (after, posted) == (0, [1])
    assert await waiting_for(pair.one, town, "carol") == [1]


@pytest.mark.req("Q8")
async def test_a_send_that_waited_for_its_senders_revocation_is_refused(pair: Pair, postgres_database: str) -> None:
    town = await settle(pair.one, "alice", "bob")
    async with held_counter(postgres_database, town):
        revoking = begin(pair.two.directory.revoke(town["alice"], "bob", NOW))
        await pair.until_waiting(1)
        sending = begin(pair.one.accepts.accept(batch(town["bob"], dm("1", "alice"))))
        await pair.until_waiting(2)
    assert (await revoking).revoked_at == NOW
    assert isinstance((await sending)[0], Revoked)
    assert ids(await pair.one.accepts.accept(batch(town["alice"], dm("1", "alice")))) == [1]  # no number was lost


@pytest.mark.req("B4", "B5")
async def test_brokers_that_are_stormed_with_the_same_ids_in_every_order_accept_each_once_without_a_gap(
    pair: Pair, effort: int
) -> None:
    seed = secrets.randbits(32)
    print(f"the seed of the orders is {seed}")  # noqa: T201  shown if it fails
    shuffle = random.Random(seed).shuffle  # noqa: S311
    town = await settle(pair.one, "alice", "bob", "carol")
    await subscribe(pair.one, town, "news", "alice", "bob", "carol")
    names = ("alice", "bob", "carol")
    for number in range(2 * effort):
        orders = []
        for broker in (pair.one, pair.two):
            for name in names:
                messages = [post(f"{number}-{place}", "news", f"{place}") for place in range(60)]
                shuffle(messages)
                orders += [(broker, town[name], messages[at : at + 7]) for at in range(0, 60, 7)]
        shuffle(orders)
        async with asyncio.timeout(BOUND_S):
            answers = await asyncio.gather(
                *(broker.accepts.accept(batch(sender, *messages)) for broker, sender, messages in orders)
            )
        outcomes = [outcome for answer in answers for outcome in answer]
        assert len([outcome for outcome in outcomes if isinstance(outcome, Accepted)]) == 60 * len(names)
        assert len([outcome for outcome in outcomes if isinstance(outcome, Duplicate)]) == 60 * len(names)
    total = 2 * effort * 60 * len(names)
    last = await pair.watcher.fetchval("SELECT history_id FROM mesh.history_counter")
    assert last == total
    assert await pair.one.upkeep.check() == []


async def test_a_sender_whose_frames_are_under_way_together_is_committed_in_their_order(pair: Pair) -> None:
    town = await settle(pair.one, "alice", "bob")
    sender: Sender = town["alice"]
    frames = [begin(pair.one.accepts.accept(batch(sender, dm(f"m{number}", "bob")))) for number in range(100)]
    assert [ids(outcomes) for outcomes in await asyncio.gather(*frames)] == [[number + 1] for number in range(100)]


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
    mesh, bob = town.mesh, town.members["bob"]
    async with pair.gate():
        coming = begin(pair.one.seats.take(Identity(mesh, bob, "slow")))
        await pair.until_waiting(1)
        next_one = begin(pair.two.seats.take(Identity(mesh, bob, "another")))
        await pair.until_waiting(2, next_one)
    first, second = await coming, await next_one
    assert second.displaced == [Displaced(first.seat.token, Meeting.SUPERSEDED)]
    assert await pair.one.seats.standing() == set()


async def test_a_broker_that_is_just_now_taken_for_dead_gives_no_seat_and_says_that_it_will(pair: Pair) -> None:
    town = await settle(pair.one, "bob")
    reaping = pair.watcher.transaction()
    await reaping.start()
    await pair.watcher.execute("DELETE FROM mesh.broker WHERE id = $1", pair.two.seats.broker_id)
    coming = begin(pair.two.seats.take(Identity(town.mesh, town.members["bob"], "an-instance")))
    await pair.until_waiting(1)
    await reaping.commit()
    with pytest.raises(StoreUnavailable):
        await coming
    await pair.two.seats.beat()
    assert (await pair.two.seats.take(Identity(town.mesh, town.members["bob"], "an-instance"))).displaced == []


async def test_whoever_is_at_a_broker_that_fell_silent_is_not_present(pair: Pair) -> None:
    town = await settle(pair.one, "alice", "bob")
    for stores, name in ((pair.one, "alice"), (pair.two, "bob")):
        await stores.seats.take(Identity(town.mesh, town.members[name], "an-instance"))
    await pair.watcher.execute("UPDATE mesh.broker SET expires_at = 1 WHERE id = $1", pair.two.seats.broker_id)
    assert await pair.one.seats.present(town.mesh.id) == {town["alice"].member_id}


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
