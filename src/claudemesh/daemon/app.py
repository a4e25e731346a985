"""The daemon put together: settings -> stores -> services -> servers, and the order in which it all stops.

Stopping goes from the outside in: no new requests, while those under way are finished; then neither sender nor
connection; and the files last. Whatever is cut short there is as after a crash, which the next start knows how to
take up.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

from claudemesh.asgi.guard import LocalGuard
from claudemesh.asgi.limits import InFlight
from claudemesh.asgi.policy import RateLimit
from claudemesh.asgi.routes import Router
from claudemesh.asgi.server import Server, ServerLimits
from claudemesh.asgi.server import run as run_loop
from claudemesh.asgi.sockets import bind_tcp, bind_unix, port_of
from claudemesh.asgi.tokens import AnyOf, TokenFile
from claudemesh.daemon import identity as identities
from claudemesh.daemon.connector import Connector
from claudemesh.daemon.credentials import Credentials
from claudemesh.daemon.events import CloneSuspected, DaemonStarted, DaemonStopped, InboxSetAside
from claudemesh.daemon.feed import Feed
from claudemesh.daemon.handshake import LinkSettings, socket_url
from claudemesh.daemon.http import daemon_routes, public_paths
from claudemesh.daemon.http.extension import Extend, Extension, extend_by_nothing
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.identity import Identity
from claudemesh.daemon.marks import Marks
from claudemesh.daemon.metrics import DaemonMetrics
from claudemesh.daemon.operate import Operating
from claudemesh.daemon.presence import PresenceLog
from claudemesh.daemon.pressure import Pressure
from claudemesh.daemon.receive import Receiving
from claudemesh.daemon.service import Accepting
from claudemesh.daemon.sessions import Sessions
from claudemesh.daemon.settings import DaemonSettings, LiveConfig
from claudemesh.daemon.settings import Tracing as TracingConfig
from claudemesh.daemon.stores.schemas import SCHEMA_VERSION
from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore
from claudemesh.daemon.sweep import sweep_for_ever
from claudemesh.daemon.tracing import Tracing
from claudemesh.kernel.errors import ConfigError, StoreCorrupt
from claudemesh.outbox.stores.sqlite.salvage import finish_salvage
from claudemesh.runtime.extras import how_to_get
from claudemesh.runtime.home import InstanceLock, ensure_private_dir, write_private
from claudemesh.runtime.logs import JsonLog
from claudemesh.runtime.world import World, real_world
from claudemesh.wire.negotiation import NegotiationFailed

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
STOP_GRACE_S: Final = 5.0

Ready = Callable[[Path], None]  # called with the socket's path once the daemon answers


def run(settings: DaemonSettings, ready: Ready = lambda _: None, extend: Extend = extend_by_nothing) -> int:
    """Run until SIGTERM or SIGINT; return the exit code. Whatever keeps it from starting is raised."""

    async def main() -> int:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await serve(settings, real_world(), stop, ready, extend)

    return run_loop(main)


async def serve(
    settings: DaemonSettings,
    world: World,
    stop: asyncio.Event,
    ready: Ready = lambda _: None,
    extend: Extend = extend_by_nothing,
) -> int:
    """Serve until `stop` is set. One daemon a state directory: AlreadyRunning if there is one."""
    ensure_private_dir(settings.state_dir)
    with InstanceLock(settings.state_dir / "pid"):
        log = JsonLog(world.clock, settings.state_dir / "daemon.log", stderr=settings.log_to_stderr)
        log.attach(world.observer)
        try:
            exit_code = await _serve(settings, world, stop, ready, extend)
            world.observer.publish(DaemonStopped(exit_code))
            return exit_code
        finally:
            log.close()


async def _serve(settings: DaemonSettings, world: World, stop: asyncio.Event, ready: Ready, extend: Extend) -> int:
    identity = identities.load(settings.state_dir, world.ids.ulid)
    policy = settings.config.clone.policy
    is_elsewhere = identities.judge_host(settings.state_dir, policy) == "differs"
    async with _traced(settings.config.tracing, world, identity), _stores(settings, world) as (outbox, inbox):
        parts = _assemble(settings, world, identity, outbox, inbox)
        if is_elsewhere and policy == "warn":  # not before somebody counts it
            world.observer.publish(CloneSuspected(policy))
        await parts.receiving.start()
        async with AsyncExitStack() as serving:
            sock = await serving.enter_async_context(_servers(parts, extend(parts)))
            world.observer.publish(DaemonStarted(identity.joined.slug, identity.joined.name, parts.version))
            ready(sock)
            return await _work(parts, stop, serving)


def _assemble(
    settings: DaemonSettings,
    world: World,
    identity: Identity,
    outbox: SqliteOutboxStore,
    inbox: SqliteInboxStore,
) -> Parts:
    live = LiveConfig(settings.config)
    feed = Feed(inbox, world)
    credentials = Credentials(identity.keys, settings.ephemeral_ttl_ms)
    presence = PresenceLog(inbox, feed, world, (identity.keys.pubkey, credentials.session_pubkey))
    receiving = Receiving(outbox=outbox, inbox=inbox, feed=feed, presence=presence, live=live, world=world)
    metrics = DaemonMetrics(outbox, receiving.lag_ms)
    metrics.attach(world.observer)
    accepting = Accepting(outbox, receiving.directory, receiving.conditions, receiving, world)
    link = LinkSettings(
        broker_url=identity.joined.broker_url,
        socket_url=socket_url(identity.joined.broker_url),
        broker_key=identity.joined.broker_key,
        mesh_id=identity.joined.mesh_id,
        instance_id=identity.instance_id,
        lease_ttl_ms=settings.lease_ttl_ms,
        ping_interval_ms=settings.ping_interval_ms,
        stale_pong_ms=settings.stale_pong_ms,
    )
    sessions = Sessions(
        member=identity.keys, link=link, live=live, world=world, inbox=inbox, main=lambda: receiving.link
    )
    receiving.after_connecting = sessions.connected
    return Parts(
        version=version("claudemesh"),
        settings=settings,
        live=live,
        tokens=TokenFile(settings.state_dir / "local_token", world.clock, world.observer),
        identity=identity,
        world=world,
        metrics=metrics,
        pressure=Pressure(outbox, inbox, live, receiving.conditions, world.observer),
        outbox=outbox,
        inbox=inbox,
        accepting=accepting,
        receiving=receiving,
        operating=Operating(outbox, accepting, receiving, world),
        tracing=Tracing(outbox, inbox, receiving),
        connector=Connector(link, credentials, receiving, world),
        feed=feed,
        marks=Marks(inbox, receiving, world),
        sessions=sessions,
        started_ms=world.clock.monotonic_ms(),
    )


def _traced(tracing: TracingConfig, world: World, identity: Identity) -> AbstractAsyncContextManager[None]:
    """Send spans while this lasts, if a collector is named; what sends them is loaded only then."""
    if not tracing.endpoint:
        return nullcontext()
    try:
        from claudemesh.daemon.spans import sending_spans  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"`tracing.endpoint` is set, and what sends spans is not installed: {how_to_get('otel')}"
        ) from error
    return sending_spans(tracing, world, identity)


# --- files -------------------------------------------------------------------------------------------


@asynccontextmanager
async def _stores(
    settings: DaemonSettings, world: World
) -> AsyncIterator[tuple[SqliteOutboxStore, SqliteInboxStore]]:
    outbox, inbox = _open_in_memory() if settings.in_memory else _open_files(settings.state_dir, world)
    try:
        yield outbox, inbox
    finally:
        await asyncio.to_thread(outbox.close)
        await asyncio.to_thread(inbox.close)


def _open_in_memory() -> tuple[SqliteOutboxStore, SqliteInboxStore]:
    return SqliteOutboxStore.in_memory(), SqliteInboxStore.in_memory()


def _open_files(state_dir: Path, world: World) -> tuple[SqliteOutboxStore, SqliteInboxStore]:
    outbox = _open_outbox(state_dir / "outbox.db")
    try:
        inbox = _open_inbox(state_dir / "inbox.db", world)
        write_private(state_dir / "schema_version", f"{SCHEMA_VERSION}\n".encode())
    except BaseException:
        outbox.close()
        raise
    return outbox, inbox


def _open_outbox(path: Path) -> SqliteOutboxStore:
    finish_salvage(path)
    try:
        return SqliteOutboxStore.open(path)
    except StoreCorrupt as error:
        raise StoreCorrupt(
            f"{error.detail}. Nothing is thrown away: `claudemesh daemon recover` saves what can be read"
        ) from error


def _open_inbox(path: Path, world: World) -> SqliteInboxStore:
    """Open the inbox. A damaged one is set aside: what is in it came from the broker, which keeps it.

    One that is not there is begun as one that was lost, so that a cut between the two is no loss; a new member's
    has nothing to fetch.
    """
    is_new = not path.exists()
    try:
        inbox = SqliteInboxStore.open(path)
    except StoreCorrupt:
        aside = path.with_name(f"{path.name}.corrupt-{world.clock.wall_ms()}")
        for companion in ("-wal", "-shm", ""):  # the file itself last: until then it is there, and damaged
            with suppress(FileNotFoundError):
                path.with_name(path.name + companion).rename(aside.with_name(aside.name + companion))
        world.observer.publish(InboxSetAside(aside.name))
        inbox, is_new = SqliteInboxStore.open(path), True
    if is_new:
        inbox.begin_restore()
    return inbox


# --- servers -----------------------------------------------------------------------------------------


@asynccontextmanager
async def _servers(parts: Parts, extension: Extension) -> AsyncIterator[Path]:
    """Serve on the socket and, where it is enabled, on a loopback port behind the guard."""
    observer, ipc, state_dir = parts.world.observer, parts.settings.config.ipc, parts.settings.state_dir
    router = Router(daemon_routes(parts, extension), observer, body_bytes_max=ipc.body_bytes_max)
    app = InFlight(router, observer, ipc.in_flight_max)
    # Twice, so that one that is too large by a little is read to its end, and answered.
    limits = ServerLimits(request_bytes_max=2 * max(ipc.body_bytes_max, ipc.batch_bytes_max))
    sock = state_dir / "sock"
    unix = Server(app, [bind_unix(sock, parts.settings.runtime_dir)], observer, limits=limits)
    servers = [unix]
    if parts.settings.tcp:
        listener = bind_tcp("127.0.0.1", ipc.port)
        port = port_of(listener)
        guard = LocalGuard(
            extension.door(app),
            AnyOf(parts.tokens, extension.tokens),
            port=port,
            clock=parts.world.clock,
            observer=observer,
            limit=RateLimit(ipc.requests_per_s, ipc.burst),
            public_paths=public_paths(ipc) | extension.public_paths,
        )
        servers.append(Server(guard, [listener], observer, limits=limits))
        write_private(state_dir / "http.port", f"{port}\n".encode())
    else:
        (state_dir / "http.port").unlink(missing_ok=True)
    try:
        for server in servers:
            await server.start()
        yield sock
    finally:
        await asyncio.gather(*(server.stop(STOP_GRACE_S) for server in servers))
        (state_dir / "http.port").unlink(missing_ok=True)


# --- work --------------------------------------------------------------------------------------------


async def _work(parts: Parts, stop: asyncio.Event, serving: AsyncExitStack) -> int:
    """Run the sender and the connection until told to stop, or until no broker's terms can be agreed to."""
    exit_code = EXIT_OK
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(parts.receiving.drain.run()),
                group.create_task(parts.connector.run()),
                group.create_task(parts.feed.run()),
                group.create_task(parts.marks.run()),
                group.create_task(parts.pressure.run()),
                group.create_task(parts.sessions.run()),
                group.create_task(sweep_for_ever(parts.outbox, parts.inbox, parts.live, parts.world)),
            ]
            await _until(stop, parts.settings.ephemeral_ttl_ms)
            await serving.aclose()  # requests under way may need what runs here
            if parts.settings.ephemeral_ttl_ms is not None:
                await parts.receiving.say_goodbye()  # its key is gone with it: nobody needs to wait for a return
            for task in tasks:
                task.cancel()
    except* NegotiationFailed:  # told where it happened
        exit_code = EXIT_FAILED
    return exit_code


async def _until(stop: asyncio.Event, ttl_ms: int | None) -> None:
    """Wait to be told, or for the end of a daemon that was started for a while only."""
    with suppress(TimeoutError):
        async with asyncio.timeout(None if ttl_ms is None else ttl_ms / 1000):
            await stop.wait()
