"""What every store of keys promises: one begins, the token fences, and what was settled stays."""

import asyncio

import pytest

from claudemesh.idempotency.model import Begun, Found, KeptResponse
from claudemesh.idempotency.ports import KeyStore
from claudemesh.kernel.idempotency import MarkState
from tests.contract.idempotency.backends import (
    BOUND_S,
    CREATED,
    EXPIRY_MS,
    LEASE_MS,
    NOW,
    House,
    ask,
    begin,
    settle,
)

pytestmark = pytest.mark.req("R1")

MANY = 12


async def ask_at_once(*stores: KeyStore) -> list[Begun | Found]:
    """Ask for one key from many places, all let go by one barrier."""
    barrier = asyncio.Barrier(MANY * len(stores))

    async def one(store: KeyStore) -> Begun | Found:
        await barrier.wait()
        return await store.begin(ask())

    async with asyncio.timeout(BOUND_S):
        return await asyncio.gather(*(one(store) for _ in range(MANY) for store in stores))


async def test_the_first_of_a_key_begins_and_the_second_finds_it_in_progress(house: House) -> None:
    assert (await begin(house.store)).claim.token == 1
    assert await house.store.begin(ask()) == Found(MarkState.IN_PROGRESS, ask().fingerprint, KeptResponse(0))


async def test_of_many_who_ask_at_once_exactly_one_begins(house: House) -> None:
    outcomes = await ask_at_once(house.store, await house.another())
    assert sum(isinstance(outcome, Begun) for outcome in outcomes) == 1


async def test_of_many_who_find_a_dead_workers_mark_exactly_one_takes_it_over(house: House) -> None:
    await begin(house.store)
    await house.pass_time(LEASE_MS)
    outcomes = await ask_at_once(house.store, await house.another())
    assert [outcome.claim.token for outcome in outcomes if isinstance(outcome, Begun)] == [2]


async def test_a_settled_key_gives_its_answer_as_it_was(house: House) -> None:
    assert await settle(await begin(house.store))
    await house.pass_time(10 * LEASE_MS)
    for store in (house.store, await house.another()):
        assert await store.begin(ask()) == Found(MarkState.SETTLED, ask().fingerprint, CREATED)


async def test_of_an_answer_that_is_not_kept_the_status_is(house: House) -> None:
    assert await settle(await begin(house.store), KeptResponse(201, CREATED.headers, b'{"password":"hunter2-x9"}'))
    expected = Found(MarkState.STATUS_ONLY, ask().fingerprint, KeptResponse(201))
    assert await house.store.begin(ask()) == expected


async def test_an_empty_answer_is_an_answer(house: House) -> None:
    await settle(await begin(house.store), KeptResponse(204))
    assert await house.store.begin(ask()) == Found(MarkState.SETTLED, ask().fingerprint, KeptResponse(204))


async def test_another_request_under_the_key_finds_what_stands_in_every_state(house: House) -> None:
    other = ask(body=b"[]")
    mark = await begin(house.store)
    assert isinstance(await house.store.begin(other), Found)
    await house.pass_time(LEASE_MS)  # a dead worker's write may have happened: the key is not free for another
    found = await house.store.begin(other)
    assert isinstance(found, Found)
    assert found.fingerprint == ask().fingerprint
    assert await settle(mark)
    assert isinstance(await house.store.begin(other), Found)


async def test_two_callers_may_use_the_same_key(house: House) -> None:
    assert await settle(await begin(house.store, caller="alice"))
    assert isinstance(await house.store.begin(ask(caller="bob", body=b"[]")), Begun)
    assert isinstance(await house.store.begin(ask(caller="")), Begun)
    assert isinstance(await house.store.begin(ask(caller="alice")), Found)


async def test_a_released_key_is_as_good_as_new_for_any_request(house: House) -> None:
    mark = await begin(house.store)
    assert await house.store.release(mark.claim)
    assert not await house.store.release(mark.claim)
    assert isinstance(await house.store.begin(ask(body=b"[]")), Begun)


