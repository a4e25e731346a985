"""A mesh of one's own for a test: daemons and a broker in this process, on real sockets and real files."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from claudemesh.broker.app import serve as serve_broker
from claudemesh.broker.settings import BrokerSettings
from claudemesh.cli import enrol
from claudemesh.daemon import identity
from claudemesh.daemon.app import serve
from claudemesh.daemon.identity import Joined
from claudemesh.daemon.settings import Config, DaemonSettings
from claudemesh.dashboard.app import dashboard_of
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World, real_world
from claudemesh.wire.invite import Invite
from claudemesh.wire.signing import invite_bytes, welcome_bytes
from tests.ports import own_address

WITHIN_S = 30


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


@dataclass
class LocalDaemon:
    state_dir: Path
    keys: KeyPair
    world: World
    task: "asyncio.Task[int] | None" = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        reader, writer = await asyncio.open_unix_connection(str(self.state_dir / "sock"))
        try:
            raw = b"" if body is None else json.dumps(body).encode()
            lines = [f"{method} {path} HTTP/1.1", "host: localhost", "connection: close"]
            lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
            if body is not None:
                lines += ["content-type: application/json", f"content-length: {len(raw)}"]
            writer.write("\r\n".join([*lines, "", ""]).encode() + raw)
            async with asyncio.timeout(WITHIN_S):
                answer = await reader.read()
        finally:
            writer.close()
        head, _, payload = answer.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        is_json = "json" in fields.get("content-type", "")
        return Answer(int(first.split()[1]), fields, json.loads(payload) if is_json else payload.decode())

    async def tell(self, path: str, body: object) -> None:
        """Post, and be gone before there is an answer."""
        _, writer = await asyncio.open_unix_connection(str(self.state_dir / "sock"))
        raw = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()
        writer.close()

    async def get(self, path: str) -> Any:  # noqa: ANN401  JSON
        return (await self.request("GET", path)).body

    async def post(self, path: str, body: object, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.request("POST", path, body, named)

    async def until(self, is_so: Callable[[dict[str, Any]], bool], path: str = "/v1/health") -> dict[str, Any]:
        """Ask until it is so; with a bound, and without leaning on how long it takes."""
        async with asyncio.timeout(WITHIN_S):
            while not is_so(found := await self.get(path)):  # noqa: ASYNC110  it is another process's to be so
                await asyncio.sleep(0.01)
            return found

    async def inbox(self) -> list[dict[str, Any]]:
        return (await self.get("/v1/inbox?limit=1000"))["messages"]

    async def receives(self, count: int) -> list[dict[str, Any]]:
        """Wait for so many messages, and return all there are."""
        found = await self.until(lambda page: len(page["messages"]) >= count, "/v1/inbox?limit=1000")
        return found["messages"]

    async def send(self, to: str, message: str, **more: object) -> Answer:
        return await self.post("/v1/send", {"to": to, "message": message, **more})


@asynccontextmanager
async def local_daemon(  # noqa: PLR0913  all by name
    state_dir: Path,
    *,
    keys: KeyPair,
    joined: Joined | None = None,
    config: Config | None = None,
    tcp: bool = False,
    ephemeral_ttl_ms: int | None = None,
    world: World | None = None,
    **timings: int,
) -> AsyncIterator[LocalDaemon]:
    """Start a daemon and stop it again; the same directory may be started again."""
    prepare(state_dir, keys, joined)
    daemon = LocalDaemon(state_dir, keys, world or real_world())
    settings = DaemonSettings(
        state_dir=state_dir, config=config or Config(), tcp=tcp, ephemeral_ttl_ms=ephemeral_ttl_ms, **timings
    )
    started = asyncio.Event()
    extend = dashboard_of(Home(state_dir.parent.parent))
    daemon.task = asyncio.create_task(
        serve(settings, daemon.world, daemon.stopping, lambda _: started.set(), extend)
    )
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({daemon.task, waiting}, timeout=WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
    if not started.is_set():
        waiting.cancel()
        await daemon.task  # raises what kept it from starting
    try:
        yield daemon
    finally:
        daemon.stopping.set()
        await daemon.task


def prepare(state_dir: Path, keys: KeyPair, joined: Joined | None) -> None:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (state_dir / identity.MEMBERSHIP).exists():
        identity.store(state_dir, keys, joined or a_membership(state_dir.name))


BROKER_KEYS = KeyPair.generate()


def a_welcome(path: str, nonce: str = "n") -> str:
    """Return the first words of a broker with these keys, to whoever opened this path."""
    challenge = path.partition("challenge=")[2]
    signature = BROKER_KEYS.sign(welcome_bytes(challenge, nonce))
    return json.dumps({"type": "welcome", "nonce": nonce, "server_time_ms": 0, "signature": signature})


def a_membership(slug: str, broker_url: str = "http://127.0.0.1:9") -> Joined:
    """Make a membership of a mesh whose broker is not there: port 9 is nobody's."""
    return Joined(
        mesh_id="01" + "A" * 24,
        slug=slug,
        member_id="01" + "B" * 24,
        name="alice",
        role="owner",
        broker_key=BROKER_KEYS.pubkey,
        broker_url=broker_url,
    )


