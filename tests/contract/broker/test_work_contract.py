"""Work queues: one message to one worker, for a time, under a token that only grows."""

import asyncio

import pytest

from claudemesh.broker.model import Accepted, Acked, Claim, DeliveryState, Moved, Sender, Work
from claudemesh.broker.policy import QUEUE_RETURNS_MAX
from claudemesh.broker.ports import Stores
from claudemesh.kernel.errors import DestinationNotFound, LeaseLost, NotFound
from tests.contract.broker.backends import BOUND_S, NOW, House, Town, batch, dm, job, settle

TTL = 300_000
MARGIN = 60_000  # the clock of a server goes on by itself


async def queue_with(house: House, *ids: str) -> Town:
    town = await settle(house.stores, "boss", "ann", "ben")
    await house.stores.work.create_queue(town["boss"], "jobs", NOW)
    if ids:
        await house.stores.accepts.accept(batch(town["boss"], *(job(id_, "jobs", id_) for id_ in ids)))
    return town


async def take(house: House, worker: Sender, ttl_ms: int = TTL) -> Work:
    work = await house.stores.work.work(worker, "jobs", ttl_ms, NOW)
    assert work is not None
    return work


def claim(worker: Sender, work: Work, token: int | None = None) -> Claim:
    return Claim(worker, "jobs", work.broker_message_id, work.lease_token if token is None else token)


async def state(stores: Stores, town: Town, id_: str) -> DeliveryState:
    [found] = await stores.receipts.receipts(town["boss"], [id_], [])
    return found.state


@pytest.mark.req("Q3")
async def test_workers_get_the_oldest_message_each_another_one(house: House) -> None:
    town = await queue_with(house, "1", "2", "3")
    async with asyncio.timeout(BOUND_S):
        async with house.held():
            asked = [
                asyncio.ensure_future(house.stores.work.work(town[who], "jobs", TTL, NOW))
                for who in ("ann", "ben", "ann", "ben")
            ]
            await asyncio.sleep(0)
        got = await asyncio.gather(*asked)
    assert [work and work.body for work in got] == ["1", "2", "3", None]
    assert await state(house.stores, town, "1") is DeliveryState.DELIVERED


@pytest.mark.req("Q3")
async def test_acked_work_is_done_and_saying_so_again_holds_again(house: House) -> None:
    town = await queue_with(house, "1")
    work = await take(house, town["ann"])
    assert work.sender_name == "boss"
    await house.stores.work.ack(claim(town["ann"], work), NOW + 5)
    await house.stores.work.ack(claim(town["ann"], work), NOW + 9)
    assert await state(house.stores, town, "1") is DeliveryState.ACTED
    assert await house.stores.work.work(town["ben"], "jobs", TTL, NOW) is None
    await house.pass_time(TTL)
    assert await house.stores.work.expire(NOW) == 0
    with pytest.raises(LeaseLost):
        await house.stores.work.nack(claim(town["ann"], work), NOW)
    with pytest.raises(LeaseLost):
        await house.stores.work.renew(claim(town["ann"], work), TTL)


@pytest.mark.req("Q3")
async def test_an_expired_lease_goes_to_the_next_worker_and_the_first_can_do_nothing_more(house: House) -> None:
    town = await queue_with(house, "1")
    stores = house.stores
    first = await take(house, town["ann"])
    await house.pass_time(TTL - MARGIN)
    assert await stores.work.work(town["ben"], "jobs", TTL, NOW) is None
    await house.pass_time(MARGIN)
    assert await stores.work.expire(NOW) == 1
    assert await state(stores, town, "1") is DeliveryState.ACCEPTED
    second = await take(house, town["ben"])
    assert second.lease_token > first.lease_token
    assert second.returns == 1
    for settle_it in (stores.work.ack, stores.work.nack, stores.work.renew):
        with pytest.raises(LeaseLost):
            await settle_it(claim(town["ann"], first), NOW)
        with pytest.raises(LeaseLost):
            await settle_it(claim(town["ann"], second), NOW)  # the right token, the wrong worker
    await stores.work.ack(claim(town["ben"], second), NOW)


async def test_an_expired_lease_is_lost_also_while_nobody_else_has_asked(house: House) -> None:
    town = await queue_with(house, "1")
    work = await take(house, town["ann"])
    await house.pass_time(TTL)
    with pytest.raises(LeaseLost) as lost:
        await house.stores.work.ack(claim(town["ann"], work), NOW)
    assert lost.value.extras["reason"] == "expired"


@pytest.mark.req("Q3")
async def test_a_renewed_lease_lives_on(house: House) -> None:
    town = await queue_with(house, "1")
    work = await take(house, town["ann"])
    await house.pass_time(TTL - MARGIN)
    assert await house.stores.work.renew(claim(town["ann"], work), TTL) == TTL
    await house.pass_time(TTL - MARGIN)
    assert await house.stores.work.work(town["ben"], "jobs", TTL, NOW) is None
    await house.stores.work.ack(claim(town["ann"], work), NOW)