async def test_a_settled_key_is_never_released_nor_renewed_nor_settled_again(house: House) -> None:
    mark = await begin(house.store)
    await settle(mark)
    assert not await house.store.release(mark.claim)
    assert not await house.store.renew(mark.claim, LEASE_MS)
    assert not await settle(mark, KeptResponse(200))
    assert await house.store.begin(ask()) == Found(MarkState.SETTLED, ask().fingerprint, CREATED)


async def test_a_mark_stands_until_the_last_millisecond_of_its_lease(house: House) -> None:
    await begin(house.store, lease_ms=60_000)
    await house.pass_time(30_000)  # a server's clock goes on by itself: far enough from the end
    assert isinstance(await house.store.begin(ask()), Found)
    await house.pass_time(30_000)
    assert isinstance(await house.store.begin(ask()), Begun)


async def test_a_worker_that_renews_keeps_its_mark(house: House) -> None:
    mark = await begin(house.store, lease_ms=60_000)
    for _ in range(3):
        await house.pass_time(40_000)
        assert await house.store.renew(mark.claim, 60_000)
    await house.pass_time(40_000)
    assert isinstance(await house.store.begin(ask()), Found)


async def test_a_mark_that_ran_out_and_that_nobody_took_is_still_its_workers(house: House) -> None:
    mark = await begin(house.store)
    await house.pass_time(10 * LEASE_MS)
    assert await house.store.renew(mark.claim, LEASE_MS)
    assert isinstance(await house.store.begin(ask()), Found)
    await house.pass_time(10 * LEASE_MS)
    assert await settle(mark)


async def test_a_worker_whose_mark_was_taken_over_changes_nothing_any_more(house: House) -> None:
    zombie = await begin(house.store)
    await house.pass_time(LEASE_MS)
    successor = await begin(house.store)
    assert successor.claim.token == zombie.claim.token + 1
    assert not await house.store.renew(zombie.claim, 100 * LEASE_MS)
    assert not await house.store.release(zombie.claim)
    assert not await settle(zombie, KeptResponse(200, (), b"zombie"))
    assert await settle(successor)
    found = await house.store.begin(ask())
    assert isinstance(found, Found)
    assert found.response == CREATED


async def test_a_worker_whose_successor_released_the_key_is_no_owner_of_the_next_mark(house: House) -> None:
    zombie = await begin(house.store)
    await house.pass_time(LEASE_MS)
    await house.store.release((await begin(house.store)).claim)
    assert not await settle(zombie)
    await begin(house.store)
    assert not await settle(zombie)
    assert not await house.store.release(zombie.claim)


# --- expiry ------------------------------------------------------------------------------------------


async def test_an_expired_key_is_free_for_any_request_and_counts_as_new(house: House) -> None:
    await settle(await begin(house.store))
    later = NOW + EXPIRY_MS
    assert isinstance(await house.store.begin(ask(now_ms=later - 1)), Found)
    assert isinstance(await house.store.begin(ask(body=b"[]", now_ms=later, expires_at=later + 1)), Begun)
    (row,) = await house.store.page()
    assert (row.state, row.status, row.first_seen, row.last_seen) == (MarkState.IN_PROGRESS, None, later, later)


async def test_a_key_that_a_worker_is_at_does_not_expire(house: House) -> None:
    mark = await begin(house.store, expires_at=NOW + 1, lease_ms=60_000)
    assert isinstance(await house.store.begin(ask(now_ms=NOW + 1)), Found)
    assert await house.store.sweep(NOW + 1) == 0
    await house.store.release(mark.claim)


