"""Who is there: leases that outlive their sockets. Others see a key come once and go once, whatever is between."""

import pytest

from claudemesh.broker.model import ConnectionPolicy, Displaced, Meeting
from claudemesh.broker.policy import EPOCH_SKIP
from claudemesh.broker.ports import NotResumed
from claudemesh.broker.presence.model import Because, Departure, PresenceEvent, Settled, What
from claudemesh.kernel.rhythm import LEASE_TTL_MS
from tests.contract.broker.backends import NOW, House, arrive, settle
from tests.contract.broker.stays import (
    ALL_MS,
    MARGIN_MS,
    MOST_MS,
    SESSION,
    kinds,
    leave,
    noted,
    present,
    told,
)

# --- to come and to go -----------------------------------------------------------------------------


@pytest.mark.req("P2", "P5")
async def test_whoever_comes_is_announced_once_and_once_when_its_lease_has_run_out(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    first = await arrive(stores, town, "bob", info={"cwd": "/srv/bob", "display_name": "böb's"})
    [joined] = first.events
    assert (joined.what, joined.seq, joined.mesh_id, joined.because) == (What.JOINED, 1, town.mesh.id, None)
    bob = town.members["bob"]
    assert (joined.member_id, joined.member_uid, joined.name, joined.pubkey) == (bob.id, bob.uid, "bob", bob.pubkey)
    assert (joined.session_pubkey, joined.presence_uid) == (None, first.presence_uid)
    assert joined.display_name == "böb's"
    await leave(stores, first)
    assert await stores.presence.settle() == Settled()
    await house.pass_time(ALL_MS)
    settled = await stores.presence.settle()
    [left] = settled.events
    assert (left.what, left.seq, left.because) == (What.LEFT, 2, Because.EXPIRED)
    assert left.presence_uid == first.presence_uid
    assert settled.members == [], "its own connection is no session"
    assert await stores.presence.settle() == Settled()
    again = await arrive(stores, town, "bob", resumes=first)
    assert (kinds(again.events), again.events[0].seq, again.is_resumed) == ([What.JOINED], 3, False)
    assert again.presence_uid != first.presence_uid
    assert await told(stores, town) == [(1, What.JOINED, "bob"), (2, What.LEFT, "bob"), (3, What.JOINED, "bob")]


@pytest.mark.req("P5")
async def test_a_lease_that_ran_out_unnoticed_ends_before_the_next_hello_of_its_key(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    first = await arrive(stores, town, "bob", SESSION)
    await leave(stores, first)
    await house.pass_time(ALL_MS)
    assert await present(stores, town) == []
    second = await arrive(stores, town, "bob", SESSION, resumes=first)
    assert [(one.what, one.seq, one.presence_uid) for one in second.events] == [
        (What.LEFT, 2, first.presence_uid),
        (What.JOINED, 3, second.presence_uid),
    ]
    assert (second.is_resumed, second.bereft) == (False, [town["bob"].member_id])
    assert await stores.presence.settle() == Settled()


@pytest.mark.req("P2")
async def test_a_proven_hello_on_a_live_lease_swaps_the_socket_and_nobody_is_told(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    first = await arrive(stores, town, "bob", info={"n": 1})
    second = await arrive(stores, town, "bob", info={"n": 2})
    assert second.displaced == [Displaced(first.seat.token, Meeting.REPLACED)]
    assert (second.events, second.bereft, second.is_resumed) == ([], [], False)
    assert second.presence_uid == first.presence_uid
    assert second.lease_token > first.lease_token
    assert await stores.seats.standing() == {second.seat.token}
    await leave(stores, first)  # late, and of no lease any more
    [bob] = await present(stores, town)
    assert (bob.is_online, bob.info) == (True, {"n": 2})
    assert await stores.presence.latest(town.mesh.id) == 1
    assert await noted(house, first) in ([], [("joined", None), ("swapped", None)])


# --- resume ----------------------------------------------------------------------------------------


@pytest.mark.req("P4")
async def test_a_resume_with_the_claim_in_force_goes_on_also_as_another_instance(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", policy=ConnectionPolicy.PREFER_OLDEST)
    first = await arrive(stores, town, "bob")
    second = await arrive(stores, town, "bob", instance="two", resumes=first, must_resume=True)
    assert (second.is_resumed, second.events) == (True, [])
    assert second.displaced == [Displaced(first.seat.token, Meeting.REPLACED)]
    [bob] = await present(stores, town)
    assert (bob.presence_uid, bob.instance_id) == (first.presence_uid, "two")


@pytest.mark.req("P4", "P6")
async def test_a_claim_is_good_once(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    first = await arrive(stores, town, "bob")
    second = await arrive(stores, town, "bob", resumes=first, must_resume=True)
    with pytest.raises(NotResumed):
        await arrive(stores, town, "bob", resumes=first, must_resume=True)
    assert await stores.seats.standing() == {second.seat.token}
    third = await arrive(stores, town, "bob", resumes=first)
    assert (third.is_resumed, third.presence_uid) == (False, first.presence_uid), "its proof is its own"
    assert (await arrive(stores, town, "bob", resumes=third, must_resume=True)).is_resumed is True


@pytest.mark.req("P6")
async def test_whoever_has_to_resume_and_cannot_changes_nothing(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    bob, carol = await arrive(stores, town, "bob"), await arrive(stores, town, "carol")
    before = (await present(stores, town), await told(stores, town))
    for claimed in (None, carol):
        with pytest.raises(NotResumed):
            await arrive(stores, town, "bob", resumes=claimed, must_resume=True)
        with pytest.raises(NotResumed):
            await arrive(stores, town, "bob", SESSION, resumes=bob, must_resume=True)
    assert (await present(stores, town), await told(stores, town)) == before
    assert await stores.seats.standing() == {bob.seat.token, carol.seat.token}
    await leave(stores, bob)
    await house.pass_time(ALL_MS)
    with pytest.raises(NotResumed):
        await arrive(stores, town, "bob", resumes=bob, must_resume=True)
    assert [one[1] for one in await told(stores, town)] == [What.JOINED, What.JOINED]
    assert kinds((await stores.presence.settle()).events) == [What.LEFT]


@pytest.mark.req("P6")
async def test_no_claim_of_before_a_restored_backup_is_good(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    first = await arrive(stores, town, "bob")
    await leave(stores, first)
    await stores.upkeep.begin_epoch(NOW)
    back = await arrive(stores, town, "bob", resumes=first)
    assert (back.is_resumed, back.events, back.presence_uid) == (False, [], first.presence_uid)
    assert (await arrive(stores, town, "bob", resumes=back)).is_resumed is True


@pytest.mark.req("P6")
async def test_resume_seeds_are_made_once_and_rotate_with_the_one_before_still_good(house: House) -> None:
    one, two, three = (bytes([number]) * 32 for number in range(3))
    assert await house.stores.upkeep.resume_seeds(one) == [one]
    assert await house.stores.upkeep.resume_seeds(two) == [one]
    assert await house.stores.upkeep.rotate_resume_seed(two) == [two, one]
    await house.reopen()
    assert await house.stores.upkeep.resume_seeds(three) == [two, one]
    assert await house.stores.upkeep.rotate_resume_seed(three) == [three, two]


# --- grace -----------------------------------------------------------------------------------------


@pytest.mark.req("P3", "P4")
async def test_whoever_is_back_in_time_was_never_gone(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    seated = first = await arrive(stores, town, "bob")
    for how in ("resumed", "proven"):
        await leave(stores, seated)
        await house.pass_time(MOST_MS)
        assert await stores.presence.settle() == Settled()
        [bob] = await present(stores, town)
        assert (bob.is_online, bob.presence_uid) == (False, first.presence_uid)
        assert 0 < bob.lease_left_ms <= MARGIN_MS
        seated = await arrive(stores, town, "bob", resumes=seated if how == "resumed" else None)
        assert (seated.is_resumed, seated.events, seated.displaced) == (how == "resumed", [], [])
    await house.pass_time(ALL_MS)
    assert await stores.presence.settle() == Settled(), "while a socket carries it, it stands"
    [bob] = await present(stores, town)
    assert (bob.is_online, bob.lease_left_ms) == (True, LEASE_TTL_MS)
    happened = ["joined", "offline", "online", "offline", "online"]
    assert [what for what, _ in await noted(house, first)] in ([], happened)


@pytest.mark.req("P1")
async def test_a_lease_counts_from_the_last_sign_of_life_and_not_from_the_end_of_its_socket(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol", "dave")
    for name, silent_ms in (("alice", 0), ("bob", 2 * MARGIN_MS), ("carol", ALL_MS)):
        await leave(stores, await arrive(stores, town, name), silent_ms, Because.STALE)
    assert [event.name for event in (await stores.presence.settle()).events] == ["carol"]
    await house.pass_time(MOST_MS)
    assert [event.name for event in (await stores.presence.settle()).events] == ["bob"]
    await house.pass_time(2 * MARGIN_MS)
    assert [event.name for event in (await stores.presence.settle()).events] == ["alice"]


@pytest.mark.req("P5")
async def test_however_many_leases_run_out_together_one_look_after_the_other_ends_them_all(house: House) -> None:
    stores = house.stores
    names = [f"m{number}" for number in range(150)]
    town = await settle(stores, *names)
    seats = [(await arrive(stores, town, name, key)).seat.token for name in names for key in (None, f"of-{name}")]
    await stores.seats.leave([Departure(token) for token in seats])
    await house.pass_time(ALL_MS)
    left: list[PresenceEvent] = []
    is_done = False
    while not is_done:
        settled = await stores.presence.settle()
        left, is_done = left + settled.events, settled.is_done
    assert {event.what for event in left} == {What.LEFT}
    assert len({(event.name, event.session_pubkey) for event in left}) == len(left) == len(seats)


@pytest.mark.req("P2", "P5")
async def test_an_epoch_passes_numbers_of_comings_over_so_that_who_knew_lost_ones_sees_a_gap(
    house: House,
) -> None:
    stores = house.stores
    town, other = await settle(stores, "alice", "bob"), await settle(stores, "carol", slug="other")
    await arrive(stores, town, "alice")
    await stores.upkeep.begin_epoch(NOW)
    assert await stores.presence.latest(town.mesh.id) == EPOCH_SKIP + 1
    [joined] = (await arrive(stores, town, "bob")).events
    [first] = (await arrive(stores, other, "carol")).events
    assert (joined.seq, first.seq) == (EPOCH_SKIP + 2, EPOCH_SKIP + 1), "also where nobody is known to have come"
    assert [event.seq for event in await stores.presence.events(town.mesh.id, 0, 9)] == [1, EPOCH_SKIP + 2]


@pytest.mark.req("P9")
async def test_while_no_broker_runs_no_time_passes_for_who_is_in_grace(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await leave(stores, await arrive(stores, town, "bob"))
    await house.pass_time(MOST_MS)
    assert await stores.presence.settle() == Settled()
    for _ in range(2):
        stores.presence.stand_still(await house.stand_still(10 * LEASE_TTL_MS))
        assert await stores.presence.settle() == Settled()
    [bob] = await present(stores, town)
    assert 0 < bob.lease_left_ms <= MARGIN_MS + 5_000, "what nobody looked at, and a moment of looking"
    await house.pass_time(3 * MARGIN_MS)
    assert kinds((await stores.presence.settle()).events) == [What.LEFT]


@pytest.mark.req("P9")
async def test_a_restart_gives_who_was_online_a_whole_lease_once_and_who_was_in_grace_what_was_left(
    house: House,
) -> None:
    town = await settle(house.stores, "alice", "bob")
    alice, bob = await arrive(house.stores, town, "alice"), await arrive(house.stores, town, "bob", SESSION)
    await leave(house.stores, bob)
    await house.pass_time(MOST_MS)
    await house.stores.seats.beat()
    assert await house.stores.presence.settle() == Settled()
    await house.reopen()
    stores = house.stores
    await stores.seats.start()
    assert (await stores.presence.settle()).events == []
    assert [(one.presence_uid, one.is_online) for one in await present(stores, town)] == [
        (alice.presence_uid, False),
        (bob.presence_uid, False),
    ]
    await house.pass_time(2 * MARGIN_MS)
    settled = await stores.presence.settle()
    assert [(one.what, one.presence_uid) for one in settled.events] == [(What.LEFT, bob.presence_uid)]
    assert settled.members == [town["bob"].member_id]
    await house.pass_time(MOST_MS - 2 * MARGIN_MS)
    await stores.seats.beat()
    await house.reopen()
    stores = house.stores
    await stores.seats.start()
    assert await stores.presence.settle() == Settled(), "it was in grace already: no second whole lease"
    back = await arrive(stores, town, "alice", resumes=alice)
    assert (back.is_resumed, back.events) == (True, [])
    happened = [("joined", None), ("offline", "broker_gone"), ("online", None)]
    assert await noted(house, alice) in ([], happened)
