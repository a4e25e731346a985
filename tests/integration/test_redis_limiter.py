"""The limiter on a real Redis: what brokers share, what is left behind, and every way in which it can be away."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import redis

from claudemesh.broker.limiters.redis import RedisLimiter
from claudemesh.kernel.errors import LimiterUnavailable
from tests.services.redis import Redis, private_redis

WITHIN_S = 15
WINDOW_MS = 10**12  # the next one begins in 2033


@pytest.fixture
def server() -> Iterator[Redis]:
    with private_redis() as own:
        yield own


@pytest.fixture
def client(server: Redis) -> Iterator["redis.Redis[str]"]:
    with redis.Redis.from_url(server.url, decode_responses=True) as opened:
        yield opened


@asynccontextmanager
async def limiter(url: str, window_ms: int = WINDOW_MS) -> AsyncIterator[RedisLimiter]:
    async with aclosing(RedisLimiter(url, window_ms)) as opened:
        yield opened


async def take(one: RedisLimiter, *ids: str, limit: int = 2, mesh: str = "m") -> list[bool]:
    """Say of each id whether there was budget for it."""
    async with asyncio.timeout(WITHIN_S):
        return [wait is None for wait in await one.consume(mesh, "a", ids, limit)]


# --- what brokers share ------------------------------------------------------------------------------------


@pytest.mark.req("B1")
async def test_brokers_on_one_redis_share_the_budget_of_a_member(server: Redis) -> None:
    async with limiter(server.url) as here, limiter(server.tcp_url) as there:
        assert await take(here, "1") == [True]
        assert await take(there, "1", "2", "3") == [True, True, False]
        assert await take(here, "3", "2", "1") == [False, True, True]


@pytest.mark.req("B1")
async def test_the_window_is_that_of_the_server_s_clock(server: Redis, client: "redis.Redis[str]") -> None:
    async with limiter(server.url) as one:
        before = client.time()[0]
        [wait_ms] = await one.consume("m", "a", ["1"], 0)
        after = client.time()[0]
    assert wait_ms is not None
    assert before * 1000 <= WINDOW_MS * 2 - wait_ms <= (after + 1) * 1000


_start: Barrier


def _stand_by(start: Barrier) -> None:
    global _start  # noqa: PLW0603  of a process that does nothing else
    _start = start


def _take_all(url: str, name: str) -> int:
    async def run() -> int:
        async with limiter(url) as one:
            await take(one, "warm", mesh="other")
            _start.wait(WITHIN_S)
            found = await asyncio.gather(*(take(one, f"{name}-{n}", limit=60) for n in range(50)))
        return sum(yes for [yes] in found)

    return asyncio.run(run())


@pytest.mark.req("B1")
def test_two_processes_that_ask_at_the_same_moment_get_no_more_than_the_budget(server: Redis) -> None:
    spawn = get_context("spawn")
    with ProcessPoolExecutor(2, spawn, _stand_by, (spawn.Barrier(2),)) as processes:
        taken = [*processes.map(_take_all, [server.url] * 2, ["x", "y"], timeout=WITHIN_S)]
    assert sum(taken) == 60


# --- what is left behind -----------------------------------------------------------------------------------


@pytest.mark.req("B1")
async def test_what_was_taken_is_forgotten_after_two_windows(server: Redis, client: "redis.Redis[str]") -> None:
    async with limiter(server.url, 60_000) as one:
        assert await take(one, "1", "2", "3") == [True, True, False]
    keys = client.keys()
    assert keys
    for key in keys:
        assert key.startswith("claudemesh:limiter:{m:a}:")
        assert 60_000 < client.pttl(key) <= 120_000


# --- when it is started anew, or is another server ---------------------------------------------------------


@pytest.mark.req("B1")
async def test_a_server_that_has_forgotten_the_script_is_told_it_again(
    server: Redis, client: "redis.Redis[str]"
) -> None:
    async with limiter(server.url) as one:
        assert await take(one, "1") == [True]
        client.script_flush()
        assert await take(one, "1", "2", "3") == [True, True, False]


async def test_after_a_fail_over_it_asks_the_server_that_is_found_under_the_name(tmp_path: Path) -> None:
    name = tmp_path / "sock"
    with private_redis() as first, private_redis() as second:
        name.symlink_to(first._socket)
        for one in (first, second):
            with redis.Redis.from_url(one.url) as client:
                client.config_set("requirepass", "")
        async with limiter(f"unix://{name}") as one:
            assert await take(one, "1") == [True]
            with redis.Redis.from_url(f"unix://{first._socket}") as client:
                client.replicaof("127.0.0.1", "1")
            name.unlink()
            name.symlink_to(second._socket)
            with pytest.raises(LimiterUnavailable):
                await take(one, "2")
            assert await take(one, "2") == [True]


# --- ways to be away ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outage:
    begin: Callable[[Redis], None]
    end: Callable[[Redis], None]


def _told(*commands: str) -> Callable[[Redis], None]:
    """Tell the server; what else is connected to it has to connect again."""

    def tell(server: Redis) -> None:
        with redis.Redis.from_url(server.url) as client:
            for command in commands:
                client.execute_command(*command.format(password=server._password).split())
            client.client_kill_filter(_type="normal", skipme=True)

    return tell


def _with_other_password(server: Redis) -> None:
    url = server.url.replace(server._password, "another")
    with redis.Redis.from_url(url) as client:
        client.config_set("requirepass", server._password)


OUTAGES = {
    "gone": Outage(Redis.crash, Redis.start),
    "hanging": Outage(
        lambda server: os.kill(server.pid, signal.SIGSTOP), lambda server: os.kill(server.pid, signal.SIGCONT)
    ),
    "full": Outage(_told("CONFIG SET maxmemory 1"), _told("CONFIG SET maxmemory 0")),
    "a replica": Outage(_told("REPLICAOF 127.0.0.1 1"), _told("REPLICAOF NO ONE")),
    "with another password": Outage(_told("CONFIG SET requirepass another"), _with_other_password),
    "without rights": Outage(_told("ACL SETUSER default -evalsha -eval"), _told("ACL SETUSER default +@all")),
}


@pytest.mark.req("B1")
@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES)
async def test_while_redis_is_away_every_call_is_told_so_and_it_goes_on_by_itself(
    server: Redis, outage: Outage
) -> None:
    async with limiter(server.tcp_url) as one:
        assert await take(one, "1") == [True]
        outage.begin(server)
        try:
            for _ in range(2):  # the second time it is a new connection that is not answered
                # The same id, since a server that only hung takes it all the same, once it goes on.
                told = await asyncio.gather(*(take(one, "2") for _ in range(20)), return_exceptions=True)
                for error in told:
                    assert isinstance(error, LimiterUnavailable)
                    assert error.status == 503
                    assert error.extras["retry_after_ms"] > 0
                    assert server._password not in f"{error} {error.extras}"
        finally:
            outage.end(server)
        assert await take(one, "1", "2", "3") == [True, True, False]


@pytest.mark.parametrize(
    "said",
    [b"-LOADING Redis is loading the dataset in memory\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b":1\r\n", b""],
    ids=["loading", "no Redis", "something else", "hangs up"],
)
async def test_whatever_answers_in_its_place_every_call_is_told_so(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said and await reader.read(1 << 16):
            writer.write(said)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with limiter(f"redis://127.0.0.1:{port}") as one:
            for _ in range(2):
                with pytest.raises(LimiterUnavailable):
                    await take(one, "1")


# --- many at once ------------------------------------------------------------------------------------------


async def test_calls_of_one_moment_share_a_round_trip(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    trips: list[int] = []
    send = RedisLimiter._send

    async def counted(self: RedisLimiter, command: str, script: str, calls: list[object]) -> list[object]:
        trips.append(len(calls))
        return await send(self, command, script, calls)

    async with limiter(server.url) as one:
        await take(one, "warm", mesh="other")
        monkeypatch.setattr(RedisLimiter, "_send", counted)
        found = await asyncio.gather(*(take(one, f"{n}", limit=200) for n in range(300)))
    assert sum(yes for [yes] in found) == 200
    assert trips == [256, 44]


async def test_a_caller_that_gives_up_leaves_the_others_their_answers(server: Redis) -> None:
    async with limiter(server.url) as one:
        calls = [asyncio.create_task(take(one, f"{n}", limit=3)) for n in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        assert await asyncio.gather(*calls[1:]) == [[True], [True]]
        assert await take(one, "0", "3") == [True, False]
