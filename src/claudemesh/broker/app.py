"""The broker as a process: what is started, in which order it stops, and what an operator may run beside it.

Stopping goes from the outside in: no new connections, the standing ones told to go, then what is still being
committed, then the lease clock and the file. Whatever is cut short there is as after a crash.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from claudemesh.asgi.guard import LocalGuard
from claudemesh.asgi.messages import App
from claudemesh.asgi.server import Server
from claudemesh.asgi.server import run as run_loop
from claudemesh.asgi.sockets import Address, bind_tcp, parse_listen, port_of
from claudemesh.asgi.tls import Certificate
from claudemesh.asgi.tokens import TokenFile
from claudemesh.broker.assembly import Parts, assemble, broker_version, server_limits
from claudemesh.broker.depth import Depth
from claudemesh.broker.events import BrokerStarted, BrokerStopped, TaskFailed
from claudemesh.broker.hub import Hub
from claudemesh.broker.limiters.memory import MemoryLimiter
from claudemesh.broker.metering import BrokerMetrics
from claudemesh.broker.planned import execute_plan, read_plan
from claudemesh.broker.ports import Limiter, Stores
from claudemesh.broker.presence.herald import Herald
from claudemesh.broker.presence.standstill import Standstill
from claudemesh.broker.presence.tokens import ResumeTokens, parse_seeds
from claudemesh.broker.presence.watchdog import Watchdog
from claudemesh.broker.seating import Seating
from claudemesh.broker.settings import BrokerSettings
from claudemesh.broker.stores.opening import check_is_there, opened
from claudemesh.broker.switchboard import Switchboard
from claudemesh.broker.upkeep import Upkeep
from claudemesh.kernel.errors import ConfigError, MeshError
from claudemesh.kernel.rhythm import Rhythm, derive_rhythm
from claudemesh.runtime.extras import how_to_get
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.logs import JsonLog
from claudemesh.runtime.world import World, real_world

EXIT_OK: Final = 0
STOP_GRACE_S: Final = 5.0
DEPTH_EVERY_S: Final = 15.0

_MEMORY: Final = "memory:"
_REDIS: Final = ("redis://", "rediss://", "unix://")

Ready = Callable[[str], None]  # called with the broker's URL once it answers
Task = asyncio.Task[None]


def run(settings: BrokerSettings, ready: Ready = lambda _: None, *, log_to_stderr: bool = True) -> int:
    """Run until SIGTERM or SIGINT; return the exit code. Whatever keeps it from starting is raised.

    With TLS, SIGHUP reads the certificate again.
    """

    async def main() -> int:
        world = real_world()
        JsonLog(world.clock, stderr=log_to_stderr).attach(world.observer)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        # Without TLS there is nothing to read again, and it must not end the broker either.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
        return await serve(settings, ready, stop, world)

    return run_loop(main)


async def serve(settings: BrokerSettings, ready: Ready, stop: asyncio.Event, world: World | None = None) -> int:
    """Serve until `stop` is set. One broker a file: AlreadyRunning if there is one."""
    here = real_world() if world is None else world
    address = judge_listen(settings)
    async with aclosing(make_limiter(settings, here)) as limiter, opened(settings, here, alone=True) as stores:
        await _serve(settings, here, stores, limiter, address, ready, stop)
    here.observer.publish(BrokerStopped())
    return EXIT_OK


# --- what an operator runs beside it ---------------------------------------------------------------


async def check(settings: BrokerSettings) -> dict[str, Any]:
    """Return the quick orphan check as `broker check --json` prints it; a broker may be running."""
    async with _upkeep(settings) as upkeep:
        items = [msgspec.to_builtins(violation) for violation in await upkeep.check()]
    return {"violations": len(items), "items": items}


async def sweep(settings: BrokerSettings) -> dict[str, int]:
    """Run the retention sweep once, as `broker sweep --json` prints it; a broker may be running."""
    async with _upkeep(settings) as upkeep:
        result = await upkeep.sweep()
    return {"messages": result.messages, "dead_letters": result.dead_letters, "ids": result.ids}


async def sweep_planned(settings: BrokerSettings, file: Path) -> dict[str, int]:
    """Delete what a plan names and retention allows, as `broker sweep --plan FILE --json` prints it."""
    plan = read_plan(file)
    check_is_there(settings)
    world = real_world()
    async with opened(settings, world, alone=False) as stores:
        return await execute_plan(plan, stores.directory, _upkeep_of(settings, world, stores))


async def rotate_resume_key(settings: BrokerSettings) -> dict[str, int]:
    """Sign resume tokens with a new key; those of the one before stay good, and no others."""
    if settings.resume_token_key is not None:
        raise ConfigError("the keys come from RESUME_TOKEN_KEY: put a new one first in it, and the old one behind")
    check_is_there(settings)
    async with opened(settings, real_world(), alone=False) as stores:
        return {"keys": len(await stores.upkeep.rotate_resume_seed(KeyPair.generate().seed))}


async def restored(settings: BrokerSettings) -> dict[str, int]:
    """Begin a new epoch of a store that came back from a backup, as `broker restored --json` prints it."""
    check_is_there(settings)
    world = real_world()
    async with opened(settings, world, alone=True) as stores:
        return {"epoch": await stores.upkeep.begin_epoch(world.clock.wall_ms())}


@asynccontextmanager
async def _upkeep(settings: BrokerSettings) -> AsyncIterator[Upkeep]:
    check_is_there(settings)
    world = real_world()
    async with opened(settings, world, alone=False) as stores:
        yield _upkeep_of(settings, world, stores)


def _upkeep_of(settings: BrokerSettings, world: World, stores: Stores) -> Upkeep:
    days = settings.retention.message_days
    return Upkeep(stores.upkeep, stores.work, stores.presence, world.clock, world.observer, days)


# --- what the settings say -------------------------------------------------------------------------


def make_limiter(settings: BrokerSettings, world: World) -> Limiter:
    """Return what `limiter` names. No error quotes it, since a URL may hold a password."""
    window_ms = settings.limits.window_s * 1000
    if settings.limiter == _MEMORY:
        return MemoryLimiter(world.clock, window_ms)
    if not settings.limiter.startswith(_REDIS):
        raise ConfigError(f"limiter begins with none of {_MEMORY}, {', '.join(_REDIS)}")
    try:
        from claudemesh.broker.limiters.redis import RedisLimiter  # noqa: PLC0415  an extra that few install
    except ModuleNotFoundError:
        raise ConfigError(f"a limiter in Redis needs an extra: {how_to_get('redis')}") from None
    return RedisLimiter(settings.limiter, window_ms)


def derive_settings_rhythm(settings: BrokerSettings) -> Rhythm:
    presence = settings.presence
    return derive_rhythm(presence.lease_ttl_ms, presence.ping_interval_ms, presence.stale_pong_ms)


async def make_tokens(settings: BrokerSettings, stores: Stores, world: World, rhythm: Rhythm) -> ResumeTokens:
    """Sign resume tokens with the keys that the settings name, else with those of the store."""

    async def load() -> list[bytes]:
        if settings.resume_token_key is None:
            return await stores.upkeep.resume_seeds(KeyPair.generate().seed)
        try:
            return parse_seeds(settings.resume_token_key)
        except ValueError:
            raise ConfigError("RESUME_TOKEN_KEY is not 64 hex digits, or several of them with commas") from None

    return ResumeTokens(load, await load(), world.clock, rhythm.lease_ttl_ms)


def judge_listen(settings: BrokerSettings) -> Address:
    """Return where to listen; beyond this machine only with an admin token, since meshes are made there."""
    address = parse_listen(settings.listen)
    is_reached = settings.public_hosts or not address.is_loopback
    if is_reached and settings.admin_token_file is None:
        reached = ", ".join(settings.public_hosts) or address.host
        raise ConfigError(f"{reached} can be reached from other machines: that needs an admin token file")
    return address if settings.tls_cert is None else address._replace(scheme="https")


def read_certificate(settings: BrokerSettings, world: World) -> Certificate | None:
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise ConfigError("tls_cert and tls_key go together: name both or none")
    return Certificate(Path(cert), Path(key), world.observer)


def read_admin_token(settings: BrokerSettings, world: World) -> TokenFile | None:
    path = settings.admin_token_file
    return None if path is None else TokenFile(Path(path), world.clock, world.observer)


# --- while it runs ---------------------------------------------------------------------------------


async def _serve(  # noqa: PLR0913, PLR0917  what it was started with
    settings: BrokerSettings,
    world: World,
    stores: Stores,
    limiter: Limiter,
    address: Address,
    ready: Ready,
    stop: asyncio.Event,
) -> None:
    keys = KeyPair(await stores.upkeep.broker_seed(KeyPair.generate().seed))
    metrics = BrokerMetrics()
    metrics.attach(world.observer)
    admin = read_admin_token(settings, world)
    certificate = read_certificate(settings, world)
    if certificate is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, certificate.reload)
    hub = Hub(world.observer)
    board = Switchboard(hub, stores.bus, world.observer, stores.deliveries.prime)
    rhythm = derive_settings_rhythm(settings)
    standstill = Standstill(world.clock, rhythm.tick_ms, stores.presence.stand_still, world.observer)
    herald = Herald(stores.presence, board, rhythm, standstill, world.observer)
    watchdog = Watchdog(rhythm, world.clock, standstill, world.roll, world.observer)
    seating = Seating(stores.seats, hub, board, herald, world.clock, world.observer)
    depth = Depth(stores.deliveries, world.clock)
    tokens = await make_tokens(settings, stores, world, rhythm)
    await stores.seats.start()
    await seating.beat()
    listener = bind_tcp(address.host, address.port, allow_any=not address.is_loopback)
    port = port_of(listener)
    async with _background(world) as spawn:
        parts = Parts(
            settings=settings,
            world=world,
            stores=stores,
            limiter=limiter,
            keys=keys,
            admin=admin,
            hub=hub,
            board=board,
            seating=seating,
            herald=herald,
            tokens=tokens,
            watchdog=watchdog,
            depth=depth,
            metrics=metrics,
            spawn=spawn,
            stop=stop,
        )
        assembled = assemble(parts)
        app: App = assembled.app
        if address.is_loopback:  # a web page must not get to it through the browser of this machine
            app = LocalGuard(
                app,
                None,
                port=port,
                clock=world.clock,
                observer=world.observer,
                limit=None,
                public_hosts=settings.public_hosts,
            )
        tls = None if certificate is None else certificate.context
        server = Server(app, [listener], world.observer, limits=server_limits(settings), tls=tls)
        await server.start()
        keeping = [
            spawn(
                _upkeep_of(settings, world, stores).run(
                    seating, assembled.look_over, settings.retention.sweep_every_s
                )
            )
        ]
        standstill.begin()
        keeping += [spawn(_watch_depth(depth, metrics)), spawn(watchdog.run()), spawn(herald.run())]
        if not stores.bus.is_alone:
            keeping.append(spawn(board.look_again()))
        world.observer.publish(BrokerStarted(address.url(port), broker_version()))
        ready(address.url(port))
        try:
            await stop.wait()
        finally:
            for task in keeping:
                task.cancel()
            await server.stop(STOP_GRACE_S)
    with suppress(MeshError):
        await stores.seats.beat()


@asynccontextmanager
async def _background(world: World) -> AsyncIterator[Callable[[Coroutine[Any, Any, None]], Task]]:
    """Own what goes on beside the connections; at the end it is waited for."""

    async def guarded(coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception as error:  # noqa: BLE001  one that fails must not take the others with it
            world.observer.publish(TaskFailed.of(getattr(coroutine, "__qualname__", ""), error))

    async with asyncio.TaskGroup() as group:
        yield lambda coroutine: group.create_task(guarded(coroutine))


async def _watch_depth(depth: Depth, metrics: BrokerMetrics) -> None:
    while True:
        with suppress(MeshError):  # it is told when the store answers again
            metrics.depth.set(await depth.count())
        await asyncio.sleep(DEPTH_EVERY_S)
