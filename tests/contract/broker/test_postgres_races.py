"""What two brokers take at once on one database: ids, numbers, subscriptions, revocations."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from claudemesh.broker.model import (
    Accepted,
    AcceptOutcome,
    Duplicate,
    Sender,
)
from claudemesh.kernel.errors import IdempotencyConflict, Revoked
from tests.contract.broker.backends import (
    BOUND_S,
    NOW,
    Town,
    batch,
    dm,
    post,
    settle,
    subscribe,
)
from tests.contract.broker.pairs import (
    GATE_BETWEEN_IDS,
    Pair,
    begin,
    ids,
    waiting_for,
)


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


@pytest.mark.req("B0")
async def test_a_retry_of_what_was_accepted_writes_nothing_so_nothing_is_flushed(pair: Pair) -> None:
    town = await settle(pair.one, "alice", "bob")
    await pair.one.accepts.accept(batch(town["alice"], *(dm(f"m{number}", "bob") for number in range(50))))
    written = []
    for _ in range(5):  # the server writes something of its own now and then
        before = await pair.watcher.fetchval("SELECT pg_current_wal_insert_lsn()")
        assert len(await pair.one.accepts.standing(town["alice"].member_id, [f"m{n}" for n in range(50)])) == 50
        written.append(
            await pair.watcher.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)", before)
        )
    assert min(written) == 0
