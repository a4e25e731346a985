"""What waits for a member, what its acks mean, and what receipts say of it."""

import msgspec
import pytest

from claudemesh.broker.model import Accepted, ConnectionPolicy, DeliveryState, Fresh, MessageReceipt, Moved, Parcel
from claudemesh.broker.parcels import render_fresh
from claudemesh.broker.policy import ATTEMPTS_MAX
from claudemesh.broker.ports import KeyTaken
from claudemesh.kernel.fingerprint import Kind, Priority
from claudemesh.wire.frames import DeliverItem
from tests.contract.broker.backends import (
    NOW,
    House,
    Stores,
    Town,
    arrive,
    batch,
    dm,
    job,
    know_session,
    message,
    post,
    seat,
    settle,
    subscribe,
)

WIDE = 1 << 30


async def parcels(stores: Stores, town: Town, name: str, session: str | None = None) -> list[Parcel]:
    """Return what waits, to whoever comes last under the key."""
    return (await stores.deliveries.page(await seat(stores, town, name, session), 0, 1000, WIDE)).parcels


async def waiting(stores: Stores, town: Town, name: str, session: str | None = None) -> list[int]:
    return [parcel.history_id for parcel in await parcels(stores, town, name, session)]


async def receipt(stores: Stores, town: Town, sender: str, id_: str) -> MessageReceipt:
    [found] = await stores.receipts.receipts(town[sender], [id_], [])
    return found


