"""Retention: messages go, ids stay as long as they must, and nothing that is waited for goes unseen."""

import pytest

from claudemesh.broker.model import Accepted, Claim, DeliveryState, Duplicate
from claudemesh.broker.policy import EPOCH_SKIP
from claudemesh.broker.upkeep import Upkeep
from claudemesh.kernel.errors import IdRetired, LeaseLost
from claudemesh.runtime.observe import Observer
from tests.contract.broker.backends import NOW, House, batch, dm, job, post, seat, settle, subscribe

DAY = 86_400_000


def upkeep(house: House, days: int = 365) -> Upkeep:
    return Upkeep(house.stores.upkeep, house.stores.work, house.stores.presence, house.clock, Observer(), days)


async def test_the_brokers_seed_is_made_once(house: House) -> None:
    assert await house.stores.upkeep.broker_seed(b"a" * 32) == b"a" * 32
    assert await house.stores.upkeep.broker_seed(b"b" * 32) == b"a" * 32
    await house.reopen()
    assert await house.stores.upkeep.broker_seed(b"c" * 32) == b"a" * 32


@pytest.mark.req("B7")
async def test_an_old_message_goes_and_its_id_still_answers_until_it_expires_too(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice", "bob")
    expires = NOW + 400 * DAY
    old = [dm("1", "bob"), post("2", "news", meta={"mentions": ["bob"]})]
    outcomes = await stores.accepts.accept(batch(town["alice"], *old, expires_at=expires))
    await stores.deliveries.ack(town["bob"], [1, 2], NOW)
    house.clock.advance(300 * DAY)
    await stores.accepts.accept(batch(town["alice"], dm("3", "bob"), now_ms=house.clock.wall_ms()))
    assert (await upkeep(house).sweep()).messages == 0
    house.clock.advance(66 * DAY)
    swept = await upkeep(house).sweep()
    assert (swept.messages, swept.dead_letters, swept.ids) == (2, 0, 0)
    [again] = await stores.accepts.accept(batch(town["alice"], dm("1", "bob"), now_ms=house.clock.wall_ms()))
    first = outcomes[0]
    assert isinstance(first, Accepted)
    assert again == Duplicate(first.broker_message_id, 1, history_available=False, first_seen_at=NOW)
    [receipt] = await stores.receipts.receipts(town["alice"], ["1"], [])
    assert receipt.history_available is False
    assert await stores.upkeep.check() == []
    house.clock.advance(40 * DAY)
    swept = await upkeep(house).sweep()
    assert (swept.messages, swept.ids) == (0, 2)
    assert list(await stores.accepts.standing(town["alice"].member_id, ["1", "2", "3"])) == ["3"]
    assert await stores.upkeep.check() == []


@pytest.mark.req("B7")
async def test_what_somebody_still_waits_for_is_a_dead_letter_before_it_goes(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob"), job("2", "jobs"), dm("3", "bob")))
    await stores.deliveries.ack(town["bob"], [3], NOW)
    house.clock.advance(366 * DAY)
    swept = await upkeep(house).sweep()
    assert (swept.messages, swept.dead_letters) == (1, 2)  # the third was delivered
    for id_ in ("1", "2"):
        [receipt] = await stores.receipts.receipts(town["alice"], [id_], [])
        assert receipt.state is DeliveryState.DEAD_LETTER
        assert receipt.recipients[0].dead_reason == "retention"
    assert (await stores.deliveries.page(await seat(stores, town, "bob"), 0, 10, 1000)).parcels == []
    assert await stores.work.work(town["bob"], "jobs", 1000, NOW) is None
    assert await stores.upkeep.check() == []
    house.clock.advance(DAY + 1)
    swept = await upkeep(house).sweep()
    assert (swept.messages, swept.dead_letters) == (2, 0)
    assert await stores.upkeep.check() == []


@pytest.mark.req("B7", "Q3")
async def test_work_that_retention_gave_up_while_it_was_leased_is_not_acked_any_more(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    await stores.accepts.accept(batch(town["alice"], job("1", "jobs")))
    work = await stores.work.work(town["alice"], "jobs", 1000 * DAY, NOW)
    assert work is not None
    house.clock.advance(366 * DAY)
    assert (await upkeep(house).sweep()).dead_letters == 1
    with pytest.raises(LeaseLost):
        await stores.work.ack(Claim(town["alice"], "jobs", work.broker_message_id, work.lease_token), NOW)
    [receipt] = await stores.receipts.receipts(town["alice"], ["1"], [])
    assert receipt.state is DeliveryState.DEAD_LETTER


@pytest.mark.req("B7", "Q3")
async def test_what_was_handed_over_goes_when_it_is_old_and_is_no_dead_letter(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    await stores.accepts.accept(batch(town["alice"], job("1", "jobs"), job("2", "jobs"), expires_at=None))
    for handed_over in (True, False):
        work = await stores.work.work(town["bob"], "jobs", 1000 * DAY, NOW)
        assert work is not None
        claim = Claim(town["bob"], "jobs", work.broker_message_id, work.lease_token)
        await stores.work.ack(claim, NOW, handed_over=handed_over)
    house.clock.advance(366 * DAY)
    swept = await upkeep(house).sweep()
    assert (swept.messages, swept.dead_letters) == (2, 0)
    [receipt] = await stores.receipts.receipts(town["alice"], ["1"], [])
    assert receipt.history_available is False
    assert await stores.upkeep.check() == []


@pytest.mark.req("B7", "Q3", "Q6")
async def test_work_that_retention_gave_up_is_neither_handed_over_nor_answered_by_who_held_it(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    await stores.accepts.accept(batch(town["alice"], job("1", "jobs")))
    work = await stores.work.work(town["bob"], "jobs", 1000 * DAY, NOW)
    assert work is not None
    house.clock.advance(366 * DAY)
    assert (await upkeep(house).sweep()).dead_letters == 1
    claim = Claim(town["bob"], "jobs", work.broker_message_id, work.lease_token)
    with pytest.raises(LeaseLost):
        await stores.work.ack(claim, NOW, handed_over=True)
    [reply] = await stores.accepts.accept(batch(town["bob"], dm("r", "alice", reply_to=work.broker_message_id)))
    assert isinstance(reply, Accepted)
    assert reply.answered is None
    [receipt] = await stores.receipts.receipts(town["alice"], ["1"], [])
    assert (receipt.state, receipt.recipients[0].acted_at) == (DeliveryState.DEAD_LETTER, None)
    assert receipt.recipients[0].handed_over is False


@pytest.mark.req("B7")
async def test_ids_are_never_forgotten_in_permanent_mode_nor_before_their_message(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob"), expires_at=None))
    await stores.accepts.accept(batch(town["alice"], dm("2", "bob"), expires_at=NOW + DAY))
    await stores.deliveries.ack(town["bob"], [1, 2], NOW)
    house.clock.advance(10 * DAY)
    assert (await upkeep(house).sweep()).ids == 0  # the second id has expired, but its message is still kept
    house.clock.advance(1000 * DAY)
    assert (await upkeep(house).sweep()).messages == 2
    assert set(await stores.accepts.standing(town["alice"].member_id, ["1", "2"])) >= {"1"}


@pytest.mark.req("B7")
async def test_retired_ids_are_forgotten_when_they_expire(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await stores.accepts.retire(town["alice"], "late", NOW, NOW + 10 * DAY)
    await stores.accepts.retire(town["alice"], "never", NOW, None)
    house.clock.advance(9 * DAY)
    assert (await upkeep(house).sweep()).ids == 0
    [refused] = await stores.accepts.accept(batch(town["alice"], dm("late", "bob")))
    assert isinstance(refused, IdRetired)
    house.clock.advance(2 * DAY)
    assert (await upkeep(house).sweep()).ids == 1
    [accepted, refused] = await stores.accepts.accept(batch(town["alice"], dm("late", "bob"), dm("never", "bob")))
    assert isinstance(accepted, Accepted)
    assert isinstance(refused, IdRetired)


async def test_a_sweep_of_many_pages_goes_to_the_end(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    for page in range(6):
        await stores.accepts.accept(batch(town["alice"], *(dm(f"{page}-{n}", "bob") for n in range(100))))
    await stores.deliveries.ack(town["bob"], [*range(1, 601)], NOW)
    house.clock.advance(800 * DAY)
    swept = await upkeep(house).sweep()
    assert (swept.messages, swept.ids) == (600, 600)
    assert await stores.upkeep.check() == []


@pytest.mark.req("B7", "F6")
@pytest.mark.parametrize("days_ahead", [400, 40_000])
async def test_a_clock_that_jumps_ahead_makes_nothing_old(house: House, days_ahead: int) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob")))
    await stores.accepts.retire(town["alice"], "2", NOW, NOW + 30 * DAY)
    keeper = upkeep(house)
    house.clock.wall += days_ahead * DAY
    swept = await keeper.sweep()
    assert (swept.messages, swept.dead_letters, swept.ids) == (0, 0, 0)
    late = upkeep(house)  # begun while the clock was ahead, and it is set right before the sweep
    house.clock.wall -= days_ahead * DAY
    swept = await late.sweep()
    assert (swept.messages, swept.dead_letters, swept.ids) == (0, 0, 0)
    house.clock.advance(366 * DAY)
    swept = await keeper.sweep()
    assert (swept.dead_letters, swept.ids) == (1, 1), "time that really passed counts"


@pytest.mark.req("B4", "B8")
async def test_an_epoch_passes_numbers_over_in_every_mesh_and_that_is_no_gap(house: House) -> None:
    stores = house.stores
    town, other = await settle(stores, "alice", "bob"), await settle(stores, "carol", "dave", slug="other")
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob"), dm("2", "bob")))
    assert await stores.upkeep.begin_epoch(NOW) == 1
    assert await stores.upkeep.check() == []
    [third] = await stores.accepts.accept(batch(town["alice"], dm("3", "bob")))
    [first] = await stores.accepts.accept(batch(other["carol"], dm("1", "dave")))
    assert isinstance(third, Accepted)
    assert isinstance(first, Accepted)
    assert (third.history_id, first.history_id) == (EPOCH_SKIP + 3, EPOCH_SKIP + 1)
    await house.reopen()
    assert await house.stores.upkeep.begin_epoch(NOW) == 2
    assert await house.stores.upkeep.check() == []
    page = await house.stores.deliveries.page(await seat(house.stores, town, "bob"), 0, 10, 1 << 20)
    assert [parcel.history_id for parcel in page.parcels] == [1, 2, EPOCH_SKIP + 3]
