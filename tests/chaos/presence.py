"""A town of real processes that come and go, and those who watch them: a broker, daemons, and what they are told.

Everything is seen from outside: the event stream of a daemon, its health, and the command line. Times come from the
environment, as a user would set them.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claudemesh.daemon import identity
from claudemesh.runtime.home import Home
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import real_world
from tests.chaos.presence_clients import attach, peer_of
from tests.integration.broker_client import Peer
from tests.mesh import LocalBroker, LocalDaemon

PROGRAM = (sys.executable, "-P", "-m", "claudemesh.cli.main")
INHERITED = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
SLUG = "demo"
STRANGER = "stranger"
WITHIN_S = 60.0  # for whatever should take a moment: other tests may run beside us
LATE_S = 10.0  # by which a machine under load may be late


@dataclass(frozen=True)
class Times:
    """How presence beats, and for how long those sleep who wake up in time, and those who do not."""

    lease_s: float
    ping_s: float
    stale_s: float
    nap_s: float
    coma_s: float

    @property
    def environment(self) -> dict[str, str]:
        seconds = {"LEASE_TTL_MS": self.lease_s, "PING_INTERVAL_MS": self.ping_s}
        seconds["STALE_PONG_THRESHOLD_MS"] = self.stale_s
        return {name: str(round(value * 1000)) for name, value in seconds.items()}


# A tenth of the real ones; but both watchdogs bark within a nap, which is more than they do at full length.
SHORT = Times(lease_s=9.0, ping_s=1.0, stale_s=3.0, nap_s=6.0, coma_s=12.0)
FULL = Times(lease_s=90.0, ping_s=30.0, stale_s=75.0, nap_s=60.0, coma_s=120.0)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():  # noqa: ASYNC110  it is another process's to be so
            await asyncio.sleep(0.02)


# --- processes -------------------------------------------------------------------------------------------


@dataclass
class Program:
    """A process of the command line, whose first line says that it is ready, and where."""

    process: asyncio.subprocess.Process
    ready: dict[str, Any]

    def stop(self) -> None:
        """Have it stand still, as a machine that sleeps does."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def program(
    log: Path, words: Sequence[str], environment: dict[str, str], within: Sequence[str] = ()
) -> AsyncIterator[Program]:
    """Start it, and have it gone at the end. `within` is a command that runs it somewhere else."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(*within, *PROGRAM, *words),
            env=INHERITED | environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN_S):
            line = await process.stdout.readline()
        assert line, f"it did not start: see {log}"
        ready = json.loads(line)
        assert "code" not in ready, ready  # an error
        yield Program(process, ready)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


# --- who watches -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    what: str
    name: str
    session_pubkey: str | None
    at_s: float


class Watch:
    """All that one daemon tells of who comes and who goes, since this was opened."""

    def __init__(self, sock: Path) -> None:
        self._sock = sock
        self._news = asyncio.Condition()
        self.all: list[Seen] = []

    def of(self, name: str) -> list[str]:
        """Return what was seen of a member itself."""
        return [one.what for one in self.all if one.name == name and one.session_pubkey is None]

    def of_key(self, session_pubkey: str) -> list[str]:
        return [one.what for one in self.all if one.session_pubkey == session_pubkey]

    async def until(self, is_so: Callable[[], bool], within_s: float = WITHIN_S) -> float:
        """Return when it is so, and when that was."""
        async with asyncio.timeout(within_s), self._news:
            await self._news.wait_for(is_so)
        return time.monotonic()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Watch"]:
        reader, writer = await asyncio.open_unix_connection(str(self._sock))
        writer.write(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        async with asyncio.timeout(WITHIN_S):
            while not (line := await reader.readline()).startswith(b": here you are"):
                assert line, "the daemon ended its stream"
        reading = asyncio.create_task(self._read(reader))
        try:
            yield self
            assert not reading.done(), "the daemon ended its stream"
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        what = ""
        while line := await reader.readline():
            if line.startswith(b"event: "):
                what = line[7:].decode().strip()
            elif line.startswith(b"data: ") and what in ("peer_joined", "peer_left"):
                data = json.loads(line[6:])
                self.all.append(Seen(what, data["name"], data["session_pubkey"], time.monotonic()))
                async with self._news:
                    self._news.notify_all()


# --- the town --------------------------------------------------------------------------------------------


@dataclass
class Town:
    """A broker of the command line with its members, of whom any may have a daemon running."""

    folder: Path
    times: Times
    broker: Program
    stack: AsyncExitStack
    within: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        url: str = self.broker.ready["url"]
        return url

    def home(self, name: str) -> Path:
        return self.folder / "homes" / name

    def state_dir(self, name: str) -> Path:
        return Home(self.home(name)).mesh_dir(SLUG)

    def peer(self, name: str) -> Peer:
        """Return a member as a bare client of the wire."""
        return peer_of(self.state_dir(name), self.url)

    def client(self, name: str) -> LocalDaemon:
        """Ask a member's daemon over its socket."""
        place = self.state_dir(name)
        return LocalDaemon(place, identity.load_keys(place), real_world())

    async def daemon(
        self, name: str, broker_url: str | None = None, within: Sequence[str] | None = None
    ) -> Program:
        """Start a member's daemon, and return when it is connected."""
        if broker_url is not None:
            identity.move_broker(self.state_dir(name), broker_url)
        words = ["daemon", "up", "--foreground", "--json", "--persistent", "--no-tcp", "--mesh", SLUG]
        started = await self.stack.enter_async_context(
            program(
                self.folder / f"{name}.log",
                words,
                self.times.environment | self.environment | {"CLAUDEMESH_HOME": str(self.home(name))},
                self.within if within is None else within,
            )
        )
        await self.until_connected(name)
        return started

    async def until_connected(self, name: str) -> None:
        await self.client(name).until(lambda health: health["connected"])

    async def watch(self, name: str) -> Watch:
        return await self.stack.enter_async_context(Watch(self.state_dir(name) / "sock").opened())

    async def run(self, name: str, *words: str) -> Any:  # noqa: ANN401  JSON
        """Run a command in a member's terminal, and return what it prints."""
        process = await asyncio.create_subprocess_exec(
            *(*self.within, *PROGRAM, *words, "--json", "--mesh", SLUG),
            env=INHERITED | {"CLAUDEMESH_HOME": str(self.home(name))} | self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(WITHIN_S + self.times.coma_s):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return json.loads(out)

    async def register(self, name: str) -> str:
        """Have a member's daemon show a session, which is there as long as this process is; return its key."""
        body = {"token": f"a-session-of-{name}", "pid": os.getpid()}
        answer = await self.client(name).post("/v1/sessions/register", body)
        assert answer.status in (200, 201), answer.body
        key: str = answer.body["session_pubkey"]
        return key

    async def entry(self, witness: str, name: str) -> dict[str, Any]:
        """Return what the full list of peers says of somebody."""
        found = await self.client(witness).get("/v1/peers?all=1")
        return next(one for one in found["peers"] if one["name"] == name)

    async def until_transport(self, witness: str, name: str, transport: str) -> dict[str, Any]:
        async with asyncio.timeout(WITHIN_S + self.times.lease_s):
            while (found := await self.entry(witness, name))["transport"] != transport:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            return found

    async def show_life(self, name: str) -> None:
        """Have a daemon ask its broker something: what it does next begins with a sign of life."""
        await self.client(name).get("/v1/peers")

    async def settled(self, *watches: Watch) -> None:
        """Return when these have seen all that happened up to now: what comes is told in its order."""
        await settle(self.peer(STRANGER), *watches)


async def settle(stranger: Peer, *watches: Watch) -> None:
    """Have a stranger come and go, and return when these have seen that, and so all that was before."""
    keys = KeyPair.generate()
    async with attach(stranger, keys) as wire:
        await wire.call("presence.end")
    for watch in watches:
        await watch.until(lambda watch=watch: len(watch.of_key(keys.pubkey)) == 2)  # type: ignore[misc]


@asynccontextmanager
async def town(folder: Path, times: Times, *names: str) -> AsyncIterator[Town]:
    """Have a broker, and members by these names beside a stranger; nobody is there yet."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # noqa: ASYNC240  nobody else waits for this loop
    home = {"CLAUDEMESH_HOME": str(folder / "broker")}
    words = ["broker", "serve", "--json", "--listen", "127.0.0.1:0"]
    async with (
        program(folder / "broker.log", words, times.environment | home) as broker,
        AsyncExitStack() as stack,
    ):
        made = Town(folder, times, broker, stack)
        await LocalBroker(folder, settings=None, url=made.url).enrol(*names, STRANGER)  # type: ignore[arg-type]
        yield made
