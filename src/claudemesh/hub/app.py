"""The hub as a process: what is started, and in which order it stops.

From the outside in: the guard, the limits, the keys, the routes. Stopping goes the same way: no new connections,
the requests under way answered, then the store. Whatever is cut short there is as after a crash, and the key of the
request says whether it was done.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from claudemesh.asgi.guard import LocalGuard
from claudemesh.asgi.limits import InFlight
from claudemesh.asgi.messages import App
from claudemesh.asgi.routes import Router
from claudemesh.asgi.server import Server
from claudemesh.asgi.server import run as run_loop
from claudemesh.asgi.sockets import Address, bind_tcp, parse_listen, port_of
from claudemesh.asgi.tokens import TokenFile
from claudemesh.hub.bodies import Health
from claudemesh.hub.events import HubStarted, HubStopped, SweepFailed
from claudemesh.hub.http import PUBLIC_PATHS, HttpParts, hub_routes
from claudemesh.hub.metering import HubMetrics
from claudemesh.hub.ports import Stores
from claudemesh.hub.service import HubService
from claudemesh.hub.settings import HubSettings
from claudemesh.hub.stores.opening import check_is_there, opened, store_kind
from claudemesh.idempotency import WriteIdempotencyMiddleware
from claudemesh.idempotency.events import KeysSwept
from claudemesh.idempotency.middleware import identify_caller
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.logs import JsonLog
from claudemesh.runtime.world import World, real_world
from claudemesh.wire.instants import render_instant

EXIT_OK: Final = 0
STOP_GRACE_S: Final = 5.0
SWEEP_EVERY_S: Final = 3_600.0
ANSWER_BYTES_MAX: Final = 4 << 20  # of a bulk in which every task is told as it stands

Ready = Callable[[str], None]  # called with the hub's URL once it answers


def run(settings: HubSettings, ready: Ready = lambda _: None, *, log_to_stderr: bool = True) -> int:
    """Run until SIGTERM or SIGINT; return the exit code. Whatever keeps it from starting is raised."""

    async def main() -> int:
        world = real_world()
        JsonLog(world.clock, stderr=log_to_stderr).attach(world.observer)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)  # a terminal that goes away
        return await serve(settings, ready, stop, world)

    return run_loop(main)


async def serve(settings: HubSettings, ready: Ready, stop: asyncio.Event, world: World | None = None) -> int:
    """Serve until `stop` is set. One hub a file: AlreadyRunning if there is one."""
    here = real_world() if world is None else world
    address = judge_listen(settings)
    async with opened(settings, here, alone=True) as stores:
        await _serve(settings, here, stores, address, ready, stop)
    here.observer.publish(HubStopped())
    return EXIT_OK


async def list_keys(settings: HubSettings, after: int, limit: int) -> dict[str, Any]:
    """Return keys as `idempotency list --json` prints them, nothing of the answers; a hub may be running."""
    check_is_there(settings)
    async with opened(settings, real_world(), alone=False) as stores:
        rows = await stores.keys.page(after, limit)
    keys = [
        {
            "seq": row.seq,
            "caller": row.caller,
            "key": row.key,
            "method": row.method,
            "path": row.path,
            "state": str(row.state),
            "status": row.status,
            "request_hash": row.fingerprint.hex(),
            "source_host": row.source_host,
            "source_agent": row.source_agent,
            "first_seen": render_instant(row.first_seen),
            "last_seen": render_instant(row.last_seen),
            "expires_at": render_instant(row.expires_at),
        }
        for row in rows
    ]
    return {"keys": keys, "next_after": rows[-1].seq if len(rows) == limit else None}


# --- what the settings say -------------------------------------------------------------------------


def judge_listen(settings: HubSettings) -> Address:
    """Return where to listen; beyond this machine only with a token."""
    address = parse_listen(settings.listen)
    if not address.is_loopback and settings.token_file is None:
        raise ConfigError(f"{address.host} can be reached from other machines: that needs a token_file")
    return address


# --- while it runs ---------------------------------------------------------------------------------


def assemble(settings: HubSettings, world: World, stores: Stores, metrics: HubMetrics) -> App:
    """Put together what stands behind the guard."""
    service = HubService(stores.hub, world)
    parts = HttpParts(
        service=service,
        metrics=metrics.metrics,
        health=_health(settings, world, service),
        now_ms=world.clock.wall_ms,
        version=version("claudemesh"),
        needs_token=settings.token_file is not None,
    )
    router = Router(hub_routes(parts), world.observer)
    keyed = WriteIdempotencyMiddleware(
        router,
        stores.keys,
        # One token is one caller, also after it was changed: else a retry under the new one would be done again.
        caller=identify_caller if settings.token_file is None else lambda _: "",
        applies=lambda method, path: method != "GET" and router.serves(method, path),
        answer_bytes_max=ANSWER_BYTES_MAX,
        expiry_days=settings.key_expiry_days,
        world=world,
    )
    return InFlight(keyed, world.observer)


async def _serve(  # noqa: PLR0913, PLR0917  what it was started with
    settings: HubSettings, world: World, stores: Stores, address: Address, ready: Ready, stop: asyncio.Event
) -> None:
    metrics = HubMetrics()
    metrics.attach(world.observer)
    path = settings.token_file
    token = None if path is None else TokenFile(Path(path), world.clock, world.observer)
    listener = bind_tcp(address.host, address.port, allow_any=not address.is_loopback)
    port = port_of(listener)
    guarded = LocalGuard(
        assemble(settings, world, stores, metrics),
        token,
        port=port if address.is_loopback else None,
        clock=world.clock,
        observer=world.observer,
        limit=None,
        public_paths=PUBLIC_PATHS,
    )
    server = Server(guarded, [listener], world.observer)
    await server.start()
    sweeping = asyncio.create_task(_sweep(stores, world))
    world.observer.publish(HubStarted(address.url(port), version("claudemesh"), store_kind(settings)))
    ready(address.url(port))
    try:
        await stop.wait()
    finally:
        sweeping.cancel()
        await server.stop(STOP_GRACE_S)
        with suppress(asyncio.CancelledError):
            await sweeping


async def _sweep(stores: Stores, world: World) -> None:
    """Forget keys that expired, in pages, now and then until cancelled: also while nobody writes."""
    while True:
        try:
            while swept := await stores.keys.sweep(world.earliest_ms()):
                world.observer.publish(KeysSwept(swept))
        except Exception as error:  # noqa: BLE001  whatever it was, the next turn comes
            world.observer.publish(SweepFailed.of(error))
        await asyncio.sleep(SWEEP_EVERY_S)


def _health(settings: HubSettings, world: World, service: HubService) -> Callable[[], Awaitable[Health]]:
    clock, store = world.clock, store_kind(settings)
    started_ms = clock.monotonic_ms()

    async def health() -> Health:
        newest = (await service.summary()).newest  # also shows that the store answers
        return Health(
            status="ok",
            version=version("claudemesh"),
            store=store,
            writes=newest[0].seq if newest else 0,
            uptime_s=(clock.monotonic_ms() - started_ms) // 1000,
        )

    return health
