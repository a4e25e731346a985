"""What an accept promises: once for each id, all or nothing, in order, and each message by itself."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from claudemesh.broker.model import Accepted, AcceptOutcome, Duplicate, Message
from claudemesh.kernel.errors import (
    DestinationNotFound,
    IdempotencyConflict,
    IdRetired,
    MeshError,
    NotSubscribed,
    PredecessorDeferred,
)
from tests.contract.broker.backends import BOUND_S, NOW, House, batch, dm, job, post, settle, subscribe


def words(outcomes: list[AcceptOutcome]) -> list[object]:
    """Return each outcome in short: its history id, 'duplicate', or the error's code."""
    short: list[object] = []
    for outcome in outcomes:
        if isinstance(outcome, Accepted):
            short.append(outcome.history_id)
        else:
            short.append("duplicate" if isinstance(outcome, Duplicate) else outcome.code)
    return short


def same_as(first: Accepted) -> Duplicate:
    """Return what a retry is told."""
    return Duplicate(first.broker_message_id, first.history_id, history_available=True, first_seen_at=NOW)


async def together(house: House, *calls: Callable[[], Awaitable[object]]) -> list[object]:
    """Make the calls in this order, all before the first can be applied."""
    async with asyncio.timeout(BOUND_S):
        async with house.held():
            tasks = []
            for call in calls:
                tasks.append(asyncio.ensure_future(call()))
                await asyncio.sleep(0)
        return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.req("B3")
