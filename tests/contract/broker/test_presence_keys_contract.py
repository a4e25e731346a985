"""Several leases of one key or member, how they end, what waits for them, and what is told and kept of them."""

import pytest

from claudemesh.broker import policy
from claudemesh.broker.model import Backlog, ConnectionPolicy, Displaced, Meeting
from claudemesh.broker.ports import AlreadyConnected, NotResumed
from claudemesh.broker.presence.model import Because, Met, Settled, What
from claudemesh.kernel.errors import DestinationNotFound, Revoked, TooManySessions
from claudemesh.kernel.fingerprint import Kind
from tests.contract.broker.backends import NOW, House, arrive, batch, dm, know_session, message, settle
from tests.contract.broker.stays import (
    ALL_MS,
    MOST_MS,
    SESSION,
    kinds,
    leave,
    noted,
    present,
    told,
    waiting,
)

# --- two instances of one key ----------------------------------------------------------------------


@pytest.mark.req("N4", "P2")
@pytest.mark.parametrize("transport", ["online", "in grace"])
async def test_where_the_newest_is_preferred_another_instance_takes_over_and_nobody_is_told(
    house: House, transport: str
) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    old = await arrive(stores, town, "bob", SESSION)
    if transport == "in grace":
        await leave(stores, old)
    new = await arrive(stores, town, "bob", SESSION, "two")
    gone = [Displaced(old.seat.token, Meeting.SUPERSEDED)]
    assert (new.displaced, new.events) == (gone if transport == "online" else [], [])
    assert new.bereft == [town["bob"].member_id]
    assert new.presence_uid != old.presence_uid
    assert [one.instance_id for one in await present(stores, town)] == ["two"]
    assert await stores.seats.standing() == {new.seat.token}
    assert await noted(house, new) in ([], [("begun", None)])
    assert (await noted(house, old))[-1:] in ([], [("ended", "superseded")])
    with pytest.raises(NotResumed):
        await arrive(stores, town, "bob", SESSION, resumes=old, must_resume=True)


@pytest.mark.req("N4")
@pytest.mark.parametrize("transport", ["online", "in grace"])
async def test_where_the_oldest_is_preferred_it_keeps_its_place_until_its_lease_has_run_out(
    house: House, transport: str
) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", policy=ConnectionPolicy.PREFER_OLDEST)
    old = await arrive(stores, town, "bob")
    if transport == "in grace":
        await leave(stores, old)
        await house.pass_time(MOST_MS)
    with pytest.raises(AlreadyConnected):
        await arrive(stores, town, "bob", instance="two")
    assert await stores.seats.standing() == ({old.seat.token} if transport == "online" else set())
    await leave(stores, old)
    await house.pass_time(ALL_MS)
    new = await arrive(stores, town, "bob", instance="two")
    assert kinds(new.events) == [What.LEFT, What.JOINED]


@pytest.mark.req("N4", "P2", "P5")
async def test_where_several_instances_are_allowed_a_key_joins_with_the_first_and_leaves_with_the_last(
    house: House,
) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", policy=ConnectionPolicy.ALLOW_CONCURRENT)
    one, two, three = [await arrive(stores, town, "bob", instance=name) for name in ("one", "two", "three")]
    assert [kinds(seated.events) for seated in (one, two, three)] == [[What.JOINED], [], []]
    assert [seated.displaced for seated in (one, two, three)] == [[], [], []]
    assert len(await present(stores, town)) == 3
    await leave(stores, one)
    await house.pass_time(ALL_MS)
    assert (await stores.presence.settle()).events == [], "two of it are there"
    assert (await noted(house, one))[-1:] in ([], [("ended", "expired")])
    for seated in (two, three):
        await leave(stores, seated)
    await house.pass_time(ALL_MS)
    assert kinds((await stores.presence.settle()).events) == [What.LEFT], "of two that run out together one departs"
    assert kinds((await arrive(stores, town, "bob")).events) == [What.JOINED]
    assert [one[:2] for one in await told(stores, town)] == [(1, What.JOINED), (2, What.LEFT), (3, What.JOINED)]


