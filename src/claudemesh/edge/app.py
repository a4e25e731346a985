"""The relay put together: settings, outbox, upstream, services, servers; and the order in which it all stops.

Callers come by a loopback port, an operator by a Unix socket that is its owner's. An outbox whose file is damaged
keeps the relay from queueing, and not from forwarding, also if that is found out while it runs. Stopping goes from
the outside in, the file last.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from claudemesh.asgi.guard import LocalGuard
from claudemesh.asgi.limits import InFlight
from claudemesh.asgi.routes import Router
from claudemesh.asgi.server import Server, ServerLimits
from claudemesh.asgi.server import run as run_loop
from claudemesh.asgi.sockets import bind_tcp, bind_unix, parse_listen, port_of
from claudemesh.asgi.tokens import TokenFile
from claudemesh.edge.addresses import parse_networks
from claudemesh.edge.asking import Api, NobodyThere
from claudemesh.edge.credentials import read_token
from claudemesh.edge.events import OutboxUnusable, RelayStarted, RelayStopped
from claudemesh.edge.http import Parts, RelayApp, public_routes
from claudemesh.edge.metrics import EdgeMetrics
from claudemesh.edge.operate import Operating
from claudemesh.edge.operators import operator_routes
from claudemesh.edge.policy import UPSTREAM_AWAY
from claudemesh.edge.reach import Reach
from claudemesh.edge.reads import Reading
from claudemesh.edge.recovery import Recovery
from claudemesh.edge.replay import Replay
from claudemesh.edge.routing import Policy, load_built_in, load_policy
from claudemesh.edge.service import Relaying
from claudemesh.edge.settings import EdgeSettings
from claudemesh.edge.stores.sqlite.outbox import SqliteEnvelopeStore
from claudemesh.edge.upstream import Outgoing, Unanswered, Unreached, Upstream, UpstreamLimits
from claudemesh.idempotency.policy import POLICY_PATH
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.errors import (
    AlreadyRunning,
    ConfigError,
    ConnectionLost,
    DeadlineExceeded,
    DependencyError,
    MeshError,
    StoreCorrupt,
)
from claudemesh.kernel.write_errors import BadGateway
from claudemesh.outbox.emptying import empty_settled
from claudemesh.outbox.stores.sqlite.salvage import finish_salvage
from claudemesh.runtime.home import InstanceLock, ensure_private_dir
from claudemesh.runtime.logs import JsonLog
from claudemesh.runtime.patience import wait_until
from claudemesh.runtime.world import World, real_world
from claudemesh.wire.addresses import is_loopback

EXIT_OK: Final = 0
STOP_GRACE_S: Final = 5.0
DECISION_S: Final = 5.0  # of an operator, in the file of a relay that does not run
SWEEP_EVERY_S: Final = 3_600.0
PROBE_S: Final = 3.0
KEY_EXPIRY: Final = "key_expiry_ms"
KEY_EXPIRY_MAX_MS: Final = 3_650 * DAY_MS  # more is as good as for ever

Ready = Callable[[str], None]  # called with the relay's URL once it answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a relay lives: its directory in the home, and what it was told beside its settings."""

    folder: Path  # $CLAUDEMESH_HOME/edge
    runtime_dir: Path | None = None
    token: str | None = None  # of STATEHUB_TOKEN
    log_to_stderr: bool = False

    @property
    def outbox(self) -> Path:
        return self.folder / "outbox.db"

    @property
    def sock(self) -> Path:
        return self.folder / "sock"

    @property
    def lock(self) -> Path:
        return self.folder / "pid"


def run(settings: EdgeSettings, place: Place, ready: Ready = lambda _: None) -> int:
    """Run until SIGTERM or SIGINT; return the exit code. Whatever keeps it from starting is raised."""

    async def main() -> int:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await serve(settings, place, stop, ready)

    return run_loop(main)


async def serve(
    settings: EdgeSettings,
    place: Place,
    stop: asyncio.Event,
    ready: Ready = lambda _: None,
    world: World | None = None,
) -> int:
    """Serve until `stop` is set. One relay a directory: AlreadyRunning if there is one."""
    here = real_world() if world is None else world
    ensure_private_dir(place.folder)
    async with _alone(place):
        log = JsonLog(here.clock, place.folder / "edge.log", stderr=place.log_to_stderr)
        log.attach(here.observer)
        try:
            async with opened_outbox(place.outbox, here) as outbox:
                relay = Relay(settings, place, outbox, here)
                is_done = await relay.serve(stop, ready)
            if not is_done:  # from here on it forwards, at the same address, and queues nothing
                same = msgspec.structs.replace(settings, listen=relay.listen)
                await Relay(same, place, None, here).serve(stop)
            here.observer.publish(RelayStopped(EXIT_OK))
            return EXIT_OK
        finally:
            log.close()


