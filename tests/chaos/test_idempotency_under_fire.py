"""Workers that are killed, or stopped past their lease, in the middle of a write that came with a key."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import apsw
import asyncpg
import httpx
import pytest

from tests.services.postgres import Postgres, installations

pytestmark = pytest.mark.req("R1")

BOUND_S = 30
LEASE_MS = 300
KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}


class Worker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._client = httpx.AsyncClient(timeout=BOUND_S)
        self._url = ""

    @classmethod
    async def start(cls, *words: str) -> Self:
        command = [sys.executable, "-m", "tests.chaos.idempotent_worker", *words]
        pipe = asyncio.subprocess.PIPE
        worker = cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))
        worker._url = f"http://127.0.0.1:{(await worker._line()).removeprefix('port ')}/rows"
        return worker

    @property
    def name(self) -> str:
        return f"written by {self._process.pid}"

    async def post(self) -> httpx.Response:
        return await self._client.post(self._url, content=b"{}", headers=KEY)

    async def post_until_answered(self) -> httpx.Response:
        """Retry as a client would, only faster than Retry-After says."""
        async with asyncio.timeout(BOUND_S):
            while (answer := await self.post()).status_code == 409:
                assert answer.json()["code"] == "key_in_progress"
        return answer

    async def until(self, point: str) -> None:
        while await self._line() != f"at {point}":
            pass

    def let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        if self._process.returncode is None:
            self.signal(signal.SIGKILL)
        await self._process.wait()

    async def aclose(self) -> None:
        await self.kill()
        await self._client.aclose()

    async def _line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(BOUND_S):
            line = await self._process.stdout.readline()
        assert line, "the worker ended"
        return line.decode().strip()


class House:
    """Workers over one store, and the rows that they wrote."""

    def __init__(self, place: str, rows: Callable[[], Awaitable[int]], stack: AsyncExitStack) -> None:
        self._place = place
        self._stack = stack
        self.rows = rows

    async def start(self, how: str, hold: str = "", lease_ms: int = LEASE_MS) -> Worker:
        worker = await Worker.start(self._place, how, str(lease_ms), *filter(None, [hold]))
        self._stack.push_async_callback(worker.aclose)
        return worker


@pytest.fixture(params=["sqlite", *(one.name for one in installations())])
async def house(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: Callable[[str], Postgres]
) -> AsyncIterator[House]:
    place = str(tmp_path / "app.db")
    if request.param != "sqlite":
        place = postgres_servers(request.param).create_database("fire")

    async def rows() -> int:
        if request.param == "sqlite":
            return len(apsw.Connection(place).execute("SELECT * FROM written").fetchall())
        connection = await asyncpg.connect(place)
        try:
            return len(await connection.fetch("SELECT * FROM app.written"))
        finally:
            await connection.close()

    async with AsyncExitStack() as stack:
        yield House(place, rows, stack)


async def lost(asking: "asyncio.Task[httpx.Response]") -> None:
    with pytest.raises(httpx.HTTPError):
        await asking


@pytest.mark.parametrize("how", ["plain", "complete"])
async def test_the_key_of_a_worker_that_was_killed_frees_itself_and_the_retry_runs(house: House, how: str) -> None:
    victim, other = await house.start(how, "before"), await house.start(how)
    asking = asyncio.create_task(victim.post())
    await victim.until("before")
    await victim.kill()
    await lost(asking)
    answer = await other.post_until_answered()
    assert (answer.status_code, answer.text) == (201, other.name)
    assert await house.rows() == 1


async def test_a_write_that_completed_its_key_is_there_once_though_its_worker_never_answered(house: House) -> None:
    victim, other = await house.start("complete", "after"), await house.start("complete")
    asking = asyncio.create_task(victim.post())
    await victim.until("after")
    await victim.kill()
    await lost(asking)
    retry = await other.post()  # at once: there is no lease to wait for
    assert (retry.status_code, retry.text, retry.headers["idempotent-replayed"]) == (201, victim.name, "true")
    assert await house.rows() == 1


async def test_a_write_that_left_its_key_to_the_middleware_may_be_there_twice_as_the_docs_say(house: House) -> None:
    victim, other = await house.start("plain", "after"), await house.start("plain")
    asking = asyncio.create_task(victim.post())
    await victim.until("after")
    await victim.kill()
    await lost(asking)
    assert (await other.post_until_answered()).text == other.name
    assert await house.rows() == 2


async def test_a_worker_that_was_stopped_past_its_lease_cannot_write_any_more(house: House) -> None:
    zombie, other = await house.start("complete", "before"), await house.start("complete")
    asking = asyncio.create_task(zombie.post())
    await zombie.until("before")
    zombie.signal(signal.SIGSTOP)
    assert (await other.post_until_answered()).text == other.name
    zombie.let_go()
    zombie.signal(signal.SIGCONT)
    async with asyncio.timeout(BOUND_S):
        answer = await asking
    assert (answer.status_code, answer.json()["code"]) == (409, "key_in_progress")
    assert "retry-after" in answer.headers
    assert await house.rows() == 1
    assert (await zombie.post()).text == other.name


async def test_a_worker_that_lives_keeps_its_key_however_long_it_takes(house: House) -> None:
    lease_ms = 1_500  # on a machine with much else to do, it may be late by a part of that
    slow, other = await house.start("plain", "before", lease_ms), await house.start("plain")
    asking = asyncio.create_task(slow.post())
    await slow.until("before")
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 2 * lease_ms / 1_000
    while loop.time() < until_s:
        assert (await other.post()).status_code == 409
    slow.let_go()
    async with asyncio.timeout(BOUND_S):
        assert (await asking).text == slow.name
    assert (await other.post()).text == slow.name
    assert await house.rows() == 1
