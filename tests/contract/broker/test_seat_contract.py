"""Of all connections under a key one gets what waits for it: the one that took its seat last."""

import pytest

from claudemesh.broker.model import ConnectionPolicy, Page, Seat
from claudemesh.broker.presence.model import Because, Departure
from claudemesh.kernel.errors import Revoked
from claudemesh.kernel.fingerprint import Kind
from tests.contract.broker.backends import NOW, House, Stores, batch, dm, know_session, message, seat, settle

WIDE = 1 << 30


async def waiting(stores: Stores, taken: Seat, after: int = 0) -> tuple[list[int], int]:
    page: Page = await stores.deliveries.page(taken, after, 1000, WIDE)
    return [parcel.history_id for parcel in page.parcels], page.upto


@pytest.mark.req("Q1")
async def test_what_waits_is_for_the_newest_seat_and_for_the_next_newest_when_that_is_left(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", policy=ConnectionPolicy.ALLOW_CONCURRENT)
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob"), dm("2", "bob")))
    older, newer = await seat(stores, town, "bob"), await seat(stores, town, "bob", instance="two")
    assert older.token < newer.token
    assert await waiting(stores, older) == ([], 0)
    assert await waiting(stores, newer) == ([1, 2], 2)
    assert await stores.deliveries.count_attempts(older, [1, 2], NOW) == []
    assert await stores.seats.leave([Departure(newer.token)]) == [town["bob"].member_id]
    assert await stores.seats.leave([Departure(newer.token)]) == []
    assert await waiting(stores, newer) == ([], 0)
    assert await waiting(stores, older, after=1) == ([2], 2)


@pytest.mark.req("Q1")
async def test_a_session_gets_what_names_it_and_its_member_the_rest_and_all_once_it_is_gone(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await know_session(stores, town, "bob", "key-of-a-session")
    letters = [message("1", Kind.DM, "key-of-a-session"), dm("2", "bob"), message("3", Kind.DM, "key-of-a-session")]
    await stores.accepts.accept(batch(town["alice"], *letters))
    own, session = await seat(stores, town, "bob"), await seat(stores, town, "bob", "key-of-a-session")
    assert await waiting(stores, own) == ([2], 3)
    assert await waiting(stores, session) == ([1, 3], 3)
    assert await waiting(stores, own, after=2) == ([], 3), "it was looked at, and is another's"
    assert await waiting(stores, own, after=3) == ([], 3)
    await stores.presence.end(town["bob"], "key-of-a-session", Because.GOODBYE)
    assert await waiting(stores, own) == ([1, 2, 3], 3)


async def test_a_seat_stands_until_it_is_left(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    taken = [
        await seat(stores, town, "alice"),
        await seat(stores, town, "bob"),
        await seat(stores, town, "bob", "s"),
    ]
    far = await seat(stores, await settle(stores, "dave", slug="other"), "dave")
    assert await stores.seats.standing() == {one.token for one in (*taken, far)}
    left = await stores.seats.leave([Departure(one.token) for one in taken])
    assert sorted(left) == [town["alice"].member_id, town["bob"].member_id, town["bob"].member_id]
    assert await stores.seats.standing() == {far.token}
    assert await stores.seats.leave([]) == []


@pytest.mark.req("Q8")
async def test_a_member_who_was_revoked_is_given_no_seat(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await stores.directory.revoke(town["alice"], "bob", NOW)
    with pytest.raises(Revoked):
        await seat(stores, town, "bob")
    assert await stores.seats.standing() == set()
    assert await stores.presence.present(town.mesh.id) == []


async def test_the_only_broker_keeps_the_store_and_is_not_forgotten_while_it_beats(house: House) -> None:
    for _ in range(2):
        beat = await house.stores.seats.beat()
        assert (beat.is_keeper, beat.is_forgotten, beat.bereft) == (True, False, [])