@asynccontextmanager
async def _alone(place: Place) -> AsyncIterator[None]:
    """Hold the lock of a relay. Who decides something while none runs has it for a moment: that is waited for."""
    lock = InstanceLock(place.lock)
    await asyncio.to_thread(_acquire, lock, place.sock)
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: InstanceLock, sock: Path) -> None:
    refusal: AlreadyRunning | None = None

    def is_decided() -> bool:
        nonlocal refusal
        try:
            lock.acquire()
        except AlreadyRunning as error:
            refusal = error
            return _is_served(sock)
        refusal = None
        return True

    wait_until(is_decided, DECISION_S)
    if refusal is not None:
        raise refusal


def _is_served(sock: Path) -> bool:
    """Say whether a relay has the lock, and goes on to."""
    try:
        Api.at_socket(sock).ask("GET", "/health", timeout_s=PROBE_S)
    except (NobodyThere, ConnectionLost):  # none, or one that is stopping
        return False
    except DeadlineExceeded:
        pass
    return True


@asynccontextmanager
async def opened_outbox(path: Path, world: World) -> AsyncIterator[SqliteEnvelopeStore | None]:
    """Open the outbox; None, and an alarm, if its file is damaged: it stays as it is until it was recovered."""
    finish_salvage(path)
    try:
        outbox = SqliteEnvelopeStore.open(path)
    except StoreCorrupt as error:
        world.observer.publish(OutboxUnusable(path.name, error.detail))
        yield None
        return
    try:
        yield outbox
    finally:
        await asyncio.to_thread(outbox.close)


