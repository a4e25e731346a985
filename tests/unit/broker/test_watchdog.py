"""Each connection is asked once an interval and ended when it does not answer; our own standstill is nobody's."""

from types import SimpleNamespace

import pytest

from claudemesh.broker.events import StoodStill, TaskFailed
from claudemesh.broker.presence import watchdog
from claudemesh.broker.presence.standstill import STANDSTILL_MS, Standstill
from claudemesh.broker.presence.watchdog import Watchdog
from claudemesh.kernel.rhythm import Rhythm, derive_rhythm
from claudemesh.runtime.observe import Observer
from tests.doubles import ManualClock

RHYTHM = Rhythm()
INTERVAL, STALE, TICK = RHYTHM.ping_interval_ms, RHYTHM.stale_pong_ms, RHYTHM.tick_ms


class Enough(Exception):
    """The time of a test is over."""


class Peer:
    """A connection that answers when it is asked, or does not; instants are counted from its beginning."""

    def __init__(self, clock: ManualClock, *, answers: bool = True) -> None:
        self._clock = clock
        self._began_ms = self.heard_ms = clock.monotonic_ms()
        self.answers = answers
        self.is_broken = False
        self.asked: list[int] = []
        self.cuts: list[int] = []

    @property
    def now_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms

    def silent_ms(self) -> int:
        return self._clock.monotonic_ms() - self.heard_ms

    def renew(self) -> None:
        self.asked.append(self.now_ms)
        if self.is_broken:
            raise RuntimeError
        if self.answers:
            self.heard_ms = self._clock.monotonic_ms()

    def cut(self) -> None:
        self.cuts.append(self.now_ms)