@pytest.mark.req("F6")
@pytest.mark.parametrize("step_ms", [-86_400_000, 86_400_000])
async def test_a_step_of_the_wall_clock_neither_ends_nor_extends_a_lease(house: House, step_ms: int) -> None:
    town = await queue_with(house, "1")
    await take(house, town["ann"])
    house.clock.wall += step_ms
    assert await house.stores.work.work(town["ben"], "jobs", TTL, house.clock.wall_ms()) is None
    await house.pass_time(TTL)
    assert await house.stores.work.work(town["ben"], "jobs", TTL, house.clock.wall_ms()) is not None


@pytest.mark.req("Q3")
@pytest.mark.parametrize("by", ["nack", "expiry"])
async def test_what_comes_back_too_often_is_a_dead_letter(house: House, by: str) -> None:
    town = await queue_with(house, "1", "2")
    stores = house.stores
    for _ in range(QUEUE_RETURNS_MAX):
        work = await take(house, town["ann"])
        assert work.body == "1"
        if by == "nack":
            await stores.work.nack(claim(town["ann"], work), NOW + 3)
        else:
            await house.pass_time(TTL)
            await stores.work.expire(NOW + 3)
    assert (await take(house, town["ann"])).body == "2"
    [dead] = await stores.receipts.receipts(town["boss"], ["1"], [])
    assert (dead.state, dead.at) == (DeliveryState.DEAD_LETTER, NOW + 3)
    assert dead.recipients[0].dead_reason == "returns_exhausted"


async def test_a_queue_or_a_message_that_is_not_there_is_told(house: House) -> None:
    town = await queue_with(house, "1")
    with pytest.raises(DestinationNotFound):
        await house.stores.work.work(town["ann"], "nothing", TTL, NOW)
    work = await take(house, town["ann"])
    for wrong in (
        Claim(town["ann"], "nothing", work.broker_message_id, work.lease_token),
        Claim(town["ann"], "jobs", "no-such-message", work.lease_token),
    ):
        with pytest.raises(NotFound):
            await house.stores.work.ack(wrong, NOW)
    other = await settle(house.stores, "eve", slug="other")
    with pytest.raises(NotFound):  # of another mesh: as if it were not there
        await house.stores.work.ack(Claim(other["eve"], "jobs", work.broker_message_id, work.lease_token), NOW)


# --- what a ledger has ------------------------------------------------------------------------------


async def hand_over(house: House, worker: Sender, work: Work) -> Acked:
    return await house.stores.work.ack(claim(worker, work), NOW + 5, handed_over=True)


async def reply(house: House, town: Town, who: str, work: Work, id_: str = "r") -> Moved | None:
    """Answer a piece of work; return what that moved."""
    answer = dm(id_, "boss", reply_to=work.broker_message_id)
    [outcome] = await house.stores.accepts.accept(batch(town[who], answer, now_ms=NOW + 7))
    assert isinstance(outcome, Accepted)
    return outcome.answered


@pytest.mark.req("Q3", "Q6")
async def test_what_is_handed_over_is_leased_no_more_and_stays_delivered(house: House) -> None:
    town = await queue_with(house, "1")
    stores = house.stores
    work = await take(house, town["ann"])
    acked = Acked(Moved(town["boss"].member_id, "1"), DeliveryState.DELIVERED)
    assert await hand_over(house, town["ann"], work) == acked
    assert await hand_over(house, town["ann"], work) == acked, "said again it holds again"
    await house.pass_time(TTL)
    assert await stores.work.expire(NOW + 9) == 0
    assert await stores.work.work(town["ben"], "jobs", TTL, NOW) is None
    assert await hand_over(house, town["ann"], work) == acked, "also after the lease would have ended"
    [queue] = await stores.work.queues(town["boss"])
    assert (queue.ready, queue.leased) == (0, 0)
    for settle_it in (stores.work.nack, stores.work.renew):
        with pytest.raises(LeaseLost):
            await settle_it(claim(town["ann"], work), TTL)
    [receipt] = await stores.receipts.receipts(town["boss"], ["1"], [])
    assert (receipt.state, receipt.at) == (DeliveryState.DELIVERED, NOW)
    assert (receipt.recipients[0].name, receipt.recipients[0].handed_over) == ("ann", True)
    assert await stores.upkeep.check() == []


@pytest.mark.req("Q3", "Q6")
async def test_the_reply_of_who_handed_it_over_makes_it_acted_and_nobody_elses_does(house: House) -> None:
    town = await queue_with(house, "1")
    work = await take(house, town["ann"])
    await hand_over(house, town["ann"], work)
    await house.reopen()
    assert await reply(house, town, "ben", work) is None
    assert await reply(house, town, "boss", work) is None, "not even its sender's"
    assert await state(house.stores, town, "1") is DeliveryState.DELIVERED
    assert await reply(house, town, "ann", work) == Moved(town["boss"].member_id, "1")
    [receipt] = await house.stores.receipts.receipts(town["boss"], ["1"], [])
    assert (receipt.state, receipt.at) == (DeliveryState.ACTED, NOW + 7)
    assert (receipt.recipients[0].name, receipt.recipients[0].handed_over) == ("ann", False)
    assert await reply(house, town, "ann", work, "again") is None, "it was acted upon before"


