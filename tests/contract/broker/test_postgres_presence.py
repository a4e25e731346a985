"""What brokers do at once to the leases of one database; and what it costs to see that there is nothing to do."""

import asyncio
import random
import secrets
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from claudemesh.broker.model import ConnectionPolicy
from claudemesh.broker.policy import EPOCH_SKIP
from claudemesh.broker.ports import AlreadyConnected
from claudemesh.broker.presence.model import Because, Departure, Settled, What
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.kernel.rhythm import LEASE_TTL_MS
from tests.contract.broker.backends import BOUND_S, NOW, PostgresBackend, Town, arrive, settle
from tests.contract.broker.pairs import GATE_OF_SEATS, Pair, begin
from tests.contract.broker.stays import ALL_MS, MOST_MS, SESSION, leave, present


@pytest.mark.req("P9")
async def test_whoever_returns_after_a_standstill_before_anybody_has_looked_was_never_gone(
    pair: Pair, postgres_database: str
) -> None:
    backend = PostgresBackend(postgres_database)
    town = await settle(pair.one, "bob")
    first = await arrive(pair.one, town, "bob")
    await leave(pair.one, first)
    await pair.one.presence.settle()
    await backend.pass_time(MOST_MS)
    await backend.stand_still(pair.one, 10 * LEASE_TTL_MS)
    back = await arrive(pair.two, town, "bob", resumes=first)
    assert (back.is_resumed, back.events) == (True, [])


@pytest.mark.req("P9")
async def test_a_member_who_is_just_now_changed_is_left_to_the_next_look_and_holds_up_no_other(
    pair: Pair, postgres_database: str
) -> None:
    town = await settle(pair.one, "alice", "bob")
    for name in ("alice", "bob"):
        await leave(pair.one, await arrive(pair.one, town, name))
    await PostgresBackend(postgres_database).pass_time(ALL_MS)
    async with pair.watcher.transaction():
        await pair.watcher.execute("SELECT 1 FROM mesh.member WHERE name = 'alice' FOR NO KEY UPDATE")
        async with asyncio.timeout(BOUND_S):
            assert [event.name for event in (await pair.one.presence.settle()).events] == ["bob"]
    assert [event.name for event in (await pair.two.presence.settle()).events] == ["alice"]


@pytest.mark.req("P5")
async def test_a_hello_that_meets_the_end_of_its_lease_waits_for_it_and_joins_anew(
    pair: Pair, postgres_database: str
) -> None:
    town = await settle(pair.one, "bob")
    first = await arrive(pair.one, town, "bob")
    await leave(pair.one, first)
    await PostgresBackend(postgres_database).pass_time(ALL_MS)
    await pair.watcher.execute(
        "CREATE TRIGGER gate BEFORE INSERT ON mesh.presence_event FOR EACH ROW WHEN (NEW.what = 'left') "
        "EXECUTE FUNCTION mesh.wait_at_the_gate()"
    )
    async with pair.gate():
        settling = begin(pair.one.presence.settle())
        await pair.until_waiting(1)
        coming = begin(arrive(pair.two, town, "bob", resumes=first))
        await pair.until_waiting(2, coming)
    assert [(event.what, event.seq) for event in (await settling).events] == [(What.LEFT, 2)]
    assert [(event.what, event.seq) for event in (await coming).events] == [(What.JOINED, 3)]


@pytest.mark.req("Q1")
async def test_a_session_that_comes_back_while_its_last_lease_is_swept_keeps_its_key(pair: Pair) -> None:
    town = await settle(pair.one, "bob")
    await arrive(pair.one, town, "bob", SESSION)
    await pair.one.presence.end(town["bob"], SESSION, Because.GOODBYE)
    left = (await pair.one.presence.events(town.mesh.id, 0, 100))[-1]
    await pair.watcher.execute(GATE_OF_SEATS)
    async with pair.gate():
        coming = begin(arrive(pair.one, town, "bob", SESSION, "slow"))
        await pair.until_waiting(1)
        sweeping = begin(pair.two.presence.sweep(left.at + 1, 100))
        await pair.until_waiting(2, sweeping)
    await coming
    assert await sweeping == 3, "a lease, and that it began and ended"
    assert await pair.one.directory.known_keys(town.mesh.id, [SESSION]) == [SESSION]