class Relay:
    def __init__(
        self, settings: EdgeSettings, place: Place, outbox: SqliteEnvelopeStore | None, world: World
    ) -> None:
        self._settings = settings
        self._place = place
        self._outbox = outbox
        self._world = world
        self._is_damaged = asyncio.Event()
        self.listen = settings.listen  # with the port that it was given, once it serves
        self._routes = read_routes(settings)
        limits = settings.limits
        self._upstream = Upstream(
            settings.upstream,
            credential=read_credential(settings, place),
            networks=parse_networks(settings.networks),
            limits=UpstreamLimits(
                connections_max=limits.connections_max,
                timeout_s=limits.request_timeout_s,
                answer_bytes_max=limits.answer_bytes_max,
            ),
        )
        self._reach = reach = Reach(self._probe, world)
        self._replay = None if outbox is None else Replay(outbox, self._upstream, reach, world)
        host = socket.gethostname()
        self._recovery = Recovery(outbox, self._replay, reach, host, world)
        self._relaying = Relaying(
            routes=self._routes,
            upstream=self._upstream,
            outbox=outbox,
            reach=reach,
            queued=self._recovery,
            world=world,
        )
        self.parts = Parts(
            version=version("claudemesh"),
            upstream=self._upstream.origin.authority,
            listen=lambda: self.listen,
            relaying=self._relaying,
            reading=Reading(self._routes, self._upstream, outbox, reach, world),
            operating=None if outbox is None else Operating(outbox, self._recovery.queued, world),
            outbox=outbox,
            metrics=EdgeMetrics(outbox, reach, world),
            reach=reach,
            body_bytes_max=limits.body_bytes_max,
            damaged=self._notice_damage,
            world=world,
        )
        self.parts.metrics.attach(world.observer)
        if outbox is not None:
            # What waits is sent however full it is: nothing else would ever make room.
            outbox.limit(accepts_bytes=limits.reserved_bytes, claims_bytes=sys.maxsize)

    async def serve(self, stop: asyncio.Event, ready: Ready = lambda _: None) -> bool:
        """Serve until `stop` is set, or until the outbox turns out to be damaged: then False."""
        if self._replay is not None:
            self._replay.key_expiry_ms = await self._remembered_expiry()
            await self._replay.start()
            self._replay.upstream_is_there()
        async with self._servers() as url:
            self._world.observer.publish(RelayStarted(self._upstream.origin.authority, self.parts.version))
            ready(url)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._unless_damaged(work)) for work in self._work()]
                ends = [group.create_task(event.wait()) for event in (stop, self._is_damaged)]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in (*tasks, *ends):
                    task.cancel()
        await self._upstream.close()
        return stop.is_set()

    async def _unless_damaged(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except* StoreCorrupt as found:
            self._notice_damage(str(found.exceptions[0]))

    def _notice_damage(self, reason: str) -> None:
        if not self._is_damaged.is_set():
            self._world.observer.publish(OutboxUnusable(self._place.outbox.name, reason))
            self._is_damaged.set()

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        work: list[Coroutine[Any, Any, None]] = [
            self._reach.run(),
            self._recovery.run(self._routes.recovery, self._relaying.write),
            self._learn_expiry(),
        ]
        if self._replay is not None and self._outbox is not None:
            work += [
                self._replay.run(),
                sweep_for_ever(self._outbox, self._settings.keeping.acked_days, self._world),
            ]
        return work

    # --- what the upstream is asked beside writes --------------------------------------------------------

    async def _probe(self) -> bool:
        """Say whether the upstream answers at all; what it says of its own health is for its operator."""
        try:
            answer = await self._upstream.request(Outgoing("GET", self._routes.probe), timeout_s=PROBE_S)
        except (Unreached, Unanswered):
            return False
        except BadGateway:
            return True
        return answer.status not in UPSTREAM_AWAY

    async def _learn_expiry(self) -> None:
        """Ask how long the upstream remembers keys, until it has said; then once a day."""
        while True:
            learned = await self._ask_expiry() if self._reach.is_online else None
            if learned is not None and self._replay is not None and self._outbox is not None:
                self._replay.key_expiry_ms = learned
                with suppress(DependencyError):
                    await self._outbox.remember(KEY_EXPIRY, str(learned))
            await asyncio.sleep(60.0 if learned is None else DAY_MS / 1000)

    async def _ask_expiry(self) -> int | None:
        try:
            answer = await self._upstream.request(Outgoing(method="GET", path=POLICY_PATH))
            published = orjson.loads(answer.body) if answer.status == 200 else {}  # noqa: PLR2004
        except (Unreached, Unanswered, MeshError, orjson.JSONDecodeError):
            return None
        expiry_s = published.get("expiry_s") if isinstance(published, dict) else None
        if not isinstance(expiry_s, int) or isinstance(expiry_s, bool) or expiry_s <= 0:
            return None
        return min(expiry_s * 1000, KEY_EXPIRY_MAX_MS)

    async def _remembered_expiry(self) -> int:
        remembered = None if self._outbox is None else await self._outbox.recall(KEY_EXPIRY)
        return int(remembered) if remembered else self._settings.keeping.key_expiry_days * DAY_MS

    # --- servers -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _servers(self) -> AsyncIterator[str]:
        observer = self._world.observer
        own = public_routes(self.parts)
        limits = ServerLimits(request_bytes_max=2 * self._settings.limits.body_bytes_max)
        address = parse_listen(self._settings.listen)
        origin = self._upstream.origin
        if origin.port == address.port and is_loopback(origin.host):
            raise ConfigError(f"upstream = {origin.authority} is the relay itself, which listens there")
        listener = bind_tcp(address.host, address.port)
        url = address.url(port_of(listener))
        self.listen = url.removeprefix("http://")
        relay = RelayApp(self.parts, frozenset(route.path for route in own), Router(own, observer))
        guard = LocalGuard(
            InFlight(relay, observer),
            TokenFile(self._place.folder / "local_token", self._world.clock, observer)
            if self._settings.require_token
            else None,
            port=port_of(listener),
            clock=self._world.clock,
            observer=observer,
            limit=None,
            public_paths=frozenset({"/health"}),
        )
        operators = Router([*own, *operator_routes(self.parts)], observer)
        servers = [
            Server(guard, [listener], observer, limits=limits),
            Server(operators, [bind_unix(self._place.sock, self._place.runtime_dir)], observer),
        ]
        try:
            for server in servers:
                await server.start()
            yield url
        finally:
            await asyncio.gather(*(server.stop(STOP_GRACE_S) for server in servers))


async def sweep_for_ever(outbox: SqliteEnvelopeStore, days: int, world: World) -> None:
    """Empty settled envelopes that are old, now and every hour; their keys stay known."""
    while True:
        with suppress(DependencyError):  # no room even for that: the next time
            await empty_settled(outbox, world.earliest_ms() - days * DAY_MS)
        await asyncio.sleep(SWEEP_EVERY_S)


def read_routes(settings: EdgeSettings) -> Policy:
    if settings.routes is None:
        return load_built_in()
    try:
        return load_policy(Path(settings.routes).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the route policy {settings.routes} cannot be read") from error


def read_credential(settings: EdgeSettings, place: Place) -> Callable[[], str | None]:
    """Return how the upstream's credential is found: in its file anew for every request, as it may be changed."""
    token = read_token(settings.token_file, place.token)
    if settings.token_file is None:
        return lambda: token

    def read_again() -> str | None:
        """Return what stands there now; if that cannot be shown, it may be later, and until then all waits."""
        try:
            return read_token(settings.token_file, None)
        except ConfigError as error:
            raise Unreached(str(error)) from error

    return read_again


__all__: Sequence[str] = ("Place", "Relay", "opened_outbox", "run", "serve")