async def test_deliveries_wait_in_the_order_of_history_with_all_that_was_sent(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice", "bob")
    sent = [
        dm("1", "bob", "to you", reply_to="some-id", meta={"k": [1, "é"]}, priority=Priority.NOW),
        post("2", "news", "to all", meta={"mentions": ["bob"]}),
    ]
    outcomes = await stores.accepts.accept(batch(town["alice"], *sent))
    found = await parcels(stores, town, "bob")
    first, second = (msgspec.json.decode(parcel.payload, type=DeliverItem) for parcel in found)
    assert (first.history_id, first.body, first.kind, first.ref) == (1, "to you", "dm", "key-of-bob")
    assert (first.reply_to, first.meta, first.priority) == ("some-id", {"k": [1, "é"]}, "now")
    assert (first.sender_name, first.sender_pubkey) == ("alice", "key-of-alice")
    assert first.sender_id == town.members["alice"].uid
    assert (first.client_message_id, first.accepted_at) == ("1", NOW)
    assert (second.history_id, second.kind, second.ref, second.meta) == (2, "topic", "news", {"mentions": ["bob"]})
    ids = [outcome.broker_message_id for outcome in outcomes if isinstance(outcome, Accepted)]
    assert [first.broker_message_id, second.broker_message_id] == ids
    assert await waiting(stores, town, "alice") == []


@pytest.mark.req("B6")
async def test_what_is_pushed_at_once_is_what_the_store_says(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice", "bob")
    await know_session(stores, town, "bob", "key-of-a-session")
    sent = [
        dm("1", "bob", "to you", reply_to="some-id", meta={"k": [1, "é"]}, priority=Priority.NOW),
        post("2", "news", "to all", meta={"mentions": ["bob"]}),
        message("3", Kind.DM, "key-of-a-session", "only there"),
    ]
    outcomes = await stores.accepts.accept(batch(town["alice"], *sent, now_ms=NOW + 7))
    told = [
        render_fresh(Fresh(town.members["alice"], one, accepted, NOW + 7))
        for one, accepted in zip(sent, outcomes, strict=True)
        if isinstance(accepted, Accepted)
    ]
    assert told == await parcels(stores, town, "bob")
    assert [parcel.to_session for parcel in told] == [None, None, "key-of-a-session"]


async def test_a_page_is_bounded_by_count_and_bytes_but_never_empty_while_something_waits(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await stores.accepts.accept(batch(town["alice"], *(dm(f"{n}", "bob", "x" * 1000) for n in range(10))))
    bob = await seat(stores, town, "bob")

    async def page(after: int, count_max: int, bytes_max: int = WIDE) -> tuple[list[int], int]:
        found = await stores.deliveries.page(bob, after, count_max, bytes_max)
        return [parcel.history_id for parcel in found.parcels], found.upto

    assert await page(0, 3) == ([1, 2, 3], 3)
    assert await page(8, 10) == ([9, 10], 10)
    assert await page(10, 10) == ([], 10)
    few, upto = await page(0, 10, 3000)
    assert 1 <= len(few) <= 3
    assert upto == few[-1]
    assert await page(0, 10, 1) == ([1], 1)


@pytest.mark.req("Q1")
async def test_an_ack_settles_the_members_own_deliveries_and_no_others(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    await subscribe(stores, town, "news", "alice", "bob", "carol")
    await stores.accepts.accept(batch(town["alice"], *(post(f"{n}", "news") for n in range(5))))
    await stores.deliveries.ack(town["bob"], [1, 2, 4, 77], NOW + 1)
    assert await waiting(stores, town, "bob") == [3, 5]
    assert await waiting(stores, town, "carol") == [1, 2, 3, 4, 5]
    await stores.deliveries.ack(town["bob"], [1, 2, 3], NOW + 9)
    assert await waiting(stores, town, "bob") == [5]
    found = await receipt(stores, town, "alice", "0")
    [bob, carol] = found.recipients
    assert (bob.name, bob.state, bob.delivered_at) == ("bob", "delivered", NOW + 1)  # the first ack counts
    assert (carol.name, carol.state) == ("carol", "accepted")
    assert await stores.deliveries.depth() == 6


@pytest.mark.req("Q8")
async def test_a_subscription_begins_with_the_next_message_and_ends_with_the_last(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice")
    await stores.accepts.accept(batch(town["alice"], post("1", "news")))
    assert await stores.topics.subscribe(town["bob"], "news") == 1
    await stores.accepts.accept(batch(town["alice"], post("2", "news")))
    assert await stores.topics.subscribe(town["bob"], "news") == 1  # it stands
    assert await stores.topics.unsubscribe(town["bob"], "news", NOW) is True
    assert await stores.topics.unsubscribe(town["bob"], "news", NOW) is False
    await stores.accepts.accept(batch(town["alice"], post("3", "news")))
    assert await stores.topics.subscribe(town["bob"], "news") == 3
    await stores.accepts.accept(batch(town["alice"], post("4", "news")))
    assert await waiting(stores, town, "bob") == [2, 4]  # what was delivered before the end stays


@pytest.mark.req("Q1")
async def test_a_delivery_is_a_dead_letter_after_so_many_attempts(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", policy=ConnectionPolicy.ALLOW_CONCURRENT)
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob"), dm("2", "bob"), dm("3", "bob")))
    await stores.deliveries.ack(town["bob"], [2], NOW)
    first = await seat(stores, town, "bob")
    for _ in range(ATTEMPTS_MAX - 1):
        assert await stores.deliveries.count_attempts(first, [1, 2], NOW + 1) == []
    second = await seat(stores, town, "bob", instance="two")
    assert await stores.deliveries.count_attempts(first, [1, 2], NOW + 1) == []  # it is no longer its own
    assert (await stores.deliveries.page(second, 0, 10, WIDE)).upto == 3
    assert await stores.deliveries.count_attempts(second, [1, 2], NOW + 2) == [1]
    assert await waiting(stores, town, "bob") == [3]
    dead = await receipt(stores, town, "alice", "1")
    assert (dead.state, dead.at) == (DeliveryState.DEAD_LETTER, NOW + 2)
    assert dead.recipients[0].dead_reason == "attempts_exhausted"
    assert (await receipt(stores, town, "alice", "2")).recipients[0].attempts == 0  # it was acknowledged
    await stores.deliveries.ack(town["bob"], [1], NOW + 3)  # it had arrived after all, and that is evidence
    assert (await receipt(stores, town, "alice", "1")).state is DeliveryState.DELIVERED


@pytest.mark.req("Q6")
async def test_a_message_shows_its_least_advanced_recipient_with_counts(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol", "dave")
    await subscribe(stores, town, "news", "alice", "bob", "carol", "dave")
    [accepted] = await stores.accepts.accept(batch(town["alice"], post("1", "news")))
    assert isinstance(accepted, Accepted)
    seen = [(await receipt(stores, town, "alice", "1")).state]
    for name, at in (("bob", 1), ("carol", 2), ("dave", 3)):
        await stores.deliveries.ack(town[name], [1], NOW + at)
        seen.append((await receipt(stores, town, "alice", "1")).state)
    assert seen == ["accepted", "accepted", "accepted", "delivered"]
    for name in ("bob", "carol"):
        moved = await stores.deliveries.mark_read(town[name], [accepted.broker_message_id, "unknown"], NOW + 4)
        assert moved == [Moved(town["alice"].member_id, "1")]
    await stores.accepts.accept(batch(town["bob"], dm("r", "alice", reply_to=accepted.broker_message_id)))
    found = await receipt(stores, town, "alice", "1")
    assert (found.state, found.at) == ("delivered", NOW + 3)
    assert found.counts == {"acted": 1, "read": 1, "delivered": 1}
    [bob, carol, dave] = found.recipients
    assert (bob.state, bob.acted_at, bob.read_at) == ("acted", NOW, NOW + 4)
    assert (carol.state, dave.state) == ("read", "delivered")


@pytest.mark.req("Q6")
async def test_a_reply_or_a_mark_before_the_ack_does_not_end_the_delivery(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    [accepted] = await stores.accepts.accept(batch(town["alice"], dm("1", "bob")))
    assert isinstance(accepted, Accepted)
    await stores.accepts.accept(batch(town["bob"], dm("r", "alice", reply_to=accepted.broker_message_id)))
    assert len(await stores.deliveries.mark_read(town["bob"], [accepted.broker_message_id], NOW)) == 1
    assert (await receipt(stores, town, "alice", "1")).state is DeliveryState.ACCEPTED
    assert await waiting(stores, town, "bob") == [1]  # the inbox has not got it
    await stores.deliveries.ack(town["bob"], [1], NOW)
    assert (await receipt(stores, town, "alice", "1")).state is DeliveryState.ACTED


@pytest.mark.req("Q6")
async def test_a_hint_and_a_receipt_say_the_same_state_and_since_when(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    await subscribe(stores, town, "news", "alice", "bob", "carol")
    [accepted] = await stores.accepts.accept(batch(town["alice"], post("1", "news")))
    assert isinstance(accepted, Accepted)

    async def since() -> tuple[DeliveryState, int]:
        [hint] = await stores.receipts.progress(town["alice"], ["1"])
        shown = await receipt(stores, town, "alice", "1")
        assert (hint.state, hint.at) == (shown.state, shown.at)
        return shown.state, shown.at - NOW

    await stores.deliveries.mark_read(town["bob"], [accepted.broker_message_id], NOW + 5)
    assert await since() == (DeliveryState.ACCEPTED, 0), "a mark before the ack is not yet a state"
    await stores.deliveries.ack(town["carol"], [1], NOW + 6)
    await stores.deliveries.ack(town["bob"], [1], NOW + 7)
    assert await since() == (DeliveryState.DELIVERED, 6)
    await stores.deliveries.mark_read(town["carol"], [accepted.broker_message_id], NOW + 8)
    assert await since() == (DeliveryState.READ, 8), "when the last one came to it"
    for name in ("bob", "carol"):
        reply = dm(f"r-{name}", "alice", reply_to=accepted.broker_message_id)
        await stores.accepts.accept(batch(town[name], reply, now_ms=NOW + 9))
    assert await since() == (DeliveryState.ACTED, 9)


async def test_a_reply_of_somebody_who_did_not_get_it_is_no_act(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    [accepted] = await stores.accepts.accept(batch(town["alice"], dm("1", "bob")))
    assert isinstance(accepted, Accepted)
    await stores.deliveries.ack(town["bob"], [1], NOW)
    await stores.accepts.accept(batch(town["carol"], dm("r", "alice", reply_to=accepted.broker_message_id)))
    assert await stores.deliveries.mark_read(town["carol"], [accepted.broker_message_id], NOW) == []
    assert (await receipt(stores, town, "alice", "1")).state is DeliveryState.DELIVERED


async def test_receipts_are_the_senders_own_and_a_trace_is_for_who_took_part(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    outcomes = await stores.accepts.accept(batch(town["alice"], dm("1", "bob"), job("2", "jobs")))
    letter, work = (outcome.broker_message_id for outcome in outcomes if isinstance(outcome, Accepted))
    by_broker_id = await stores.receipts.receipts(town["alice"], ["1"], [letter, work])
    assert sorted(found.client_message_id for found in by_broker_id) == ["1", "2"]
    assert await stores.receipts.receipts(town["bob"], ["1"], [letter]) == []
    assert await stores.receipts.trace(town["carol"], letter) is None
    assert await stores.receipts.trace(town["carol"], work) is not None
    traced = await stores.receipts.trace(town["bob"], letter)
    assert traced is not None
    assert (traced.client_message_id, traced.kind, traced.ref) == ("1", "dm", "key-of-bob")


async def test_a_key_of_a_session_leads_to_its_member_and_is_kept_as_a_hint(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    for _ in range(2):
        await know_session(stores, town, "bob", "key-of-a-session")
    for key in ("key-of-a-session", "key-of-bob"):
        with pytest.raises(KeyTaken):
            await arrive(stores, town, "carol", key)
    assert [one.name for one in await stores.presence.events(town.mesh.id, 0, 9)] == ["bob"] * 4
    await stores.accepts.accept(batch(town["alice"], dm("1", "a-session")))
    [parcel] = await parcels(stores, town, "bob")
    delivered = msgspec.json.decode(parcel.payload, type=DeliverItem)
    assert (delivered.to_session, delivered.ref) == ("key-of-a-session", "key-of-a-session")


@pytest.mark.req("D9")
async def test_an_inbox_that_was_lost_gets_again_what_it_had_acknowledged(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    await stores.accepts.accept(batch(town["alice"], *(dm(f"{n}", "bob") for n in range(6)), dm("c", "carol")))
    await stores.deliveries.ack(town["bob"], [1, 2, 4, 5], NOW)
    await stores.deliveries.ack(town["carol"], [7], NOW)
    pages = [await stores.deliveries.replay(town["bob"], after, 2, WIDE) for after in (0, 2, 5)]
    assert [[parcel.history_id for parcel in page] for page in pages] == [[1, 2], [4, 5], []]
    assert await waiting(stores, town, "bob") == [3, 6]  # and what waits still waits


@pytest.mark.req("Q6")
async def test_progress_says_in_short_what_receipts_say(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    await subscribe(stores, town, "news", "alice", "bob", "carol")
    await stores.accepts.accept(batch(town["alice"], post("1", "news"), post("2", "news"), dm("3", "bob")))
    await stores.deliveries.ack(town["bob"], [1, 3], NOW + 5)
    await stores.deliveries.ack(town["carol"], [1], NOW + 7)
    told = await stores.receipts.progress(town["alice"], ["1", "2", "3", "unknown"])
    full = await stores.receipts.receipts(town["alice"], ["1", "2", "3"], [])
    assert {one.client_message_id: (one.state, one.at, one.counts) for one in told} == {
        one.client_message_id: (one.state, one.at, one.counts) for one in full
    }
    assert (told[0].state, told[0].at, told[0].counts) == ("delivered", NOW + 7, {"delivered": 2})
    assert await stores.receipts.progress(town["bob"], ["1"]) == []
