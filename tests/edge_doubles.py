"""A relay and a hub in this process. Every request carries canaries; waits are for events, and have a bound."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claudemesh.edge import app as edge_app
from claudemesh.edge.events import EnvelopeDecided, EnvelopeSettled, UpstreamLost, UpstreamReached
from claudemesh.edge.settings import EdgeSettings
from claudemesh.hub import app as hub_app
from claudemesh.hub.settings import HubSettings
from claudemesh.kernel.clock import Clock
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import SOCKET_PATH_BYTES_MAX
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.world import World
from tests import canaries
from tests.fake_upstream import FakeUpstream, Noticing, Reply, exchange, request_bytes

WITHIN_S = 30
ROLL = 0.01  # backoffs are a hundredth of what they may be


def at(row: dict[str, Any], **fields: str) -> dict[str, Any]:
    """Return a write to a row as it was seen."""
    return {**fields, "expected_updated_at": row["updated_at"]}


# --- the relay ---------------------------------------------------------------------------------------


@dataclass
class Edge:
    """A relay: started, asked, stopped and started again, on the same folder."""

    folder: Path
    upstream: str
    clock: Clock = field(default_factory=SystemClock)
    roll: Callable[[], float] = lambda: ROLL
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.events: list[Any] = []
        self.noticing = Noticing()
        self.url = ""
        self._began = 0  # of the events: where this run's begin
        self._stop = asyncio.Event()
        self._running: asyncio.Task[int] | None = None

    @property
    def place(self) -> edge_app.Place:
        return edge_app.Place(folder=self.folder, runtime_dir=self.folder.parent / "run", token=canaries.CREDENTIAL)

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    async def start(self) -> None:
        self._stop = asyncio.Event()
        self._began = len(self.events)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        world = World(self.clock, UlidSource(self.clock), self.roll)
        world.observer.subscribe(object, self._hear)
        settings = EdgeSettings(upstream=self.upstream, listen="127.0.0.1:0", **self.settings)
        self._running = asyncio.create_task(
            edge_app.serve(settings, self.place, self._stop, ready.set_result, world)
        )
        waiting = asyncio.ensure_future(ready)
        async with asyncio.timeout(WITHIN_S):
            await asyncio.wait([waiting, self._running], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            await self._running
        self.url = await waiting

    async def stop(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            self._stop.set()
            async with asyncio.timeout(WITHIN_S):
                assert await running == 0

    async def kill(self) -> None:
        """End it without a word, as well as one can in the same process: nothing is settled any more."""
        assert self._running is not None
        running, self._running = self._running, None
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    @property
    def is_alive(self) -> bool:
        return self._running is not None and not self._running.done()

    def _hear(self, event: object) -> None:
        self.events.append(event)
        self.noticing.notice()

    def heard(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, holds: Callable[[], bool]) -> None:
        await self.noticing.until(holds)

    async def until_heard(self, kind: type[Any], times: int = 1) -> None:
        await self.until(lambda: len(self.heard(kind)) >= times)

    # --- asking ----------------------------------------------------------------------------------------

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        **headers: str,
    ) -> Reply:
        """Send a request, with canaries. A header's name is written with _ for -; bytes are sent as they are."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"host": self.address, "connection": "close", **canaries.CALLERS_HEADERS}
        if data:
            sent["content-type"] = "application/json"
        if key is not None:
            sent["idempotency-key"] = key
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        return await self.send(request_bytes(method, path, [*sent.items()], data))

    async def send(self, raw: bytes) -> Reply:
        host, _, port = self.address.rpartition(":")
        return await exchange(await asyncio.open_connection(host, int(port)), raw)

    async def operate(self, method: str, path: str, body: Any = None) -> Reply:  # noqa: ANN401  any document
        """Ask as its operator does, on the Unix socket."""
        path_of = self.folder / "sock"
        if len(bytes(path_of)) > SOCKET_PATH_BYTES_MAX:
            path_of = Path(path_of.read_text().strip())
        data = b"" if body is None else json.dumps(body).encode()
        sent = [("host", "localhost"), ("connection", "close"), ("content-type", "application/json")]
        raw = request_bytes(method, path, sent, data)
        return await exchange(await asyncio.open_unix_connection(path_of), raw)

    async def decide(self, row: str, what: str, **said: str) -> Reply:
        return await self.operate("POST", f"/outbox/{row}/{what}", said)

    async def show(self, row: str) -> Any:  # noqa: ANN401  any document
        reply = await self.operate("GET", f"/outbox/{row}")
        assert reply.status == 200, reply.body
        return reply.json

    async def state(self, row: str) -> str:
        return str((await self.show(row))["seen"]["state"])

    async def status(self) -> Any:  # noqa: ANN401  any document
        return (await self.ask("GET", "/status")).json

    async def queue(self, method: str, path: str, body: Any = None, **said: Any) -> Any:  # noqa: ANN401
        """Have a write queued; return its receipt."""
        reply = await self.ask(method, path, body, **said)
        assert reply.status == 202, (reply.status, reply.body)
        return reply.json

    # --- waiting ---------------------------------------------------------------------------------------

    async def until_state(self, row: str, *states: str) -> Any:  # noqa: ANN401  any document
        """Wait until an envelope is in one of these states; what changes one is told."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                count = len(self.events)
                shown = await self.show(row)
                if shown["seen"]["state"] in states:
                    return shown
                await self.noticing.until(lambda count=count: _moved(self.events[count:]))  # type: ignore[misc]

    async def until_settled(self) -> Any:  # noqa: ANN401  any document
        """Wait until nothing is to be sent any more."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                count = len(self.events)
                status = await self.status()
                if status["pending"] == 0:
                    return status
                await self.noticing.until(lambda count=count: _moved(self.events[count:]))  # type: ignore[misc]

    async def go_online(self, upstream: FakeUpstream) -> None:
        """Bring the upstream up, and have the relay notice at once."""
        await upstream.open()
        if self._is_lost:  # else it never knew
            await self.ask("POST", "/replay")
            await self.until(lambda: not self._is_lost)

    async def go_offline(self, upstream: FakeUpstream) -> None:
        """Take the upstream away, and have the relay notice."""
        await upstream.close()
        if not self._is_lost:
            reply = await self.ask("GET", "/tasks/")
            assert reply.status == 503, reply.body

    @property
    def _is_lost(self) -> bool:
        told = [event for event in self.events[self._began :] if isinstance(event, UpstreamLost | UpstreamReached)]
        return bool(told) and isinstance(told[-1], UpstreamLost)


def _moved(events: list[Any]) -> bool:
    return any(isinstance(event, EnvelopeSettled | EnvelopeDecided) for event in events)


@asynccontextmanager
async def running_hub(
    folder: Path, address: str, clock: Clock | None = None
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Run a real hub on a file in the folder; what is given stops it early."""
    clock = SystemClock() if clock is None else clock
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = HubSettings(store=f"sqlite:///{folder / 'hub.db'}", listen=address)
    world = World(clock, UlidSource(clock), lambda: ROLL)
    running = asyncio.create_task(hub_app.serve(settings, lambda _: ready.set(), stop, world))

    async def end() -> None:
        stop.set()
        async with asyncio.timeout(WITHIN_S):
            await running

    starting = asyncio.create_task(ready.wait())
    try:
        async with asyncio.timeout(WITHIN_S):
            await asyncio.wait([starting, running], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        yield end
    finally:
        starting.cancel()
        if not running.done():
            await end()
