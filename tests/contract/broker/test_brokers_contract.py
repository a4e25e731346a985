"""Several brokers on one store: of all connections under a key one gets what waits, whichever broker it is at."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from claudemesh.broker.model import (
    Announced,
    Budgeted,
    Bulletin,
    ConnectionPolicy,
    Displaced,
    Expelled,
    Hinted,
    Meeting,
    Rewound,
    Unseated,
    Woken,
)
from claudemesh.broker.ports import AlreadyConnected, NotResumed, Stores
from claudemesh.broker.presence.model import Because, Departure, Seated, Settled, What
from claudemesh.kernel.rhythm import LEASE_TTL_MS
from tests.contract.broker.backends import (
    BACKENDS,
    BOUND_S,
    NOW,
    Backend,
    PostgresBackend,
    Town,
    arrive,
    batch,
    dm,
    job,
    know_session,
    settle,
)
from tests.contract.broker.backends import seat as take
from tests.doubles import ManualClock

WIDE = 1 << 30
LEASE_MS = 15_000


@dataclass
class Street:
    """Two brokers of one store."""

    backend: Backend
    clock: ManualClock
    one: Stores
    two: Stores

    async def ears(self) -> tuple["Ear", "Ear"]:
        """Let both listen."""
        here = Ear().listen(self.one)
        if isinstance(self.backend, PostgresBackend):
            return here, await here.joined_by(self.two)
        return here, Ear().listen(self.two)

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        if isinstance(self.backend, PostgresBackend):
            await self.backend.pass_time(ms)
            await self.backend.execute("UPDATE mesh.broker SET expires_at = expires_at - $1", ms)
            await self.backend.execute("UPDATE mesh.keeper SET expires_at = expires_at - $1", ms)


@pytest.fixture(params=[name for name in BACKENDS if not name.startswith("sqlite")])
async def street(
    request: pytest.FixtureRequest, contract_dsn: Callable[[str], str], tmp_path: Path
) -> AsyncIterator[Street]:
    backend, clock = BACKENDS[request.param](contract_dsn), ManualClock()
    if isinstance(backend, PostgresBackend):
        await backend.clear()
    one, two = [await backend.open(tmp_path, clock) for _ in range(2)]
    yield Street(backend, clock, one, two)
    await one.aclose()
    await two.aclose()


async def meet(street: Street, town: Town, instance: str, policy: ConnectionPolicy) -> Seated:
    """Connect bob to the second broker while he is connected to the first."""
    await street.one.directory.set_mesh(town["alice"], policy, None)
    mesh = await street.two.directory.mesh(town.mesh.uid)
    assert mesh is not None
    return await arrive(street.two, Town(mesh, town.members), "bob", instance=instance)


@pytest.mark.req("Q1")
@pytest.mark.parametrize(
    ("policy", "instance", "meeting"),
    [
        (ConnectionPolicy.PREFER_NEWEST, "one", Meeting.REPLACED),
        (ConnectionPolicy.PREFER_NEWEST, "two", Meeting.SUPERSEDED),
        (ConnectionPolicy.PREFER_OLDEST, "one", Meeting.REPLACED),
        (ConnectionPolicy.ALLOW_CONCURRENT, "two", None),
    ],
)
async def test_a_newer_connection_at_another_broker_gets_what_waits(
    street: Street, policy: ConnectionPolicy, instance: str, meeting: Meeting | None
) -> None:
    town = await settle(street.one, "alice", "bob")
    await street.one.accepts.accept(batch(town["alice"], dm("1", "bob")))
    first = await take(street.one, town, "bob")
    second = await meet(street, town, instance, policy)
    assert second.displaced == ([] if meeting is None else [Displaced(first.token, meeting)])
    assert (await street.one.deliveries.page(first, 0, 10, WIDE)).parcels == []
    assert (await street.two.deliveries.page(second.seat, 0, 10, WIDE)).upto == 1
    assert await street.one.seats.standing() == ({first.token} if meeting is None else set())
    assert await street.two.seats.standing() == {second.seat.token}
    await street.two.seats.leave([Departure(second.seat.token)])
    again = await street.one.deliveries.page(first, 0, 10, WIDE)
    assert again.upto == (1 if meeting is None else 0), "only one that was let stay comes back"


async def test_where_the_oldest_is_preferred_it_stays_also_at_another_broker(street: Street) -> None:
    town = await settle(street.one, "alice", "bob")
    first = await take(street.one, town, "bob")
    with pytest.raises(AlreadyConnected):
        await meet(street, town, "two", ConnectionPolicy.PREFER_OLDEST)
    assert await street.one.seats.standing() == {first.token}


@pytest.mark.req("Q1")
async def test_a_broker_that_does_not_beat_loses_its_seats_and_their_members_are_told(
    street: Street,
) -> None:
    town = await settle(street.one, "alice", "bob", "carol")
    await know_session(street.one, town, "bob", "key-of-a-session")
    await street.one.accepts.accept(batch(town["alice"], dm("1", "a-session")))
    own = await take(street.one, town, "bob")
    session = await take(street.two, town, "bob", "key-of-a-session")
    await take(street.two, town, "carol")
    assert (await street.one.deliveries.page(own, 0, 10, WIDE)).parcels == []
    told: set[int] = set()
    for _ in range(2):  # at the second beat, or where the machine is slow at the first
        await street.pass_time(LEASE_MS - 1000)
        beat = await street.one.seats.beat()
        told.update(beat.bereft)
    assert (beat.is_keeper, beat.is_forgotten) == (True, False)
    assert told == {town["bob"].member_id, town["carol"].member_id}
    assert (await street.one.deliveries.page(own, 0, 10, WIDE)).parcels == [], "the session may still return"
    assert (await street.two.deliveries.page(session, 0, 10, WIDE)).parcels == []
    late = await street.two.seats.beat()
    assert (late.is_keeper, late.is_forgotten, late.bereft) == (False, True, [])
    assert await street.two.seats.standing() == set()
    assert (await street.two.seats.beat()).is_forgotten is False
    assert (await take(street.two, town, "carol")).token > session.token


@pytest.mark.req("N4", "P9")
async def test_whoever_is_at_a_silent_broker_keeps_its_place_where_the_oldest_is_preferred(street: Street) -> None:
    town = await settle(street.one, "alice", "bob")
    old = await take(street.one, town, "bob")
    await street.pass_time(LEASE_MS + 1000)
    assert (await street.two.seats.beat()).bereft == []  # it was silent itself
    with pytest.raises(AlreadyConnected):
        await meet(street, town, "two", ConnectionPolicy.PREFER_OLDEST)
    seated = await meet(street, town, "two", ConnectionPolicy.PREFER_NEWEST)
    assert seated.displaced == [Displaced(old.token, Meeting.SUPERSEDED)]
    assert (await street.one.seats.beat()).is_forgotten is False  # the others of its seats stand
    assert await street.one.seats.standing() == set()


@pytest.mark.req("Q8")
async def test_a_revoked_member_has_no_seat_at_any_broker(street: Street) -> None:
    town = await settle(street.one, "alice", "bob")
    seat = await take(street.two, town, "bob")
    await street.one.accepts.accept(batch(town["alice"], dm("1", "bob")))
    await street.one.directory.revoke(town["alice"], "bob", NOW)
    assert await street.two.seats.standing() == set()
    assert (await street.two.deliveries.page(seat, 0, 10, WIDE)).parcels == []


async def test_a_broker_that_was_itself_silent_takes_nobody_for_dead(street: Street) -> None:
    town = await settle(street.one, "alice", "bob")
    taken = await take(street.two, town, "bob")
    await street.pass_time(LEASE_MS + 1000)  # nobody beat: the store may have been away
    assert (await street.one.seats.beat()).bereft == []
    assert await street.two.seats.standing() == {taken.token}
    assert (await street.two.seats.beat()).is_forgotten is False
    assert await street.two.seats.standing() == {taken.token}


async def test_one_broker_keeps_the_store_and_when_it_leaves_the_other_does(street: Street) -> None:
    assert [(await one.seats.beat()).is_keeper for one in (street.one, street.two)] == [True, False]
    assert [(await one.seats.beat()).is_keeper for one in (street.one, street.two)] == [True, False]
    await street.one.aclose()
    assert (await street.two.seats.beat()).is_keeper is True


@pytest.mark.req("P9")
@pytest.mark.parametrize("how", ["leaves", "dies"])
async def test_whoever_was_at_a_broker_that_is_gone_has_one_whole_lease_from_when_another_notices(
    street: Street, how: str
) -> None:
    town = await settle(street.one, "alice", "bob")
    first = await arrive(street.two, town, "bob")
    await street.pass_time(LEASE_TTL_MS)
    if how == "leaves":
        await street.two.aclose()
    else:
        await street.one.seats.beat()
        await street.pass_time(LEASE_MS - 1000)
        await street.one.seats.beat()
    for _ in range(2):  # noticed once, and no second lease for it
        assert (await street.one.presence.settle()).events == []
        [bob] = await street.one.presence.present(town.mesh.id)
        assert (bob.presence_uid, bob.is_online) == (first.presence_uid, False)
        await street.pass_time(LEASE_TTL_MS // 2 - 15_000)
    back = await arrive(street.one, town, "bob", resumes=first, must_resume=True)
    assert (back.is_resumed, back.displaced, back.events) == (True, [], [])
    await street.one.seats.leave([Departure(back.seat.token)])
    await street.pass_time(LEASE_TTL_MS + 15_000)
    [left] = (await street.one.presence.settle()).events
    assert (left.what, left.seq, left.because) == (What.LEFT, 2, Because.EXPIRED)


@pytest.mark.req("P9")
async def test_a_broker_that_was_forgotten_gives_back_a_seat_that_is_gone_and_its_lease_is_in_grace(
    street: Street,
) -> None:
    town = await settle(street.one, "alice", "bob")
    first = await arrive(street.two, town, "bob")
    for _ in range(2):
        await street.pass_time(LEASE_MS - 1000)
        await street.one.seats.beat()
    assert (await street.two.seats.beat()).is_forgotten is True
    assert await street.two.seats.leave([Departure(first.seat.token, LEASE_TTL_MS - 30_000)]) == []
    assert await street.one.presence.settle() == Settled(), "it is known how long ago it showed life"
    await street.pass_time(45_000)
    assert [event.what for event in (await street.one.presence.settle()).events] == [What.LEFT]


@pytest.mark.req("P5", "P9")
async def test_of_many_leases_that_run_out_each_departure_is_told_to_one_broker(street: Street) -> None:
    names = [f"m{number}" for number in range(20)]
    town = await settle(street.one, *names)
    for number in range(200):
        stores = (street.one, street.two)[number % 2]
        seated = await arrive(stores, town, names[number % 20], f"session-{number}")
        await stores.seats.leave([Departure(seated.seat.token)])
    await street.pass_time(LEASE_TTL_MS + 15_000)
    told, tries = [], 0
    while len(told) < 200 and tries < 100:  # what one has in its hands the other leaves to it
        tries += 1
        async with asyncio.timeout(BOUND_S):
            both = await asyncio.gather(street.one.presence.settle(), street.two.presence.settle())
        told += [event for settled in both for event in settled.events]
    assert {event.what for event in told} == {What.LEFT}
    assert len({event.presence_uid for event in told}) == 200
    assert sorted(event.seq for event in told) == [*range(201, 401)]
    assert await street.one.presence.settle() == await street.two.presence.settle() == Settled()
    assert [event.seq for event in await street.one.presence.events(town.mesh.id, 0, 1000)] == [*range(1, 401)]


@pytest.mark.req("P4", "P6")
async def test_of_two_resumes_with_one_claim_at_two_brokers_one_is_resumed(street: Street) -> None:
    town = await settle(street.one, "alice", "bob")
    seated = await arrive(street.one, town, "bob")
    for _ in range(8):  # that both come at the same moment is likely each time, and never sure
        async with asyncio.timeout(BOUND_S):
            outcomes = await asyncio.gather(
                *(
                    arrive(stores, town, "bob", resumes=seated, must_resume=True)
                    for stores in (street.one, street.two)
                ),
                return_exceptions=True,
            )
        [resumed] = [outcome for outcome in outcomes if isinstance(outcome, Seated)]
        [refused] = [outcome for outcome in outcomes if not isinstance(outcome, Seated)]
        assert isinstance(refused, NotResumed)
        assert (resumed.is_resumed, resumed.events) == (True, [])
        assert resumed.displaced == [Displaced(seated.seat.token, Meeting.REPLACED)]
        seated = resumed
    assert await street.one.presence.latest(town.mesh.id) == 1


@pytest.mark.req("P2", "P9")
async def test_a_key_that_comes_to_two_brokers_at_once_joins_once(street: Street) -> None:
    names = [f"m{number}" for number in range(10)]
    town = await settle(street.one, *names, policy=ConnectionPolicy.ALLOW_CONCURRENT)
    async with asyncio.timeout(BOUND_S):
        seated = await asyncio.gather(
            *(
                arrive(stores, town, name, instance=instance)
                for name in names
                for stores, instance in ((street.one, "one"), (street.two, "two"))
            )
        )
    joined = [event for one in seated for event in one.events]
    assert sorted(event.name for event in joined) == names
    assert sorted(event.seq for event in joined) == [*range(1, 11)]
    assert len(await street.two.presence.present(town.mesh.id)) == 20


async def test_brokers_that_begin_at_once_make_one_seed_for_resume_tokens(street: Street) -> None:
    both = (street.one, street.two)
    fresh = [bytes([number]) * 32 for number in range(6)]
    made = await asyncio.gather(*(one.upkeep.resume_seeds(seed) for one, seed in zip(both, fresh, strict=False)))
    assert made[0] == made[1]
    assert made[0] in ([fresh[0]], [fresh[1]])
    assert await street.two.upkeep.rotate_resume_seed(fresh[2]) == [fresh[2], *made[0]]
    await asyncio.gather(*(one.upkeep.rotate_resume_seed(seed) for one, seed in zip(both, fresh[3:], strict=False)))
    kept = await street.one.upkeep.resume_seeds(fresh[5])
    assert sorted(kept) == fresh[3:5], "neither was lost"
    await street.two.aclose()
    assert await street.one.upkeep.resume_seeds(fresh[5]) == kept


@pytest.mark.req("Q3")
async def test_workers_at_two_brokers_never_get_the_same_message(street: Street) -> None:
    town = await settle(street.one, "boss", "ann", "ben")
    await street.one.work.create_queue(town["boss"], "jobs", NOW)
    for turn in range(8):  # that both look at the same moment is likely each time, and never sure
        jobs = [f"{turn}.{n}" for n in range(20)]
        await street.one.accepts.accept(batch(town["boss"], *(job(name, "jobs", name) for name in jobs)))
        async with asyncio.timeout(BOUND_S):
            got = await asyncio.gather(
                *(
                    stores.work.work(town[who], "jobs", 300_000, NOW)
                    for _ in range(10)
                    for stores, who in ((street.one, "ann"), (street.two, "ben"))
                )
            )
        assert sorted(work.body for work in got if work is not None) == sorted(jobs)


# --- what brokers tell each other ------------------------------------------------------------------


@dataclass
class Ear:
    """What a broker heard."""

    bulletins: list[Bulletin] = field(default_factory=list)
    missed: int = 0
    something: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self, stores: Stores) -> "Ear":
        stores.bus.listen(self._hear, self._miss)
        return self

    def _hear(self, bulletin: Bulletin) -> None:
        self.bulletins.append(bulletin)
        self.something.set()

    def _miss(self) -> None:
        self.missed += 1
        self.something.set()

    async def joined_by(self, stores: Stores) -> "Ear":
        """Let another broker listen too; return once both do. The later one's hello is answered: look once."""
        other = Ear(something=self.something).listen(stores)
        await self.until(lambda _: bool(self.missed or other.missed))
        return other

    async def until(self, is_enough: Callable[["Ear"], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not is_enough(self):
                self.something.clear()
                await self.something.wait()


async def test_what_a_broker_publishes_the_other_hears_and_it_itself_does_not(street: Street) -> None:
    here = Ear().listen(street.one)
    there = (
        await here.joined_by(street.two)
        if isinstance(street.backend, PostgresBackend)
        else Ear().listen(street.two)
    )
    told: list[Bulletin] = [
        Unseated(7, Meeting.SUPERSEDED),
        Announced(1, "member_joined", {"name": "Zoë"}),
        Expelled(5),
        Budgeted(1, None),
    ]
    for bulletin in (*told, Woken([1, 2]), Woken([2, 3]), Rewound([4]), Hinted(9, ["a"]), Hinted(9, ["b"])):
        street.one.bus.publish(bulletin)

    def sums(ear: Ear) -> tuple[set[int], set[int], set[str]]:
        woken = {member for one in ear.bulletins if isinstance(one, Woken) for member in one.members}
        rewound = {member for one in ear.bulletins if isinstance(one, Rewound) for member in one.members}
        hinted = {id_ for one in ear.bulletins if isinstance(one, Hinted) for id_ in one.client_message_ids}
        return woken, rewound, hinted

    await there.until(lambda ear: sums(ear) == ({1, 2, 3}, {4}, {"a", "b"}))
    assert [one for one in there.bulletins if not isinstance(one, Woken | Rewound | Hinted)] == told
    assert here.bulletins == []
    assert street.one.bus.is_alone is False
