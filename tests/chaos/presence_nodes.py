"""Brokers and daemons for the tests of presence, as processes that are stopped, killed and told another time."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from claudemesh.daemon import identity
from claudemesh.runtime.world import real_world
from tests.chaos.mesh import ROOT, WITHIN_S, Node
from tests.chaos.presence import STRANGER, Times, Watch, settle
from tests.chaos.presence_clients import peer_of
from tests.integration.broker_client import Peer
from tests.mesh import LocalBroker, LocalDaemon
from tests.ports import own_address

BROKER_LEASE_S = 3.0  # after which a broker that is silent is taken for dead; 15 in earnest
MS = 1_000


@dataclass
class Paced(Node):
    """A node with an environment of its own."""

    environment: dict[str, str] = field(default_factory=dict)

    async def start(self, *armed: str) -> str:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.node", *self.command, *armed),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            env=os.environ | self.environment,
        )
        assert self.process.stdout is not None
        async with asyncio.timeout(WITHIN_S):
            line = (await self.process.stdout.readline()).decode().split()
        assert line, "it did not start"
        return line[1]

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            await self.stop(signal.SIGKILL)


class WallClock:
    """The wall clock of one process, which may be set at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        return {"WALL_FILE": str(self._path)}

    def set(self, off_ms: int) -> None:
        with self._path.open("r+b" if self._path.exists() else "w+b") as file:  # in place: it is mapped
            file.write(off_ms.to_bytes(8, "little", signed=True))


@dataclass
class Village:
    """A broker, or two on one database, and members with daemons at one of them."""

    folder: Path
    environment: dict[str, str]
    store: str | None = None
    brokers: list[Paced] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    daemons: dict[str, Paced] = field(default_factory=dict)
    places: dict[str, Path] = field(default_factory=dict)

    async def open_broker(self, **environment: str) -> str:
        """Start one more broker; it has the same address ever after."""
        store = [] if self.store is None else [self.store]
        words = ["broker", str(self.folder), own_address(), *store]
        node = Paced(words, environment=self.environment | environment)
        self.brokers.append(node)
        url = await node.start()
        self.urls.append(url)
        return url

    async def enrol(self, *names: str) -> None:
        known = LocalBroker(self.folder, settings=None, url=self.urls[0])  # type: ignore[arg-type]
        everybody = (*names, STRANGER)
        self.places = dict(zip(everybody, await known.enrol(*everybody), strict=True))

    async def open_daemon(self, name: str, url: str, **environment: str) -> LocalDaemon:
        place = self.places[name]
        identity.move_broker(place, url)
        self.daemons[name] = Paced(["daemon", str(place)], environment=self.environment | environment)
        await self.daemons[name].start()
        await self.until_connected(name)
        return self.client(name)

    def client(self, name: str) -> LocalDaemon:
        place = self.places[name]
        return LocalDaemon(place, identity.load_keys(place), real_world())

    async def until_connected(self, name: str) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not (await self.client(name).get("/v1/health"))["connected"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def peer(self, name: str, url: str | None = None) -> Peer:
        return peer_of(self.places[name], url or self.urls[-1])

    def watch(self, name: str) -> Watch:
        return Watch(self.places[name] / "sock")

    async def settled(self, *watches: Watch) -> None:
        await settle(self.peer(STRANGER), *watches)


@asynccontextmanager
async def village(folder: Path, times: Times, store: str | None = None) -> AsyncIterator[Village]:
    os.chmod(folder, 0o700)  # noqa: PTH101
    environment = times.environment | {"BROKER_LEASE_MS": str(round(BROKER_LEASE_S * MS))}
    made = Village(folder, environment, store)
    try:
        yield made
    finally:
        for node in (*made.daemons.values(), *made.brokers):
            await node.end()