async def test_to_see_that_there_is_nothing_to_settle_writes_nothing(pair: Pair) -> None:
    town = await settle(pair.one, "alice", "bob")
    await arrive(pair.one, town, "alice")
    await leave(pair.one, await arrive(pair.one, town, "bob"))
    await pair.one.presence.settle()
    written = []
    for _ in range(5):  # the server writes something of its own now and then, and that brokers look is one of these
        before = await pair.watcher.fetchval("SELECT pg_current_wal_insert_lsn()")
        assert await pair.one.presence.settle() == Settled()
        written.append(
            await pair.watcher.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)", before)
        )
    assert min(written) == 0


async def test_that_brokers_look_is_written_down_often_enough_to_be_no_standstill(pair: Pair) -> None:
    await pair.one.presence.settle()
    for ago_ms, is_written in ((500, False), (2_000, True), (4_900, True)):
        await pair.watcher.execute("UPDATE mesh.presence_clock SET looked_at = mesh.now_ms() - $1", ago_ms)
        await pair.two.presence.settle()
        found = await pair.watcher.fetchval("SELECT mesh.now_ms() - looked_at FROM mesh.presence_clock")
        assert (found < ago_ms) is is_written


STAND_STILL = "UPDATE mesh.presence_clock SET looked_at = looked_at - 6000"


@dataclass
class Storm:
    """Members of three meshes who come and go at two brokers."""

    pair: Pair
    backend: PostgresBackend
    towns: Sequence[Town]
    dice: random.Random
    seats: list[int] = field(default_factory=list)

    async def act(self) -> None:
        """Do something. All that is random is chosen before anything waits."""
        acts = [self.come] * 5 + [self.leave] * 2 + [self.settle, self.end, self.shake]
        town = self.dice.choice(self.towns)
        await self.dice.choice(acts)(self.dice.choice((self.pair.one, self.pair.two)), town)

    async def come(self, stores: PostgresStores, town: Town) -> None:
        name, instance = self.dice.choice("abc"), self.dice.choice("xyz")
        session = self.dice.choice((None, f"session-of-{name}"))
        with suppress(AlreadyConnected):
            self.seats.append((await arrive(stores, town, name, session, instance)).seat.token)

    async def leave(self, stores: PostgresStores, _town: Town) -> None:
        gone = self.dice.sample(self.seats, min(5, len(self.seats)))
        await stores.seats.leave([Departure(seat, self.dice.choice((0, ALL_MS))) for seat in gone])

    async def settle(self, stores: PostgresStores, _town: Town) -> None:
        await stores.presence.settle()

    async def end(self, stores: PostgresStores, town: Town) -> None:
        await stores.presence.end_all(town[self.dice.choice("abc")], Because.GOODBYE)

    async def shake(self, stores: PostgresStores, _town: Town) -> None:
        if self.dice.random() < 1 / 2:
            await stores.upkeep.begin_epoch(NOW)
        else:
            await self.backend.execute(STAND_STILL)


@pytest.mark.req("P2", "P5", "P9")
@pytest.mark.usefixtures("once")
async def test_a_storm_of_hellos_and_ends_at_two_brokers_meets_no_deadlock_and_tells_of_each_once(
    pair: Pair, postgres_database: str, effort: int
) -> None:
    seed = secrets.randbits(32)
    print(f"the seed of the storm is {seed}")  # noqa: T201  shown if it fails
    towns = [await settle(pair.one, "a", "b", "c", slug=policy, policy=policy) for policy in ConnectionPolicy]
    storm = Storm(pair, PostgresBackend(postgres_database), towns, random.Random(seed))  # noqa: S311
    for _ in range(10 * effort):
        async with asyncio.timeout(BOUND_S):
            await asyncio.gather(*(storm.act() for _ in range(30)))
    for town in towns:
        events = await pair.one.presence.events(town.mesh.id, 0, 100_000)
        assert {event.seq % EPOCH_SKIP for event in events} == {*range(1, len(events) + 1)}, "but for epochs"
        by_key = defaultdict(list)
        for event in events:
            by_key[event.member_id, event.session_pubkey].append(event.what)
        for of_key in by_key.values():
            assert of_key == ([What.JOINED, What.LEFT] * len(of_key))[: len(of_key)], "it comes and goes in turn"
        there = {(one.member_id, one.session_pubkey) for one in await present(pair.one, town)}
        assert there <= {key for key, of_key in by_key.items() if of_key[-1] is What.JOINED}
