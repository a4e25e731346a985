"""The parts of a broker joined together; what runs when, and what stops when, is for `app`."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from claudemesh.asgi.routes import Router
from claudemesh.asgi.server import ServerLimits
from claudemesh.asgi.tokens import TokenFile
from claudemesh.broker.calls import CallPorts, Calls
from claudemesh.broker.depth import Depth
from claudemesh.broker.hello import Doorkeeper
from claudemesh.broker.house import House, SocketSettings
from claudemesh.broker.http import Health, HttpParts, broker_routes
from claudemesh.broker.hub import Hub
from claudemesh.broker.membership import Joined, MembershipService
from claudemesh.broker.metering import BrokerMetrics
from claudemesh.broker.model import Announced, Budgeted, Bulletin, Member, Mesh
from claudemesh.broker.offer import derive_frame_bytes
from claudemesh.broker.ports import Limiter, Stores
from claudemesh.broker.presence.herald import Herald
from claudemesh.broker.presence.tokens import ResumeTokens
from claudemesh.broker.presence.watchdog import Watchdog
from claudemesh.broker.seating import Seating
from claudemesh.broker.service import AcceptService, AcceptSettings
from claudemesh.broker.settings import BrokerSettings
from claudemesh.broker.switchboard import Switchboard
from claudemesh.broker.ws import SocketApp
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World

HELLOS_AT_ONCE: Final = 8  # more bring a herd back sooner, and halve what is accepted meanwhile

Spawn = Callable[[Coroutine[Any, Any, None]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    settings: BrokerSettings
    world: World
    stores: Stores
    limiter: Limiter
    keys: KeyPair
    admin: TokenFile | None  # None: whoever reaches the broker may make meshes
    hub: Hub
    board: Switchboard
    seating: Seating
    herald: Herald
    tokens: ResumeTokens
    watchdog: Watchdog
    depth: Depth
    metrics: BrokerMetrics
    spawn: Spawn
    stop: asyncio.Event  # set when it is about to end


def broker_version() -> str:
    return version("claudemesh")


@dataclass(frozen=True, slots=True)
class Assembled:
    app: Router
    look_over: Callable[[], Awaitable[None]]  # reads again what others may have changed and not told


def assemble(parts: Parts) -> Assembled:
    """Put together the application that the server serves, and what keeps it in step with other brokers."""
    world, stores = parts.world, parts.stores
    house = _house(parts)

    async def look_over() -> None:
        await parts.seating.look_over()
        meshes = parts.hub.meshes()
        await parts.herald.look_over([mesh.id for mesh in meshes])
        await parts.tokens.reload()
        for known in meshes:
            mesh = await stores.directory.mesh(known.uid)
            if mesh is not None:
                house.service.learn(mesh)

    _listen(parts, house, look_over)
    http = HttpParts(
        membership=MembershipService(
            stores.directory, world.clock, world.ids.ulid, parts.keys.pubkey, _announcing(parts.board)
        ),
        admin=parts.admin,
        metrics=parts.metrics.metrics,
        health=_health(parts),
        version=broker_version(),
    )
    return Assembled(Router(broker_routes(http), world.observer, {"/v1/ws": SocketApp(house)}), look_over)


def _listen(parts: Parts, house: House, look_over: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Hear what the other brokers of this store tell."""

    def heard(bulletin: Bulletin) -> None:
        parts.board.heard(bulletin)
        match bulletin:
            case Budgeted():
                house.service.set_budget(bulletin)
            case Announced(mesh, _, {"seq": int(seq)}):
                parts.herald.note(mesh, seq)
            case _:
                pass

    def missed() -> None:
        if not parts.stop.is_set():
            parts.board.missed()
            parts.spawn(look_over())

    parts.stores.bus.listen(heard, missed)


def _announcing(board: Switchboard) -> Joined:
    """Return what tells the connected that somebody has joined, so that they know the name at once."""

    def joined(mesh: Mesh, member: Member) -> None:
        board.announce(mesh.id, "member_joined", {"name": member.name, "pubkey": member.pubkey})

    return joined


def server_limits(settings: BrokerSettings) -> ServerLimits:
    return ServerLimits(
        connections_max=settings.connections.connections_max,
        ws_max_size=derive_frame_bytes(settings.limits.inline_bytes),
    )


def _house(parts: Parts) -> House:
    world, stores, board = parts.world, parts.stores, parts.board
    service = _service(parts)

    ports = CallPorts(
        accepts=stores.accepts,
        deliveries=stores.deliveries,
        receipts=stores.receipts,
        directory=stores.directory,
        topics=stores.topics,
        work=stores.work,
        presence=stores.presence,
    )
    return House(
        service=service,
        calls=Calls(ports, service, board, parts.herald, world.clock),
        hub=parts.hub,
        board=board,
        seating=parts.seating,
        door=Doorkeeper(stores.directory, parts.tokens, world.clock),
        tokens=parts.tokens,
        watchdog=parts.watchdog,
        deliveries=stores.deliveries,
        receipts=stores.receipts,
        settings=_socket_settings(parts.settings),
        clock=world.clock,
        observer=world.observer,
        sign=parts.keys.sign,
        entering=asyncio.Semaphore(HELLOS_AT_ONCE),
        spawn=parts.spawn,
    )


def _service(parts: Parts) -> AcceptService:
    settings, world = parts.settings, parts.world
    return AcceptService(
        parts.stores.accepts,
        parts.limiter,
        AcceptSettings(
            inline_bytes=settings.limits.inline_bytes,
            sends_per_window=settings.limits.sends_per_window,
            dedupe_days=settings.retention.ids_days,
        ),
        clock=world.clock,
        observer=world.observer,
        told=parts.board.committed,
    )


def _socket_settings(settings: BrokerSettings) -> SocketSettings:
    return SocketSettings(
        inline_bytes=settings.limits.inline_bytes,
        dedupe_days=settings.retention.ids_days,
        lease_ttl_ms=settings.presence.lease_ttl_ms,
        hello_timeout_s=settings.connections.hello_timeout_s,
        slow_consumer_s=settings.connections.slow_consumer_s,
        version=broker_version(),
    )


def _health(parts: Parts) -> Callable[[], Awaitable[Health]]:
    clock = parts.world.clock
    started_ms = clock.monotonic_ms()

    async def health() -> Health:
        return Health(
            status="ok",
            broker_version=broker_version(),
            broker_key=parts.keys.pubkey,
            connections=parts.hub.count(),
            delivery_depth=await parts.depth.count(),  # also shows that the store answers
            uptime_s=(clock.monotonic_ms() - started_ms) // 1000,
            server_time_ms=clock.wall_ms(),
        )

    return health
