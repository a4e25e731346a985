"""Presence when brokers die, stand still or are told another time, and when all come back at once."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed, WebSocketException

from tests.chaos.mesh import ROOT
from tests.chaos.presence import LATE_S, Times, Watch, until
from tests.chaos.presence_clients import Comer, Crowd
from tests.chaos.presence_line import Line, is_resumed, subject_of
from tests.chaos.presence_nodes import BROKER_LEASE_S, Paced, Village, WallClock, village
from tests.conftest import EFFORTS
from tests.integration.broker_client import Peer
from tests.services.postgres import private_postgres, wheel

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

QUICK = Times(lease_s=3.0, ping_s=0.5, stale_s=1.5, nap_s=2.0, coma_s=6.0)
QUICKEST = Times(lease_s=2.0, ping_s=0.4, stale_s=1.2, nap_s=1.5, coma_s=4.5)
UNHURRIED = Times(lease_s=8.0, ping_s=0.5, stale_s=3.0, nap_s=5.0, coma_s=15.0)
JOINED, LEFT = "peer_joined", "peer_left"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# Where the broker's clock and a daemon's are set while the daemon is cut off.
JUMPS = ((HOUR_MS, 0), (-HOUR_MS, HOUR_MS), (DAY_MS, -HOUR_MS), (-DAY_MS, DAY_MS), (0, -DAY_MS))


def rounds(effort: int) -> int:
    return {EFFORTS["ci"]: 1, EFFORTS["chaos"]: 3}.get(effort, 10)


def is_thorough(effort: int) -> bool:
    return effort > EFFORTS["ci"]


def seen(watch: Watch, crowd: Crowd) -> dict[str, list[str]]:
    """Return what was seen of each of them."""
    found: dict[str, list[str]] = {key: [] for key in crowd.keys}
    for one in watch.all:
        if one.session_pubkey in found:
            found[one.session_pubkey].append(one.what)
    return found


def counts(watch: Watch, crowd: Crowd, what: str) -> int:
    return sum(one.count(what) for one in seen(watch, crowd).values())


# --- two brokers on one database --------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def twins(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Village]:
    """Have two brokers, with alice's daemon at the first and bob's at the second."""
    with private_postgres(wheel()) as postgres:
        async with village(tmp_path_factory.mktemp("twins"), QUICK, postgres.dsn) as made:
            first = await made.open_broker()
            await made.enrol("alice", "bob", "crowd")
            await made.open_daemon("alice", first)
            await made.open_daemon("bob", await made.open_broker())
            yield made


@pytest.mark.req("P5", "P9")
async def test_of_two_brokers_one_announces_each_of_many_departures_once(twins: Village, effort: int) -> None:
    count = 200 if is_thorough(effort) else 50
    await twins.until_connected("alice")
    async with twins.watch("alice").opened() as one, twins.watch("bob").opened() as other:
        for _ in range(rounds(effort)):
            crowd = Crowd([Comer(twins.peer("crowd", twins.urls[number % 2])) for number in range(count)])
            async with crowd.coming():
                await crowd.leave(crowd.comers)
            for watch in (one, other):
                await watch.until(lambda watch=watch, crowd=crowd: counts(watch, crowd, LEFT) == count)  # type: ignore[misc]
            await twins.settled(one, other)
            for watch in (one, other):
                assert seen(watch, crowd) == {key: [JOINED, LEFT] for key in crowd.keys}
            assert crowd.refused == []


@pytest.mark.req("P3", "P9")
async def test_the_sessions_of_a_killed_broker_have_a_whole_lease_to_come_back_to_the_other(
    twins: Village, effort: int
) -> None:
    for turn in range(rounds(effort)):
        await twins.until_connected("alice")
        await lose_a_broker(twins, is_killed=turn % 2 == 0)


async def lose_a_broker(twins: Village, *, is_killed: bool) -> None:
    """Kill the first broker, or have it stand still until it is taken for dead, and then come back."""
    broker, (first, second) = twins.brokers[0], twins.urls
    async with Line(first).opened() as line, twins.watch("bob").opened() as watch:
        crowd = Crowd([Comer(twins.peer("crowd", line.url)) for _ in range(30)])
        back, gone = Crowd(crowd.comers[:15]), Crowd(crowd.comers[15:])
        async with crowd.coming():
            await watch.until(lambda: counts(watch, crowd, JOINED) == len(crowd.comers))
            broker.send(signal.SIGKILL if is_killed else signal.SIGSTOP)
            lost_s = time.monotonic()
            for comer in back.comers:
                comer.move(twins.peer("crowd", second).broker)
            line.cut()
            await crowd.leave(gone.comers)
            try:
                await watch.until(lambda: counts(watch, crowd, LEFT) == len(gone.comers))
            finally:
                if is_killed:
                    await broker.stop()
                    await broker.start()
                else:
                    broker.send(signal.SIGCONT)
            left = [one.at_s - lost_s for one in watch.all if one.what == LEFT and one.session_pubkey in gone.keys]
            assert min(left) >= QUICK.lease_s
            assert max(left) < 2 * BROKER_LEASE_S + QUICK.lease_s + LATE_S
            await back.all_there()
            await twins.settled(watch)
            assert seen(watch, back) == {key: [JOINED] for key in back.keys}
            assert seen(watch, gone) == {key: [JOINED, LEFT] for key in gone.keys}
            assert all(comer.resumed[-1] for comer in back.comers)
            assert crowd.refused == []


# --- a broker that is away for a while ---------------------------------------------------------------------


@pytest.mark.req("P1", "P3", "P9")
async def test_nobody_is_missed_because_the_broker_itself_stood_still_or_was_killed_and_started_again(
    tmp_path: Path, effort: int
) -> None:
    folders = [tmp_path / name for name in ("still", "anew")]
    for folder in folders:
        folder.mkdir()

    async def stand_still(broker: Paced) -> float:
        broker.send(signal.SIGSTOP)
        await asyncio.sleep(QUICKEST.coma_s)
        here_again_s = time.monotonic()
        broker.send(signal.SIGCONT)
        return here_again_s

    async def start_anew(broker: Paced) -> float:
        await broker.stop(signal.SIGKILL)
        here_again_s = time.monotonic()
        await broker.start()
        return here_again_s

    async with asyncio.TaskGroup() as group:  # they wait most of the time: at once
        group.create_task(be_away(folders[0], QUICKEST, stand_still, rounds(effort)))
        group.create_task(be_away(folders[1], UNHURRIED, start_anew, rounds(effort)))


async def be_away(
    folder: Path, times: Times, away: Callable[[Paced], Coroutine[Any, Any, float]], turns: int
) -> None:
    """Have a broker be away; of twenty who were there some know at once, and a few do not come back."""
    async with village(folder, times) as made:
        url = await made.open_broker()
        await made.enrol("alice", "crowd")
        await made.open_daemon("alice", url)
        async with Line(url).opened() as line, made.watch("alice").opened() as watch:
            peers = [made.peer("crowd", line.url if number % 2 else url) for number in range(20)]
            crowd = Crowd([Comer(peer) for peer in peers])
            gone, back = Crowd(crowd.comers[:4]), Crowd(crowd.comers[4:])
            async with crowd.coming():
                await watch.until(lambda: counts(watch, crowd, JOINED) == 20)
                for turn in range(turns):
                    being_away = asyncio.create_task(away(made.brokers[0]))
                    await asyncio.sleep(0)
                    line.cut()
                    if turn == 0:
                        await crowd.leave(gone.comers)
                    here_again_s = await being_away
                    await back.all_there()
                    await made.until_connected("alice")
                    await watch.until(lambda: counts(watch, crowd, LEFT) == len(gone.comers))
                    if turn == 0:
                        left = [
                            one.at_s - here_again_s
                            for one in watch.all
                            if one.what == LEFT and one.session_pubkey in gone.keys
                        ]
                        assert min(left) > times.lease_s - times.ping_s
                    await made.settled(watch)
                    assert seen(watch, back) == {key: [JOINED] for key in back.keys}
                    assert seen(watch, gone) == {key: [JOINED, LEFT] for key in gone.keys}
                    assert crowd.refused == []


# --- clocks that jump --------------------------------------------------------------------------------------


@pytest.mark.req("P1", "P4", "P9", "P10")
async def test_a_wall_clock_that_jumps_ends_no_lease_prolongs_none_and_refuses_no_hello(
    tmp_path: Path, effort: int
) -> None:
    clocks = {name: WallClock(tmp_path / f"{name}.clock") for name in ("broker", "bob")}
    async with village(tmp_path, QUICK) as made:
        url = await made.open_broker(**clocks["broker"].environment)
        await made.enrol("alice", "bob", "crowd")
        await made.open_daemon("alice", url)
        async with Line(url).opened() as line, made.watch("alice").opened() as watch:
            await made.open_daemon("bob", line.url, **clocks["bob"].environment)
            crowd = Crowd([Comer(made.peer("crowd", line.url)) for _ in range(5)])
            bob, returns = made.peer("bob"), Returns(line, made.peer("bob").keys.pubkey)
            await returns.next()
            async with crowd.coming():
                await watch.until(lambda: counts(watch, crowd, JOINED) == 5)
                for of_broker_ms, of_bob_ms in JUMPS * rounds(effort):
                    bobs = made.daemons["bob"]
                    bobs.send(signal.SIGSTOP)
                    line.cut()
                    clocks["broker"].set(of_broker_ms)
                    clocks["bob"].set(of_bob_ms)
                    bobs.send(signal.SIGCONT)
                    await returns.next()
                    await returns.renewed()
                await crowd.all_there()
                await made.settled(watch)
                assert seen(watch, crowd) == {key: [JOINED] for key in crowd.keys}
                assert watch.of("bob") == [JOINED]
                assert [one for one in line.told if one["type"] == "error"] == []
                acks = [ack for ack in line.acks() if ack["memberId"] == bob.membership.member_id]
                assert [is_resumed(ack) for ack in acks] == [False, *[True] * (len(acks) - 1)]
                assert crowd.refused == []
                clocks["broker"].set(-DAY_MS)  # nor does anybody stay for longer
                left_at = time.monotonic()
                await crowd.leave(crowd.comers)
                await watch.until(lambda: counts(watch, crowd, LEFT) == 5)
                assert time.monotonic() - left_at < QUICK.lease_s + QUICK.ping_s + LATE_S
            await made.settled(watch)
            assert seen(watch, crowd) == {key: [JOINED, LEFT] for key in crowd.keys}


class Returns:
    """What passes over the line of somebody who comes back again and again."""

    def __init__(self, line: Line, pubkey: str) -> None:
        self._line = line
        self._pubkey = pubkey
        self._hellos = 0

    async def next(self) -> None:
        """Return when it is back and has taken in what it was told: it asks what it missed."""
        await until(self._is_back)
        self._hellos = len(self._places())

    async def renewed(self) -> None:
        """Return when its lease was renewed, and the token with it: by then the connection counts."""
        before = len(self._line.told)
        await until(lambda: any(map(self._is_renewal, self._line.told[before:])))

    def _is_renewal(self, told: dict[str, Any]) -> bool:
        return told["type"] == "lease_renewed" and subject_of(told["resumeToken"]) == self._pubkey

    def _places(self) -> list[int]:
        said = self._line.said
        return [at for at, one in enumerate(said) if one.get("memberPubkey") == self._pubkey]

    def _is_back(self) -> bool:
        places = self._places()
        return len(places) > self._hellos and any(one["type"] == "call" for one in self._line.said[places[-1] :])


# --- all at once ---------------------------------------------------------------------------------------------

MESSAGES_BEFORE = 100
PATIENT = Times(lease_s=30.0, ping_s=2.0, stale_s=10.0, nap_s=10.0, coma_s=60.0)


class Sending:
    """What somebody is told who sends one message after the other from a process of its own."""

    def __init__(self) -> None:
        self.at_s: list[float] = []  # of each answer
        self.statuses: dict[str, int] = {}
        self.delivered: set[str] = set()

    def rate(self, since_s: float, until_s: float) -> float:
        return sum(since_s <= at_s < until_s for at_s in self.at_s) / (until_s - since_s)

    @asynccontextmanager
    async def going(self, place: Path, url: str, to: str) -> AsyncIterator["Sending"]:
        command = (sys.executable, "-m", "tests.chaos.presence_sender", str(place), url, to)
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        listening = asyncio.create_task(self._listen(process.stdout))
        try:
            yield self
            assert process.returncode is None, "it ended by itself"
        finally:
            process.kill()
            await process.wait()
            await listening  # to the end of what it said

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        while line := (await stream.readline()).decode():
            what, key, *answer = line.split()
            if what == "sent":
                self.at_s.append(float(answer[1]))
                self.statuses[key] = int(answer[0])
            else:
                self.delivered.add(key)


async def read(peer: Peer, got: list[str]) -> None:
    """Take in what comes, acknowledge it, and come back whenever that ends."""
    while True:
        with suppress(ConnectionClosed, WebSocketException, OSError, TimeoutError):
            async with peer.connected() as wire:
                while True:
                    items = await wire.deliveries(1)
                    got += [item.client_message_id for item in items]
                    await wire.acknowledge(items)
        await asyncio.sleep(0.1)


@pytest.mark.req("P3", "P4", "Q5")
async def test_when_all_are_cut_off_at_once_all_come_back_unnoticed_and_others_go_on_sending(
    tmp_path: Path, effort: int
) -> None:
    count = 500 if is_thorough(effort) else 200
    async with village(tmp_path, PATIENT) as made:
        url = await made.open_broker()
        await made.enrol("alice", "crowd", "sender", "reader")
        await made.open_daemon("alice", url)
        sending, got = Sending(), list[str]()
        async with (
            Line(url).opened() as line,
            made.watch("alice").opened() as watch,
            Crowd([Comer(made.peer("crowd", line.url)) for _ in range(count)]).coming() as crowd,
        ):
            reader = made.peer("reader", line.url)
            reading = asyncio.create_task(read(reader, got))
            async with sending.going(made.places["sender"], url, reader.keys.pubkey):
                await until(lambda: bool(sending.at_s))
                began_s = time.monotonic()
                await until(lambda: len(sending.delivered) >= MESSAGES_BEFORE)
                calm = [(began_s, time.monotonic())]
                busy, herds = [], []
                for _ in range(rounds(effort)):
                    herds.append(({*sending.delivered}, len(got)))
                    line.cut()
                    cut_s = time.monotonic()
                    await crowd.all_away()
                    await crowd.all_there()
                    busy.append((cut_s, time.monotonic()))
            assert {*sending.statuses.values()} == {201}
            await until(lambda: {*got} >= {*sending.statuses})
            reading.cancel()
            for acknowledged, before in herds:
                assert not acknowledged & {*got[before:]}, "what was acknowledged came again"
            assert crowd.refused == []
            await made.settled(watch)
            assert seen(watch, crowd) == {key: [JOINED] for key in crowd.keys}
            before, *during = (sending.rate(*window) for window in calm + busy)
            ratios = ", ".join(f"{rate:.0f} ({rate / before:.2f})" for rate in during)
            print(f"accepted a second: {before:.0f} before, during: {ratios}")  # noqa: T201  a figure, not a promise
