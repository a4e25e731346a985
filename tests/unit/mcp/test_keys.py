"""Same key, same answer: also after a crash, and between processes that share the file."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from claudemesh.idempotency.model import Asked
from claudemesh.idempotency.stores.sqlite import SqliteKeyStore
from claudemesh.kernel.errors import DeadlineExceeded, IdempotencyConflict, InvalidRequest, NotFound
from claudemesh.kernel.write_errors import KeyInProgress, MarkLost
from claudemesh.mcp.keys import Call, Keys
from claudemesh.runtime.world import real_world

WITHIN_S = 20


class Answer(msgspec.Struct, frozen=True):
    number: int


class Effect:
    """Counts how often it happened."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> Answer:
        self.count += 1
        return Answer(self.count)


@pytest.fixture
async def keys(tmp_path: Path) -> AsyncIterator[Keys]:
    opened = Keys(lambda: tmp_path / "keys.db", real_world())
    yield opened
    await opened.aclose()


def call(key: str = "k1", tool: str = "claim", scope: str = "demo", **asked: object) -> Call:
    return Call(tool, scope, key, dict(asked))


@pytest.mark.req("C3")
async def test_a_call_with_the_same_key_is_answered_as_the_first_and_has_no_second_effect(keys: Keys) -> None:
    effect = Effect()
    assert await keys.once(call(source="queue:a"), Answer, effect) == (Answer(1), False)
    assert await keys.once(call(source="queue:a"), Answer, effect) == (Answer(1), True)
    assert await keys.once(call("k2", source="queue:a"), Answer, effect) == (Answer(2), False)
    assert await keys.once(call(scope="other", source="queue:a"), Answer, effect) == (Answer(3), False)


@pytest.mark.req("C3")
@pytest.mark.parametrize("other", [call(source="queue:b"), call(tool="complete", source="queue:a")])
async def test_the_same_key_for_another_call_is_refused_and_does_nothing(keys: Keys, other: Call) -> None:
    effect = Effect()
    await keys.once(call(source="queue:a"), Answer, effect)
    with pytest.raises(IdempotencyConflict) as refused:
        await keys.once(other, Answer, effect)
    assert (refused.value.code, refused.value.extras["conflict"]) == (
        "idempotency_key_reused",
        "settled_fingerprint_mismatch",
    )
    assert effect.count == 1


async def test_a_call_that_failed_leaves_its_key_free(keys: Keys) -> None:
    async def fail() -> Answer:
        raise NotFound

    with pytest.raises(NotFound):
        await keys.once(call(), Answer, fail)
    assert await keys.once(call(), Answer, Effect()) == (Answer(1), False)


@pytest.mark.req("C3")
@pytest.mark.parametrize("unknown", [DeadlineExceeded(), RuntimeError()])
async def test_a_call_of_which_nobody_knows_what_became_keeps_its_key_for_itself(
    keys: Keys, unknown: Exception
) -> None:
    async def fail() -> Answer:
        raise unknown

    with pytest.raises(type(unknown)):
        await keys.once(call(n=1), Answer, fail)
    effect = Effect()
    with pytest.raises(IdempotencyConflict):
        await keys.once(call(n=2), Answer, effect)
    assert await keys.once(call(n=1), Answer, effect) == (Answer(1), False)


@pytest.mark.req("C3")
async def test_of_two_processes_with_one_key_one_acts_and_the_other_is_told_to_ask_again(tmp_path: Path) -> None:
    first, second = (Keys(lambda: tmp_path / "keys.db", real_world()) for _ in range(2))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Answer:
        begun.set()
        await go_on.wait()
        return Answer(1)

    async with asyncio.timeout(WITHIN_S):
        running = asyncio.create_task(first.once(call(), Answer, slow))
        await begun.wait()
        with pytest.raises(KeyInProgress) as busy:
            await second.once(call(), Answer, Effect())
        assert busy.value.retry == "after"
        go_on.set()
        assert await running == (Answer(1), False)
        assert await second.once(call(), Answer, Effect()) == (Answer(1), True)
    await first.aclose()
    await second.aclose()


async def test_a_process_that_died_leaves_a_key_that_is_free_for_the_same_call_and_no_other(tmp_path: Path) -> None:
    world, path = real_world(), tmp_path / "keys.db"
    store = SqliteKeyStore.open(path, world)
    asked = call(n=1)
    dead = Asked(
        asked.scope, asked.key, "CALL", asked.tool, asked.fingerprint, world.clock.wall_ms(), 1 << 60, lease_ms=0
    )
    await store.begin(dead)
    await store.aclose()
    keys = Keys(lambda: path, world)
    with pytest.raises(IdempotencyConflict):
        await keys.once(call(n=2), Answer, Effect())
    assert await keys.once(asked, Answer, Effect()) == (Answer(1), False)
    await keys.aclose()


async def test_who_stood_still_for_too_long_is_told_that_another_took_over(tmp_path: Path) -> None:
    slow = Keys(lambda: tmp_path / "keys.db", real_world(), lease_ms=0)
    quick = Keys(lambda: tmp_path / "keys.db", real_world())

    async def stand_still() -> Answer:
        assert await quick.once(call(), Answer, Effect()) == (Answer(1), False)
        return Answer(99)

    with pytest.raises(MarkLost):
        await slow.once(call(), Answer, stand_still)
    assert await slow.once(call(), Answer, Effect()) == (Answer(1), True)
    await slow.aclose()
    await quick.aclose()


async def test_what_has_no_one_form_is_refused_before_the_key_is_used(keys: Keys) -> None:
    with pytest.raises(InvalidRequest):
        await keys.once(call(n=float("nan")), Answer, Effect())
    assert await keys.once(call(n=1), Answer, Effect()) == (Answer(1), False)


@pytest.mark.req("C3")
async def test_a_home_keeps_the_id_that_it_made_and_another_home_has_another(tmp_path: Path) -> None:
    first, second, other = (Keys(lambda name=name: tmp_path / name, real_world()) for name in ("a", "a", "b"))
    made = await asyncio.gather(*(keys.home_id() for keys in (first, second, other)))
    assert (made[0], made[0] != made[2]) == (made[1], True)
    for keys in (first, second, other):
        await keys.aclose()
    later = Keys(lambda: tmp_path / "a", real_world())
    assert await later.home_id() == made[0]
    await later.aclose()
