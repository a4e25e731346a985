"""How much a member may send in a window, over every limiter."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from claudemesh.broker.ports import Limiter
from tests.contract.broker.limiters import LIMITERS
from tests.doubles import ManualClock

WINDOW_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    turned = ManualClock()
    turned.monotonic = 10 * WINDOW_MS
    return turned


@pytest.fixture(params=LIMITERS)
async def limiter(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Limiter]:
    async with aclosing(LIMITERS[request.param](request, clock, WINDOW_MS)) as opened:
        yield opened


@pytest.mark.req("B1")
async def test_a_budget_is_taken_once_for_each_id_and_refused_beyond(limiter: Limiter, clock: ManualClock) -> None:
    assert await limiter.consume("m", "a", ["a", "b", "a"], 2) == [None, None, None]
    clock.advance(15_000)
    assert await limiter.consume("m", "a", ["c", "a", "b", "d"], 2) == [45_000, None, None, 45_000]


@pytest.mark.req("B1")
async def test_a_refused_attempt_takes_nothing(limiter: Limiter) -> None:
    assert await limiter.consume("m", "a", ["a"], 1) == [None]
    for _ in range(5):
        assert await limiter.consume("m", "a", ["b"], 1) != [None]
    assert await limiter.consume("m", "a", ["b"], 2) == [None]  # a larger budget has room for just one more
    assert await limiter.consume("m", "a", ["c"], 2) != [None]


@pytest.mark.req("B1")
async def test_members_and_meshes_have_budgets_of_their_own(limiter: Limiter) -> None:
    for mesh, sender in (("m", "a"), ("m", "b"), ("n", "a")):
        assert await limiter.consume(mesh, sender, [f"the first of {mesh} {sender}"], 1) == [None]
        assert await limiter.consume(mesh, sender, ["one more"], 1) != [None]


@pytest.mark.req("B1")
async def test_a_new_window_begins_with_a_full_budget(limiter: Limiter, clock: ManualClock) -> None:
    for window in range(5):
        ids = [f"{window}-{n}" for n in range(100)]
        assert await limiter.consume("m", "a", ids, 100) == [None] * 100
        assert await limiter.consume("m", "a", ["one more"], 100) != [None]
        clock.advance(WINDOW_MS)


@pytest.mark.req("F6")
async def test_a_step_of_the_wall_clock_opens_no_window(limiter: Limiter, clock: ManualClock) -> None:
    await limiter.consume("m", "a", ["a"], 1)
    clock.wall += 86_400_000
    assert await limiter.consume("m", "a", ["b"], 1) != [None]