# --- a broker and its members -----------------------------------------------------------------------------


@dataclass
class LocalBroker:
    """A broker that can be stopped and started again at its place."""

    folder: Path
    settings: BrokerSettings
    url: str = ""
    task: "asyncio.Task[int] | None" = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stopping = asyncio.Event()
        self.task = asyncio.create_task(serve_broker(self.settings, started.set_result, self.stopping))
        await asyncio.wait({self.task, started}, timeout=WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            await self.task
        self.url = started.result()

    async def stop(self) -> None:
        self.stopping.set()
        if self.task is not None:
            await self.task
            self.task = None

    async def enrol(self, *names: str, slug: str = "demo") -> list[Path]:
        """Make a mesh with these members, the first its owner, and return their state directories."""
        return await asyncio.to_thread(self._enrol, slug, names)

    def _enrol(self, slug: str, names: tuple[str, ...]) -> list[Path]:
        clock = SystemClock()
        homes = [Home(self.folder / "homes" / name) for name in names]
        owner = enrol.create(enrol.Enrolment(homes[0], names[0], clock), slug, self.url)
        keys = identity.load_keys(homes[0].mesh_dir(slug))
        invite = Invite(
            broker_url=self.url,
            mesh_id=owner.mesh_id,
            slug=slug,
            invite_id="an-invite",
            uses=1000,
            expires_at=clock.wall_ms() + 3_600_000,
            broker_key=owner.broker_key,
            inviter_pubkey=keys.pubkey,
        )
        invite = msgspec.structs.replace(invite, signature=keys.sign(invite_bytes(invite)))
        for home, name in zip(homes[1:], names[1:], strict=True):
            enrol.join(enrol.Enrolment(home, name, clock), invite)
        return [home.mesh_dir(slug) for home in homes]


@asynccontextmanager
async def local_broker(folder: Path, **changes: Any) -> AsyncIterator[LocalBroker]:  # noqa: ANN401  settings
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # noqa: ASYNC240  nobody else waits for this loop
    settings = BrokerSettings(store=f"sqlite:///{folder / 'broker.db'}", listen=own_address(), **changes)
    broker = LocalBroker(folder, settings)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@asynccontextmanager
async def local_mesh(folder: Path, *names: str, **changes: Any) -> AsyncIterator[tuple[Any, ...]]:  # noqa: ANN401
    """Yield a broker and a daemon for each name, all connected."""
    async with local_broker(folder, **changes) as broker, AsyncExitStack() as stack:
        places = await broker.enrol(*names)
        daemons = [await stack.enter_async_context(rejoin(place)) for place in places]
        for daemon in daemons:
            await daemon.until(lambda health: health["connected"])
        yield (broker, *daemons)


def rejoin(state_dir: Path, *, ephemeral_ttl_ms: int | None = None) -> AbstractAsyncContextManager[LocalDaemon]:
    """Start the daemon of a state directory that has its identity."""
    return local_daemon(state_dir, keys=identity.load_keys(state_dir), ephemeral_ttl_ms=ephemeral_ttl_ms)