async def test_a_sweep_forgets_what_expired_and_no_more_than_it_was_asked_to(house: House) -> None:
    for number in range(5):
        mark = await begin(house.store, f"k{number}", expires_at=NOW + number)
        await (settle(mark) if number % 2 else house.pass_time(LEASE_MS))
    assert await house.store.sweep(NOW + 3, limit=3) == 3
    assert await house.store.sweep(NOW + 3, limit=3) == 1
    assert await house.store.sweep(NOW + 3, limit=3) == 0
    assert [row.key for row in await house.store.page()] == ["k4"]


# --- what operators see ------------------------------------------------------------------------------


async def test_keys_are_listed_in_pages_with_who_asked_when_and_nothing_of_the_answer(house: House) -> None:
    for key in ("a", "b", "c"):
        await settle(await begin(house.store, key))
    await house.store.begin(ask("b", now_ms=NOW + 5))
    first = await house.store.page(limit=2)
    rest = await house.store.page(after=first[-1].seq, limit=2)
    assert [row.key for row in (*first, *rest)] == ["a", "b", "c"]
    asked = ("c", "b", "POST", "/tasks/", MarkState.SETTLED, 201, ask().fingerprint)
    assert first[1] == (first[1].seq, *asked, "host", "agent", NOW, NOW + 5, NOW + EXPIRY_MS)
    assert not any("t1" in repr(row) for row in (*first, *rest))


async def test_a_takeover_is_still_the_same_key(house: House) -> None:
    await begin(house.store)
    (before,) = await house.store.page()
    await house.pass_time(LEASE_MS)
    await begin(house.store, now_ms=NOW + 9)
    (after,) = await house.store.page()
    assert after == before._replace(last_seen=NOW + 9)


# --- in the transaction of the write -----------------------------------------------------------------


async def test_a_write_that_completes_its_key_is_there_together_with_its_answer(house: House) -> None:
    mark = await begin(house.store)
    assert await house.write(mark) == [None]
    assert mark.is_settled
    assert await house.written() == ["k"]
    assert await house.store.begin(ask()) == Found(MarkState.SETTLED, ask().fingerprint, CREATED)


async def test_a_write_that_rolls_back_takes_its_answer_with_it(house: House) -> None:
    mark = await begin(house.store)
    await house.write(mark, fails=True)
    assert await house.written() == []
    found = await house.store.begin(ask())
    assert isinstance(found, Found)
    assert found.state is MarkState.IN_PROGRESS
    assert await house.write(mark) == [None]  # and may be tried again under the same mark
    assert await house.written() == ["k"]


async def test_a_worker_whose_mark_was_taken_over_writes_nothing(house: House) -> None:
    zombie = await begin(house.store)
    await house.pass_time(LEASE_MS)
    successor = await begin(house.store)
    (lost,) = await house.write(zombie)
    assert lost is not None
    assert lost.code == "mark_lost"
    assert zombie.is_lost
    assert not zombie.is_settled
    assert await house.written() == []
    assert await house.write(successor) == [None]
    assert await house.written() == ["k"]


async def test_a_lost_mark_does_not_spoil_the_writes_that_share_its_commit(house: House) -> None:
    zombie = await begin(house.store, "lost")
    await house.pass_time(LEASE_MS)
    await settle(await begin(house.store, "lost"))
    before, after = await begin(house.store, "before"), await begin(house.store, "after")
    outcomes = await house.write(before, zombie, after)
    assert [outcome is None for outcome in outcomes] == [True, False, True]
    assert await house.written() == ["after", "before"]


async def test_of_a_worker_and_its_successor_at_once_one_writes(house: House) -> None:
    for number in range(5):
        key = f"k{number}"
        zombie = await begin(house.store, key)
        await house.pass_time(LEASE_MS)
        async with asyncio.timeout(BOUND_S):
            outcome, taken = await asyncio.gather(house.write(zombie), house.store.begin(ask(key)))
        assert (outcome == [None]) == isinstance(taken, Found)
        if isinstance(taken, Begun):
            assert zombie.is_lost
    assert len(await house.written()) == len(set(await house.written()))