@pytest.mark.req("Q3", "Q6")
async def test_a_reply_to_work_that_is_only_leased_changes_nothing(house: House) -> None:
    town = await queue_with(house, "1")
    first = await take(house, town["ann"])
    assert await reply(house, town, "ann", first) is None
    assert await state(house.stores, town, "1") is DeliveryState.DELIVERED
    await house.pass_time(TTL)
    second = await take(house, town["ben"])
    await hand_over(house, town["ben"], second)
    assert await reply(house, town, "ann", first, "late") is None, "it is another's by now"
    assert await state(house.stores, town, "1") is DeliveryState.DELIVERED
    assert await reply(house, town, "ben", second) is not None


@pytest.mark.req("Q3")
async def test_only_the_holder_of_a_lease_hands_over_and_only_while_it_lasts(house: House) -> None:
    town = await queue_with(house, "1")
    work = await take(house, town["ann"])
    for wrong in (claim(town["ben"], work), claim(town["ann"], work, work.lease_token + 1)):
        with pytest.raises(LeaseLost):
            await house.stores.work.ack(wrong, NOW, handed_over=True)
    await house.pass_time(TTL)
    with pytest.raises(LeaseLost) as lost:
        await hand_over(house, town["ann"], work)
    assert lost.value.extras["reason"] == "expired"
    assert (await take(house, town["ben"])).returns == 1


@pytest.mark.req("Q3", "Q6")
@pytest.mark.parametrize("by", ["ack", "reply"])
async def test_what_was_handed_over_is_acted_once_and_handing_it_over_again_changes_nothing(
    house: House, by: str
) -> None:
    town = await queue_with(house, "1")
    work = await take(house, town["ann"])
    await hand_over(house, town["ann"], work)
    await house.pass_time(TTL)  # the lease does not matter any more
    for wrong in (claim(town["ben"], work), claim(town["ann"], work, work.lease_token + 1)):
        for handed_over in (True, False):
            with pytest.raises(LeaseLost):
                await house.stores.work.ack(wrong, NOW, handed_over=handed_over)
    done = Acked(Moved(town["boss"].member_id, "1"), DeliveryState.ACTED)
    if by == "ack":
        assert await house.stores.work.ack(claim(town["ann"], work), NOW + 7) == done
    else:
        assert await reply(house, town, "ann", work) is not None
    assert await hand_over(house, town["ann"], work) == done
    assert await house.stores.work.ack(claim(town["ann"], work), NOW + 9) == done
    assert await reply(house, town, "ann", work, "again") is None
    [receipt] = await house.stores.receipts.receipts(town["boss"], ["1"], [])
    assert (receipt.state, receipt.at) == (DeliveryState.ACTED, NOW + 7)


@pytest.mark.req("Q3")
async def test_work_that_is_done_is_not_handed_over(house: House) -> None:
    town = await queue_with(house, "1")
    work = await take(house, town["ann"])
    await house.stores.work.ack(claim(town["ann"], work), NOW + 3)
    assert (await hand_over(house, town["ann"], work)).state is DeliveryState.ACTED
    assert await reply(house, town, "ann", work) is None
    [receipt] = await house.stores.receipts.receipts(town["boss"], ["1"], [])
    assert (receipt.state, receipt.at) == (DeliveryState.ACTED, NOW + 3)


@pytest.mark.req("Q8")
async def test_topics_and_queues_are_made_once_and_listed(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    assert await stores.topics.create_topic(town["alice"], "news", NOW) is True
    assert await stores.topics.create_topic(town["bob"], "news", NOW + 1) is False
    assert await stores.work.create_queue(town["bob"], "jobs", NOW) is True
    assert await stores.work.create_queue(town["alice"], "jobs", NOW) is False
    await stores.topics.subscribe(town["bob"], "news")
    [seen] = await stores.topics.topics(town["alice"])
    assert (seen.name, seen.created_at, seen.subscribers, seen.is_subscribed) == ("news", NOW, 1, False)
    [mine] = await stores.topics.topics(town["bob"])
    assert mine.is_subscribed is True
    await stores.accepts.accept(batch(town["bob"], job("1", "jobs"), job("2", "jobs")))
    await stores.work.work(town["alice"], "jobs", TTL, NOW)
    [queue] = await stores.work.queues(town["alice"])
    assert (queue.name, queue.ready, queue.leased) == ("jobs", 1, 1)
    for ask in (stores.topics.subscribe(town["bob"], "olds"), stores.topics.unsubscribe(town["bob"], "olds", NOW)):
        with pytest.raises(DestinationNotFound):
            await ask
