"""Both watchdogs: a connection over which nothing comes any more is ended by either side, by itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from claudemesh.broker.settings import BrokerSettings, Presence
from claudemesh.daemon import identity
from claudemesh.daemon.events import BrokerDisconnected
from tests.mesh import LocalBroker, local_daemon, rejoin
from tests.ports import own_port

WITHIN_S = 30
QUICK = {"ping_interval_ms": 300, "stale_pong_ms": 1_500}


class Line:
    """A way to the broker. What is open when it is cut goes dead: nothing passes, and no side is told of an end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[asyncio.StreamWriter] = []
        self._passing: set[asyncio.Task[None]] = set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onwards, back = await asyncio.open_connection("127.0.0.2", self._port)
        self._open += [writer, back]
        self._passing |= {asyncio.create_task(_pass(reader, back)), asyncio.create_task(_pass(onwards, writer))}

    def cut(self) -> None:
        for passing in self._passing:
            passing.cancel()

    def end(self) -> None:
        self.cut()
        for writer in self._open:
            writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def broker_at_the_end_of_a_line(folder: Path, presence: Presence) -> AsyncIterator[tuple[LocalBroker, Line]]:
    """Serve at another address of this machine; the line has the same port, since the broker looks at Host."""
    port = own_port()
    listen = f"127.0.0.2:{port}"
    settings = BrokerSettings(store=f"sqlite:///{folder / 'broker.db'}", listen=listen, presence=presence)
    broker = LocalBroker(folder, settings)
    await broker.start()
    line = Line(port)
    server = await asyncio.start_server(line.carry, "127.0.0.1", port)
    broker.url = f"http://127.0.0.1:{port}"
    try:
        yield broker, line
    finally:
        line.end()
        server.close()
        await broker.stop()


@pytest.mark.req("P7")
async def test_a_daemon_ends_a_connection_over_which_nothing_comes_any_more(tmp_path: Path) -> None:
    async with broker_at_the_end_of_a_line(tmp_path, Presence()) as (broker, line):
        (place,) = await broker.enrol("alice")
        async with local_daemon(place, keys=identity.load_keys(place), **QUICK) as alice:
            await alice.until(lambda health: health["connected"])
            has_ended = asyncio.Event()
            alice.world.observer.subscribe(BrokerDisconnected, lambda _: has_ended.set())
            line.cut()
            await asyncio.wait_for(has_ended.wait(), WITHIN_S)
            await alice.until(lambda health: health["connected"])  # over a new one


@pytest.mark.req("P7")
async def test_a_broker_ends_a_connection_over_which_nothing_comes_any_more(tmp_path: Path) -> None:
    async with broker_at_the_end_of_a_line(tmp_path, Presence(**QUICK)) as (broker, line):
        alices, bobs = await broker.enrol("alice", "bob")
        async with rejoin(alices) as alice:
            await alice.until(lambda health: health["connected"])
            line.cut()
            async with rejoin(bobs) as bob:
                await bob.until(lambda health: health["connected"])
                await bob.until(lambda found: found["peers"][0].get("transport") == "offline", "/v1/peers?all=1")
            assert (await alice.get("/v1/health"))["connected"], "its own watchdog has not barked yet"
