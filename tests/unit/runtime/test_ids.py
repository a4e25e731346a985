"""Ids of one process grow, over all its threads and whatever its clock does."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from claudemesh.kernel.clock import Clock
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource


class SteppingClock(Clock):
    """A wall clock that jumps about."""

    def __init__(self, instants: list[int]) -> None:
        self._instants = iter(instants)

    def wall_ms(self) -> int:
        return next(self._instants)

    def monotonic_ms(self) -> int:
        raise NotImplementedError


@pytest.mark.req("F4")
def test_ids_grow_when_the_clock_steps_back_an_hour() -> None:
    instants = [5_000_000, 5_000_000, 1_400_000, 1_400_001, 0, 5_000_001]
    source = UlidSource(SteppingClock(instants))
    given = [source.ulid() for _ in instants]
    assert all(earlier < later for earlier, later in pairwise(given))


@pytest.mark.req("F4")
def test_ids_of_many_threads_are_all_different_and_each_thread_sees_them_grow() -> None:
    source = UlidSource(SystemClock())
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [source.ulid() for _ in range(500)], range(8)))
    assert len({ulid for batch in batches for ulid in batch}) == 4_000
    assert all(batch == sorted(batch) for batch in batches)


@pytest.mark.req("F4")
def test_two_threads_never_step_from_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thread is held while it asks the time; the second must wait for it, and not overtake it."""
    asked, overtaken = threading.Event(), threading.Event()

    class HeldClock(SteppingClock):
        def wall_ms(self) -> int:
            if not asked.is_set():
                asked.set()
                overtaken.wait(0.3)  # with the lock nobody can: the bound is what ends it
            return 1_000

    # From the same last id the second, which would draw first, would get the smaller one. The last is drawn first.
    entropy = b"".join(number.to_bytes(10) for number in (2**79, 1))
    monkeypatch.setattr(os, "urandom", lambda size: entropy.rjust(size, b"\0"))
    source = UlidSource(HeldClock([]))

    def second() -> str:
        assert asked.wait(30)
        ulid = source.ulid()
        overtaken.set()
        return ulid

    with ThreadPoolExecutor(2) as pool:
        late, early = pool.submit(second), pool.submit(source.ulid)
        assert early.result(30) < late.result(30)


@pytest.mark.req("F4")
def test_a_forked_child_does_not_give_its_parents_next_ids() -> None:
    class FrozenClock(SteppingClock):
        def wall_ms(self) -> int:
            return 1_000

    source = UlidSource(FrozenClock([]))
    source.ulid()  # the draw is there
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, source.ulid().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100).decode() != source.ulid()
    os.close(reading)
    os.close(writing)


def test_the_system_clock_counts_milliseconds_and_its_monotonic_side_never_goes_back() -> None:
    clock = SystemClock()
    assert clock.wall_ms() > 1_700_000_000_000
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first