async def test_a_new_message_is_accepted_with_an_id_of_the_brokers_and_its_recipients(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    await subscribe(stores, town, "news", "alice", "bob", "carol")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    outcomes = await stores.accepts.accept(
        batch(town["alice"], dm("1", "bob"), post("2", "news"), job("3", "jobs"), dm("4", "alice"))
    )
    assert words(outcomes) == [1, 2, 3, 4]
    ids = {name: town[name].member_id for name in ("alice", "bob", "carol")}
    recipients = [set(outcome.recipients) for outcome in outcomes if isinstance(outcome, Accepted)]
    assert recipients == [{ids["bob"]}, {ids["bob"], ids["carol"]}, set(), {ids["alice"]}]
    assert len({outcome.broker_message_id for outcome in outcomes if isinstance(outcome, Accepted)}) == 4
    assert await stores.upkeep.check() == []


async def test_a_topic_without_other_subscribers_still_accepts(house: House) -> None:
    town = await settle(house.stores, "alice")
    await subscribe(house.stores, town, "news", "alice")
    assert words(await house.stores.accepts.accept(batch(town["alice"], post("1", "news")))) == [1]


@pytest.mark.req("B0", "B2")
async def test_the_same_id_again_is_a_duplicate_with_the_first_answer_or_a_conflict(house: House) -> None:
    accepts = house.stores.accepts
    town = await settle(house.stores, "alice", "bob")
    [first] = await accepts.accept(batch(town["alice"], dm("m", "bob", "one")))
    assert isinstance(first, Accepted)
    for later in (NOW, NOW + 86_400_000):
        [again] = await accepts.accept(batch(town["alice"], dm("m", "bob", "one"), now_ms=later))
        assert again == same_as(first)
    [other] = await accepts.accept(batch(town["alice"], dm("m", "bob", "two")))
    assert isinstance(other, IdempotencyConflict)
    assert other.conflict == "request_fingerprint_mismatch"
    assert other.fingerprint_prefix == dm("m", "bob", "two").fingerprint[:8].hex()
    standing = await accepts.standing(town["alice"].member_id, ["m", "unknown"])
    assert {id_: row.history_id for id_, row in standing.items()} == {"m": 1}


async def test_of_racing_sends_of_one_id_exactly_one_is_accepted(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    outcomes = await together(
        house,
        *(
            lambda body=body: house.stores.accepts.accept(batch(town["alice"], dm("m", "bob", body)))
            for body in ("one", "one", "two", "one")
        ),
    )
    assert [words(outcome)[0] for outcome in outcomes] == [1, "duplicate", "idempotency_key_reused", "duplicate"]


async def test_of_one_id_twice_in_a_batch_the_second_sees_the_first(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    same = [dm("m", "bob", "one"), dm("m", "bob", "one"), dm("m", "bob", "two"), dm("n", "bob")]
    outcomes = await house.stores.accepts.accept(batch(town["alice"], *same))
    assert words(outcomes) == [1, "duplicate", "idempotency_key_reused", 2]


@pytest.mark.req("B5")
async def test_an_id_that_was_refused_is_free_for_the_next_of_its_batch_and_keeps_the_order(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    messages = [dm("1", "nobody"), dm("2", "bob"), dm("1", "bob"), dm("3", "bob")]
    outcomes = await house.stores.accepts.accept(batch(town["alice"], *messages))
    assert words(outcomes) == ["destination_not_found", 1, 2, 3]
    assert await house.stores.upkeep.check() == []


@pytest.mark.req("B5")
async def test_one_id_over_and_over_in_a_batch_is_judged_each_time(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    messages = [dm("1", f"nobody-{number}") for number in range(200)]
    outcomes = await house.stores.accepts.accept(batch(town["alice"], *messages, dm("2", "bob")))
    assert words(outcomes) == ["destination_not_found"] * 200 + [1]
    assert await house.stores.upkeep.check() == []


@pytest.mark.req("F1")
async def test_two_members_may_use_the_same_id(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    assert words(await house.stores.accepts.accept(batch(town["alice"], dm("build-42", "bob", "a")))) == [1]
    assert words(await house.stores.accepts.accept(batch(town["bob"], dm("build-42", "alice", "b")))) == [2]
    assert words(await house.stores.accepts.accept(batch(town["alice"], dm("build-42", "bob", "a")))) == [
        "duplicate"
    ]


@pytest.mark.req("B2")
async def test_a_destination_that_is_not_there_leaves_no_row_and_the_id_free(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    wrong = [dm("1", "nobody"), post("2", "news"), job("3", "jobs"), dm("4", "bob")]
    outcomes = await stores.accepts.accept(batch(town["alice"], *wrong))
    assert [type(outcome) for outcome in outcomes[:3]] == [DestinationNotFound] * 3
    assert words(outcomes)[3] == 1  # no history id was lost on the others
    assert await stores.accepts.standing(town["alice"].member_id, ["1", "2", "3"]) == {}
    await subscribe(stores, town, "news", "alice")
    assert words(await stores.accepts.accept(batch(town["alice"], post("2", "news")))) == [2]


@pytest.mark.req("B2", "Q8")
async def test_only_subscribers_post_to_a_topic(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice")
    [outcome] = await stores.accepts.accept(batch(town["bob"], post("1", "news")))
    assert isinstance(outcome, NotSubscribed)
    await stores.topics.subscribe(town["bob"], "news")
    assert words(await stores.accepts.accept(batch(town["bob"], post("1", "news")))) == [1]
    await stores.topics.unsubscribe(town["bob"], "news", NOW)
    [again, fresh] = await stores.accepts.accept(batch(town["bob"], post("1", "news"), post("2", "news")))
    assert isinstance(again, Duplicate)  # what was accepted stays accepted
    assert isinstance(fresh, NotSubscribed)


async def test_a_member_of_another_mesh_is_not_there(house: House) -> None:
    here = await settle(house.stores, "alice")
    await settle(house.stores, "bob", slug="other")
    [outcome] = await house.stores.accepts.accept(batch(here["alice"], dm("1", "bob")))
    assert isinstance(outcome, DestinationNotFound)


@pytest.mark.req("B4")
async def test_history_ids_of_a_mesh_are_gapless_and_in_the_order_of_commits(house: House) -> None:
    stores = house.stores
    one, two = await settle(stores, "alice", "bob"), await settle(stores, "carol", "dave", slug="other")
    calls = []
    for number in range(30):
        town, sender, to = (one, "alice", "bob") if number % 3 else (two, "carol", "dave")
        refused = [dm(f"x{number}", "nobody")] if number % 2 else []
        messages = [dm(f"m{number}-{part}", to) for part in range(3)]
        calls.append(lambda t=town, s=sender, m=[*refused, *messages]: stores.accepts.accept(batch(t[s], *m)))
    given: dict[int, list[int]] = {0: [], 1: []}
    for number, outcomes in enumerate(await together(house, *calls)):
        found = [outcome.history_id for outcome in outcomes if isinstance(outcome, Accepted)]
        given[1 if number % 3 else 0] += found
    assert given == {0: [*range(1, 31)], 1: [*range(1, 61)]}
    assert await stores.upkeep.check() == []


def poisoned(id_: str, to: str) -> Message:
    """Return a message that no store can hold: nobody expects it to come this far."""
    return msgspec.structs.replace(dm(id_, to), sender_seq=2**70)


@pytest.mark.req("B5")
async def test_a_message_that_breaks_fails_alone_and_only_its_destination_waits(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    messages = [dm("1", "bob"), poisoned("2", "bob"), dm("3", "bob"), dm("4", "carol"), poisoned("5", "carol")]
    outcomes = await stores.accepts.accept(batch(town["alice"], *messages))
    assert words(outcomes) == [1, MeshError.code, PredecessorDeferred.code, 2, MeshError.code]
    mended = [dm(one.client_message_id, "bob" if number < 3 else "carol") for number, one in enumerate(messages)]
    again = await stores.accepts.accept(batch(town["alice"], *mended))
    assert words(again) == ["duplicate", 3, 4, "duplicate", 5]
    assert await stores.upkeep.check() == []


@pytest.mark.req("B5")
async def test_a_batch_that_breaks_costs_the_others_of_its_transaction_nothing(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    sends = [[dm("1", "bob"), dm("2", "bob")], [poisoned("bad", "bob")], [dm("3", "bob")]]
    calls = (lambda send=send: stores.accepts.accept(batch(town["alice"], *send)) for send in sends)
    first, broken, last = await together(house, *calls)
    assert isinstance(broken, Exception) or words(broken) == [MeshError.code]  # as a whole, or each by itself
    assert (words(first), words(last)) == ([1, 2], [3])
    assert await stores.upkeep.check() == []


@pytest.mark.req("D10")
async def test_a_retired_id_is_refused_for_ever_and_an_accepted_one_is_told(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    accepts, alice = stores.accepts, town["alice"]
    assert await accepts.retire(alice, "late", NOW, None) is None
    assert await accepts.retire(alice, "late", NOW, None) is None
    for body in ("hi", "other"):
        [outcome] = await accepts.accept(batch(alice, dm("late", "bob", body)))
        assert isinstance(outcome, IdRetired)
    [accepted] = await accepts.accept(batch(alice, dm("done", "bob")))
    assert isinstance(accepted, Accepted)
    told = await accepts.retire(alice, "done", NOW, None)
    assert told == same_as(accepted)
    assert words(await accepts.accept(batch(town["bob"], dm("late", "alice")))) == [2]  # another sender's id
    assert await stores.upkeep.check() == []


async def test_what_was_accepted_is_there_after_the_store_is_opened_again(house: House) -> None:
    town = await settle(house.stores, "alice", "bob")
    await house.stores.accepts.accept(batch(town["alice"], dm("1", "bob", "kept")))
    await house.reopen()
    assert words(await house.stores.accepts.accept(batch(town["alice"], dm("1", "bob", "kept")))) == ["duplicate"]
    assert words(await house.stores.accepts.accept(batch(town["alice"], dm("2", "bob")))) == [2]