class Kennel:
    """A watchdog whose sleep turns the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rhythm: Rhythm = RHYTHM) -> None:
        self.clock = ManualClock()
        self.rhythm = rhythm
        self.events: list[object] = []
        self.rolls: list[float] = []
        observer = Observer()
        observer.subscribe(object, self.events.append)
        self.stood_still: list[int] = []
        standstill = Standstill(self.clock, rhythm.tick_ms, self.stood_still.append, observer)
        self.dog = Watchdog(
            rhythm, self.clock, standstill, lambda: self.rolls.pop() if self.rolls else 0.0, observer
        )
        self._until_ms = 0
        self.late_ms = 0  # by how much the next sleep is longer than it should be
        monkeypatch.setattr(watchdog, "asyncio", SimpleNamespace(sleep=self._sleep))

    async def _sleep(self, seconds: float) -> None:
        if self.clock.monotonic_ms() >= self._until_ms:
            raise Enough
        self.clock.advance(round(seconds * 1_000) + self.late_ms)
        self.late_ms = 0

    def peer(self, roll: float = 0.0, *, answers: bool = True) -> Peer:
        self.rolls.append(roll)
        peer = Peer(self.clock, answers=answers)
        self.dog.watch(peer)
        return peer

    async def pass_time(self, ms: int, late_ms: int = 0) -> None:
        """Let it look on for this long; its first sleep may take longer."""
        self._until_ms = self.clock.monotonic_ms() + ms + late_ms
        self.late_ms = late_ms
        with pytest.raises(Enough):
            await self.dog.run()


@pytest.mark.req("P7")
async def test_whoever_answers_is_asked_once_an_interval_and_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    kennel = Kennel(monkeypatch)
    peers = [kennel.peer(number / 40) for number in range(40)]
    await kennel.pass_time(20 * INTERVAL)
    for peer in peers:
        assert peer.cuts == []
        gaps = [later - earlier for earlier, later in zip(peer.asked, peer.asked[1:], strict=False)]
        assert len(gaps) >= 18
        assert all(INTERVAL <= gap < INTERVAL + TICK for gap in gaps)


@pytest.mark.req("P7")
async def test_those_who_came_together_are_not_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    kennel = Kennel(monkeypatch)
    peers = [kennel.peer(number / 30) for number in range(30)]
    await kennel.pass_time(INTERVAL)
    first = [peer.asked[0] for peer in peers]
    assert first == sorted(first, reverse=True)
    assert len(set(first)) == INTERVAL // 2 // TICK, "each look has its share of half an interval"
    assert INTERVAL // 2 <= min(first) <= max(first) == INTERVAL


@pytest.mark.req("P7", "P12")
@pytest.mark.parametrize(
    "rhythm", [RHYTHM, derive_rhythm(6_000, 2_000, 5_000), derive_rhythm(2_000, 30_000, 75_000)], ids=str
)
@pytest.mark.parametrize("roll", [0.0, 0.5, 0.999])
async def test_whoever_falls_silent_is_cut_once_within_a_look_of_the_threshold_and_was_asked_before(
    monkeypatch: pytest.MonkeyPatch, rhythm: Rhythm, roll: float
) -> None:
    kennel = Kennel(monkeypatch, rhythm)
    silent, well = kennel.peer(roll, answers=False), kennel.peer(roll)
    await kennel.pass_time(10 * rhythm.lease_ttl_ms)
    [cut_ms] = silent.cuts
    assert rhythm.stale_pong_ms <= cut_ms < rhythm.stale_pong_ms + rhythm.tick_ms
    assert cut_ms < rhythm.stale_pong_ms + rhythm.ping_interval_ms, "right within one interval"
    assert 1 <= len(silent.asked) <= rhythm.stale_pong_ms // rhythm.ping_interval_ms + 1
    assert max(silent.asked) < cut_ms
    assert well.cuts == []


@pytest.mark.req("P7")
async def test_a_threshold_beyond_the_lease_cuts_with_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    kennel = Kennel(monkeypatch, derive_rhythm(10_000, 4_000, 10**9))
    silent = kennel.peer(answers=False)
    await kennel.pass_time(20_000)
    assert silent.cuts == [10_000]


@pytest.mark.req("P1", "P7")
async def test_a_sign_of_life_at_the_last_moment_is_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kennel = Kennel(monkeypatch)
    peer = kennel.peer(answers=False)
    await kennel.pass_time(STALE - TICK)
    assert peer.cuts == []
    peer.heard_ms = kennel.clock.monotonic_ms()
    await kennel.pass_time(STALE - TICK)
    assert peer.cuts == []
    await kennel.pass_time(TICK)
    assert len(peer.cuts) == 1


@pytest.mark.req("P7", "P9")
@pytest.mark.parametrize("still_ms", [STANDSTILL_MS + 1, STALE, 3_600_000])
async def test_after_we_stood_still_nobody_is_cut_and_every_silence_begins_anew(
    monkeypatch: pytest.MonkeyPatch, still_ms: int
) -> None:
    kennel = Kennel(monkeypatch)
    silent = kennel.peer(answers=False)
    await kennel.pass_time(STALE - TICK)
    await kennel.pass_time(TICK, late_ms=still_ms)
    assert silent.cuts == []
    assert kennel.events == [StoodStill(still_ms)]
    assert kennel.stood_still == [still_ms]
    woke_ms = silent.now_ms
    assert kennel.dog.bound(silent.silent_ms()) == 0
    await kennel.pass_time(2 * STALE)
    [cut_ms] = silent.cuts
    assert woke_ms + STALE <= cut_ms < woke_ms + STALE + TICK
    assert kennel.dog.bound(silent.silent_ms()) <= 2 * STALE


@pytest.mark.req("P7")
async def test_a_look_that_is_a_little_late_is_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    kennel = Kennel(monkeypatch)
    silent = kennel.peer(answers=False)
    await kennel.pass_time(STALE - TICK - STANDSTILL_MS)
    await kennel.pass_time(TICK, late_ms=STANDSTILL_MS)
    assert (silent.cuts, kennel.events) == ([STALE], [])


@pytest.mark.req("P7")
async def test_whoever_left_is_neither_asked_nor_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    kennel = Kennel(monkeypatch)
    left, stays = kennel.peer(answers=False), kennel.peer()
    kennel.dog.forget(left)
    kennel.dog.forget(left)
    await kennel.pass_time(2 * STALE)
    assert (left.asked, left.cuts) == ([], [])
    assert stays.asked


@pytest.mark.req("P7")
async def test_one_that_cannot_be_asked_takes_nobody_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kennel = Kennel(monkeypatch)
    broken, well, silent = kennel.peer(), kennel.peer(), kennel.peer(answers=False)
    broken.is_broken = True
    await kennel.pass_time(4 * INTERVAL)
    assert len(well.asked) >= 3
    assert (len(silent.cuts), len(broken.cuts)) == (1, 1)
    failed = [event for event in kennel.events if isinstance(event, TaskFailed)]
    assert len(failed) == len(broken.asked) > 0


def test_a_silence_is_bounded_by_how_long_we_listened() -> None:
    clock = ManualClock()
    standstill = Standstill(clock, RHYTHM.tick_ms, lambda _: None, Observer())
    dog = Watchdog(RHYTHM, clock, standstill, lambda: 0.0, Observer())
    assert dog.bound(10**9) == 0
    clock.advance(7_000)
    assert [dog.bound(silent_ms) for silent_ms in (0, 6_999, 7_000, 10**9)] == [0, 6_999, 7_000, 7_000]
