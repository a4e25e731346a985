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
    Identity,
    Meeting,
    Rewound,
    Seated,
    Unseated,
    Woken,
)
from claudemesh.broker.ports import AlreadyConnected, Stores
from tests.contract.broker.backends import (
    BACKENDS,
    BOUND_S,
    NOW,
    Backend,
    PostgresBackend,
    Town,
    batch,
    dm,
    job,
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
    return await street.two.seats.take(Identity(mesh, town.members["bob"], instance))


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
    await street.two.seats.leave([second.seat.token])
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
    await street.one.directory.remember_session(town["bob"], "key-of-a-session", NOW)
    await street.one.accepts.accept(batch(town["alice"], dm("1", "a-session")))
    own = await take(street.one, town, "bob")
    session = await take(street.two, town, "bob", "key-of-a-session")
    await take(street.two, town, "carol")
    assert (await street.one.deliveries.page(own, 0, 10, WIDE)).parcels == []
    for _ in range(2):
        await street.pass_time(LEASE_MS - 1000)
        beat = await street.one.seats.beat()
    assert (beat.is_keeper, beat.is_forgotten) == (True, False)
    assert {*beat.bereft} == {town["bob"].member_id, town["carol"].member_id}
    assert len((await street.one.deliveries.page(own, 0, 10, WIDE)).parcels) == 1
    assert (await street.two.deliveries.page(session, 0, 10, WIDE)).parcels == []
    assert await street.one.seats.present(town.mesh.id) == {town["bob"].member_id}
    late = await street.two.seats.beat()
    assert (late.is_keeper, late.is_forgotten, late.bereft) == (False, True, [])
    assert await street.two.seats.standing() == set()
    assert (await street.two.seats.beat()).is_forgotten is False
    assert (await take(street.two, town, "carol")).token > session.token


@pytest.mark.req("N4")
@pytest.mark.parametrize("policy", [ConnectionPolicy.PREFER_NEWEST, ConnectionPolicy.PREFER_OLDEST])
async def test_a_silent_brokers_seat_keeps_nobody_out_and_is_gone_when_another_came(
    street: Street, policy: ConnectionPolicy
) -> None:
    town = await settle(street.one, "alice", "bob")
    old = await take(street.one, town, "bob")
    await street.pass_time(LEASE_MS + 1000)
    assert (await street.two.seats.beat()).bereft == []  # it was silent itself
    seated = await meet(street, town, "two", policy)
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


async def test_a_broker_that_leaves_takes_its_seats_along(street: Street) -> None:
    town = await settle(street.one, "alice", "bob")
    await take(street.one, town, "alice")
    await take(street.two, town, "bob")
    await street.one.aclose()
    assert await street.two.seats.present(town.mesh.id) == {town["bob"].member_id}


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