@pytest.mark.req("N4", "P4")
async def test_where_several_are_allowed_each_has_a_lease_of_its_own_to_return_to(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", policy=ConnectionPolicy.ALLOW_CONCURRENT)
    one, two = await arrive(stores, town, "bob"), await arrive(stores, town, "bob", instance="two")
    await leave(stores, one)
    await leave(stores, two)
    back = await arrive(stores, town, "bob", instance="two", resumes=two)
    assert (back.is_resumed, back.presence_uid) == (True, two.presence_uid)
    taken = await arrive(stores, town, "bob", instance="two", resumes=one)
    assert (taken.is_resumed, taken.presence_uid) == (True, one.presence_uid)
    assert taken.displaced == [Displaced(back.seat.token, Meeting.REPLACED)]
    assert [lease.presence_uid for lease in await present(stores, town)] == [one.presence_uid]


# --- ended by a word -------------------------------------------------------------------------------


@pytest.mark.req("P5")
@pytest.mark.parametrize("transport", ["online", "in grace"])
async def test_whoever_says_that_it_goes_is_gone_at_once(house: House, transport: str) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    own, session = await arrive(stores, town, "bob"), await arrive(stores, town, "bob", SESSION)
    if transport == "in grace":
        await leave(stores, session)
    settled = await stores.presence.end(town["bob"], SESSION, Because.GOODBYE)
    [left] = settled.events
    assert (left.what, left.session_pubkey, left.because) == (What.LEFT, SESSION, Because.GOODBYE)
    assert settled.members == [town["bob"].member_id]
    assert await stores.presence.end(town["bob"], SESSION, Because.GOODBYE) == Settled()
    assert await stores.seats.standing() == {own.seat.token}
    assert [one.session_pubkey for one in await present(stores, town)] == [None]
    await leave(stores, session)
    assert [one.session_pubkey for one in await present(stores, town)] == [None]
    assert kinds((await stores.presence.end(town["bob"], None, Because.GOODBYE)).events) == [What.LEFT]
    assert await present(stores, town) == []


@pytest.mark.req("N4", "P5")
async def test_all_leases_of_a_member_end_together_and_each_key_departs_once(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", policy=ConnectionPolicy.ALLOW_CONCURRENT)
    alice = await arrive(stores, town, "alice")
    await arrive(stores, town, "bob")
    await arrive(stores, town, "bob", instance="two")
    await leave(stores, await arrive(stores, town, "bob", SESSION))
    await stores.directory.revoke(town["alice"], "bob", NOW)
    settled = await stores.presence.end_all(town["bob"], Because.REVOKED)
    assert {(one.what, one.session_pubkey, one.because) for one in settled.events} == {
        (What.LEFT, None, Because.REVOKED),
        (What.LEFT, SESSION, Because.REVOKED),
    }
    assert [one.seq for one in settled.events] == [4, 5]
    assert settled.members == [town["bob"].member_id]
    assert await stores.seats.standing() == {alice.seat.token}
    assert await stores.presence.end_all(town["bob"], Because.REVOKED) == Settled()
    with pytest.raises(Revoked):
        await arrive(stores, town, "bob")


# --- what waits ------------------------------------------------------------------------------------


@pytest.mark.req("P8", "Q1")
async def test_what_names_a_session_waits_for_its_return_and_is_its_members_once_it_has_left(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await know_session(stores, town, "bob", SESSION)
    await stores.accepts.accept(batch(town["alice"], message("1", Kind.DM, SESSION), dm("2", "bob")))
    own, session = await arrive(stores, town, "bob"), await arrive(stores, town, "bob", SESSION)
    assert (await waiting(stores, own), await waiting(stores, session)) == ([2], [1])
    await leave(stores, session)
    assert (await waiting(stores, own), await waiting(stores, session)) == ([2], [])
    back = await arrive(stores, town, "bob", SESSION, resumes=session)
    assert await waiting(stores, back) == [1]
    await leave(stores, back)
    await house.pass_time(ALL_MS)
    assert await waiting(stores, own) == [2], "nobody has noticed yet"
    assert (await stores.presence.settle()).members == [town["bob"].member_id]
    assert await waiting(stores, own) == [1, 2]


@pytest.mark.req("P8")
@pytest.mark.parametrize("transport", ["online", "in grace"])
async def test_a_session_that_only_shows_that_it_is_there_keeps_nothing_from_its_member(
    house: House, transport: str
) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await know_session(stores, town, "bob", SESSION)
    await stores.accepts.accept(batch(town["alice"], message("1", Kind.DM, SESSION), dm("2", "bob")))
    own = await arrive(stores, town, "bob")
    session = await arrive(stores, town, "bob", SESSION, is_presence_only=True, info={"pid": 7})
    if transport == "in grace":
        await leave(stores, session)
    assert (await waiting(stores, own), await waiting(stores, session)) == ([1, 2], [])
    shown = {one.session_pubkey: (one.is_presence_only, one.info) for one in await present(stores, town)}
    assert shown == {None: (False, {}), SESSION: (True, {"pid": 7})}


@pytest.mark.req("P13")
async def test_what_waits_and_is_unread_is_counted_for_each_member(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    await settle(stores, "dave", slug="other")
    sent = await stores.accepts.accept(batch(town["alice"], *(dm(f"{number}", "bob") for number in range(5))))
    ids = [getattr(one, "broker_message_id", "") for one in sent]
    await stores.deliveries.ack(town["bob"], [1, 2, 3], NOW)
    alice, bob, carol = (town[name].member_id for name in ("alice", "bob", "carol"))
    assert await stores.deliveries.backlogs(town.mesh.id) == {
        alice: Backlog(),
        bob: Backlog(waiting=2, unread=3),
        carol: Backlog(),
    }
    await stores.deliveries.mark_read(town["bob"], [ids[0], "unknown"], NOW + 9)
    await stores.deliveries.mark_read(town["bob"], [ids[0]], NOW + 7)
    await stores.deliveries.mark_read(town["carol"], [ids[0]], NOW + 9)
    await stores.accepts.accept(batch(town["bob"], dm("an-answer", "alice", reply_to=ids[1])))
    assert await stores.deliveries.backlogs(town.mesh.id) == {
        alice: Backlog(waiting=1),
        bob: Backlog(waiting=2, unread=1, last_read_at=NOW + 9),
        carol: Backlog(),
    }
    await stores.directory.revoke(town["alice"], "bob", NOW)
    assert bob not in await stores.deliveries.backlogs(town.mesh.id)


# --- what is told, and kept ------------------------------------------------------------------------


@pytest.mark.req("P2", "P5")
async def test_numbers_of_a_mesh_have_no_gap_and_whoever_knows_one_is_told_what_it_missed(house: House) -> None:
    stores = house.stores
    town, other = await settle(stores, "alice", "bob"), await settle(stores, "carol", slug="other")
    assert await stores.presence.latest(town.mesh.id) == 0
    for _ in range(3):
        await arrive(stores, town, "bob", SESSION)
        await arrive(stores, other, "carol")
        with pytest.raises(NotResumed):
            await arrive(stores, town, "alice", must_resume=True)
        await arrive(stores, town, "bob", SESSION)
        await stores.presence.end(town["bob"], SESSION, Because.GOODBYE)
    events = await stores.presence.events(town.mesh.id, 0, 100)
    assert [(one.seq, one.what) for one in events] == [
        (number, (What.LEFT, What.JOINED)[number % 2]) for number in range(1, 7)
    ]
    assert await stores.presence.events(town.mesh.id, 2, 3) == events[2:5]
    assert await stores.presence.events(town.mesh.id, 6, 3) == []
    assert (await stores.presence.latest(town.mesh.id), await stores.presence.latest(other.mesh.id)) == (6, 1)
    await house.reopen()
    assert await house.stores.presence.events(town.mesh.id, 0, 100) == events
    assert await house.stores.presence.latest(town.mesh.id) == 6


@pytest.mark.req("P11")
async def test_leases_are_listed_in_the_order_in_which_they_began(house: House) -> None:
    stores = house.stores
    town, other = await settle(stores, "alice", "bob", "carol"), await settle(stores, "dave", slug="other")
    await arrive(stores, other, "dave")
    carol = await arrive(stores, town, "carol")
    await arrive(stores, town, "bob", SESSION)
    await arrive(stores, town, "alice")
    await leave(stores, carol)
    await arrive(stores, town, "carol")
    members = {member.id: name for name, member in town.members.items()}
    assert [members[one.member_id] for one in await present(stores, town)] == ["carol", "bob", "alice"]
    assert all(one.is_online and one.since > 0 for one in await present(stores, town))


async def test_what_was_long_ago_is_forgotten_and_who_is_there_is_not(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    alice = await arrive(stores, town, "alice")
    for _ in range(3):
        await arrive(stores, town, "bob", SESSION)
        await stores.presence.end(town["bob"], SESSION, Because.GOODBYE)
    last = (await stores.presence.events(town.mesh.id, 0, 100))[-1]
    assert await stores.presence.sweep(NOW - 1, 100) == 0
    assert len(await stores.presence.events(town.mesh.id, 0, 100)) == 7
    swept = []
    while not swept or swept[-1]:
        swept.append(await stores.presence.sweep(last.at + 1, 2))
    assert max(swept) <= 4, "at most so many at a time, of what was noted and of leases"
    assert sum(swept) == 10
    assert await stores.presence.events(town.mesh.id, 0, 100) == []
    assert await stores.presence.latest(town.mesh.id) == 7
    assert [one.presence_uid for one in await present(stores, town)] == [alice.presence_uid]
    assert (await arrive(stores, town, "bob")).events[0].seq == 8


@pytest.mark.req("Q1")
async def test_the_key_of_an_ended_session_leads_to_its_member_until_the_last_of_its_leases_is_forgotten(
    house: House,
) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    own = await arrive(stores, town, "bob")
    for _ in range(2):
        await arrive(stores, town, "bob", SESSION)
        await stores.presence.end(town["bob"], SESSION, Because.GOODBYE)
    await arrive(stores, town, "bob", "key-that-is-back")
    await stores.presence.end(town["bob"], "key-that-is-back", Because.GOODBYE)
    await arrive(stores, town, "bob", "key-that-is-back")
    await stores.accepts.accept(batch(town["alice"], message("1", Kind.DM, SESSION)))
    last = (await stores.presence.events(town.mesh.id, 0, 100))[-1]
    everybody = [SESSION, "key-that-is-back", town.members["bob"].pubkey]
    while {*await stores.directory.known_keys(town.mesh.id, everybody)} == {*everybody}:
        assert await stores.presence.sweep(last.at + 1, 1) > 0
    while await stores.presence.sweep(last.at + 1, 1):
        pass
    assert {*await stores.directory.known_keys(town.mesh.id, everybody)} == {*everybody[1:]}
    assert await waiting(stores, own) == [1], "what was accepted before is its member's"
    [refused] = await stores.accepts.accept(batch(town["alice"], message("2", Kind.DM, SESSION)))
    assert isinstance(refused, DestinationNotFound)
    await arrive(stores, town, "bob", SESSION)
    assert await stores.directory.known_keys(town.mesh.id, [SESSION]) == [SESSION]


async def test_a_member_has_only_so_many_sessions_and_those_that_stand_can_be_taken_up(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "SESSIONS_MAX", 1)
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    session = await arrive(stores, town, "bob", SESSION)
    with pytest.raises(TooManySessions):
        await arrive(stores, town, "bob", "key-of-another")
    assert await stores.directory.known_keys(town.mesh.id, ["key-of-another"]) == [], "nothing is kept of it"
    assert (await arrive(stores, town, "bob", SESSION, resumes=session)).is_resumed
    await arrive(stores, town, "bob")
    await arrive(stores, town, "alice", "key-of-a-third")
    await stores.presence.end(town["bob"], SESSION, Because.GOODBYE)
    await arrive(stores, town, "bob", "key-of-another")


@pytest.mark.req("N4", "P6")
async def test_who_has_not_proven_itself_does_not_learn_that_another_instance_is_there(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", policy=ConnectionPolicy.PREFER_OLDEST)
    first = await arrive(stores, town, "bob", SESSION)
    again = await arrive(stores, town, "bob", SESSION, resumes=first)
    assert again.is_resumed
    with pytest.raises(NotResumed):
        await arrive(stores, town, "bob", SESSION, "two", resumes=first, must_resume=True)


@pytest.mark.req("P10")
async def test_a_session_that_only_shows_itself_from_now_on_leaves_what_names_it_to_its_member(
    house: House,
) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await know_session(stores, town, "bob", SESSION)
    await stores.accepts.accept(batch(town["alice"], message("1", Kind.DM, SESSION)))
    own = await arrive(stores, town, "bob")
    await arrive(stores, town, "bob", SESSION)
    assert await waiting(stores, own) == []
    shown = await arrive(stores, town, "bob", SESSION, is_presence_only=True)
    assert shown.bereft == [town["bob"].member_id], "its member has to look again"
    assert await waiting(stores, own) == [1]
    assert (await arrive(stores, town, "bob", SESSION, is_presence_only=True)).bereft == []


@pytest.mark.req("N4", "P5")
async def test_one_instance_that_goes_leaves_the_others_of_its_key(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", policy=ConnectionPolicy.ALLOW_CONCURRENT)
    one, two = await arrive(stores, town, "bob"), await arrive(stores, town, "bob", None, "two")
    assert two.met == [Met("one", Meeting.SHARED)]
    settled = await stores.presence.end(town["bob"], None, Because.GOODBYE, "two")
    assert settled == Settled(seats=[two.seat.token])
    assert [stay.instance_id for stay in await present(stores, town)] == ["one"]
    settled = await stores.presence.end(town["bob"], None, Because.GOODBYE, "one")
    assert (kinds(settled.events), settled.seats) == ([What.LEFT], [one.seat.token])
