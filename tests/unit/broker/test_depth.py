"""How much waits is counted as often as somebody asks, as long as that is cheap."""

import asyncio

import pytest

from claudemesh.broker import depth as depths
from claudemesh.broker.depth import Depth
from claudemesh.kernel.errors import StoreUnavailable
from tests.doubles import ManualClock


class Slow:
    """A store in which counting takes a while."""

    def __init__(self, clock: ManualClock, takes_ms: int) -> None:
        self.clock, self.takes_ms, self.counts, self.is_away = clock, takes_ms, 0, False

    async def depth(self) -> int:
        if self.is_away:
            raise StoreUnavailable
        self.counts += 1
        self.clock.advance(self.takes_ms)
        await asyncio.sleep(0)
        return self.counts


async def test_a_count_that_took_long_is_told_again_for_ten_times_as_long() -> None:
    store = Slow(ManualClock(), takes_ms=50)
    depth = Depth(store, store.clock)  # type: ignore[arg-type]
    assert await asyncio.gather(*(depth.count() for _ in range(20))) == [1] * 20
    store.clock.advance(499)
    assert await depth.count() == 1
    store.clock.advance(1)
    assert await depth.count() == 2


async def test_a_count_that_took_no_time_is_made_anew_each_time() -> None:
    store = Slow(ManualClock(), takes_ms=0)
    depth = Depth(store, store.clock)  # type: ignore[arg-type]
    assert [await depth.count() for _ in range(3)] == [1, 2, 3]


async def test_a_store_that_does_not_answer_is_told_and_asked_again() -> None:
    store = Slow(ManualClock(), takes_ms=0)
    store.is_away = True
    depth = Depth(store, store.clock)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        await depth.count()
    store.is_away = False
    assert await depth.count() == 1


async def test_whoever_asks_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depths, "PATIENCE_S", 0.01)
    answered = asyncio.Event()

    class Hanging:
        async def depth(self) -> int:
            await answered.wait()
            return 7

    depth = Depth(Hanging(), ManualClock())  # type: ignore[arg-type]
    answers = await asyncio.gather(*(depth.count() for _ in range(5)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    answered.set()
    assert await depth.count() == 7
