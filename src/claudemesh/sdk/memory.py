"""A whole mesh in this process, for tests of programs that use one: a real broker, and a real daemon for each name.

The services run in one thread with an event loop of its own. The daemons keep everything in memory; the broker's
store (until it has one there, too), the sockets and the identities that the daemons prove themselves with are in
a temporary directory that only the user can read. Nothing of it is shared, so any number of meshes run beside each
other, and at the end of the context nothing is left.
"""

import asyncio
import http.client
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from claudemesh.broker import app as broker_app
from claudemesh.broker.settings import BrokerSettings
from claudemesh.daemon import app as daemon_app
from claudemesh.daemon import identity
from claudemesh.daemon.identity import Joined
from claudemesh.daemon.settings import DaemonSettings
from claudemesh.kernel.clock import HOUR_MS
from claudemesh.kernel.errors import BrokerUnreachable, DependencyError
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.patience import wait_until
from claudemesh.runtime.world import real_world
from claudemesh.sdk.find import Place
from claudemesh.sdk.mesh import Mesh
from claudemesh.wire import problem
from claudemesh.wire.invite import CreateMesh, Invite, Membership, Redeem
from claudemesh.wire.signing import create_mesh_bytes, invite_bytes, redeem_bytes

SLUG: Final = "memory"
NAMES: Final = ("alice", "bob")
WITHIN_S: Final = 30.0

INVITE_ID: Final = "in-memory"
INVITE_MS: Final = HOUR_MS

_ERROR: Final = 400


class Closable(Protocol):
    def close(self) -> None: ...


M = TypeVar("M", bound=Closable)
T = TypeVar("T")


class InMemory(Generic[M]):
    """A mesh from the beginning to the end of its context, which gives one member for each name, in their order."""

    def __init__(self, make: Callable[[Place], M], names: Sequence[str]) -> None:
        self._make = make
        self._names = tuple(names) or NAMES
        self._running: ExitStack | None = None

    def __enter__(self) -> tuple[M, ...]:
        if self._running is not None:
            raise RuntimeError("this mesh runs already")
        with ExitStack() as stack:
            places = _start(stack, self._names)
            members = tuple(self._make(place) for place in places)
            for member in members:
                stack.callback(member.close)
            self._running = stack.pop_all()
        return members

    def __exit__(self, *_: object) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    async def __aenter__(self) -> tuple[M, ...]:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.__exit__)


def _start(stack: ExitStack, names: Sequence[str]) -> list[Place]:
    """Start everything, so that the stack stops it: daemons, then broker, then the loop, and the files last."""
    root = Path(stack.enter_context(TemporaryDirectory(prefix="claudemesh-")))
    services = stack.enter_context(_Services())
    broker_url = services.start(_serve_broker())
    places = [Place(SLUG, root / str(number) / SLUG / "sock") for number in range(len(names))]
    for keys, joined, place in zip(*_enrol(broker_url, names), places, strict=True):
        place.sock.parent.mkdir(mode=0o700, parents=True)
        identity.store(place.sock.parent, keys, joined)
    for place in places:
        services.start(_serve_daemon(place.sock.parent))
    for place in places:
        _wait_until_online(place)
    return places


def _serve_broker() -> "Serve[str]":
    settings = BrokerSettings(store="memory:", listen="127.0.0.1:0")
    return lambda stop, ready: broker_app.serve(settings, ready, stop, real_world())


def _serve_daemon(state_dir: Path) -> "Serve[Path]":
    settings = DaemonSettings(state_dir=state_dir, tcp=False, in_memory=True)
    return lambda stop, ready: daemon_app.serve(settings, real_world(), stop, ready)


def _wait_until_online(place: Place) -> None:
    """Wait until the daemon talks to its broker: from then on it knows all names."""

    def is_online() -> bool:
        try:
            mesh.topics()
        except BrokerUnreachable:
            return False
        return True

    with Mesh.at(place) as mesh:
        if not wait_until(is_online, WITHIN_S):
            raise BrokerUnreachable(
                f"a daemon of the mesh in memory is not connected: {mesh.health().more['link']}"
            )


# --- members -----------------------------------------------------------------------------------------


def _enrol(broker_url: str, names: Sequence[str]) -> tuple[list[KeyPair], list[Joined]]:
    """Make a mesh as the first member, and invite the others."""
    now_ms = SystemClock().wall_ms()
    keys = [KeyPair.generate() for _ in names]
    owner = CreateMesh(slug=SLUG, member_pubkey=keys[0].pubkey, name=names[0], timestamp_ms=now_ms, signature="")
    owner = msgspec.structs.replace(owner, signature=keys[0].sign(create_mesh_bytes(owner)))
    first = _ask(broker_url, "/v1/meshes", owner)
    invite = Invite(
        broker_url=broker_url,
        mesh_id=first.mesh_id,
        slug=SLUG,
        invite_id=INVITE_ID,
        uses=len(names),
        expires_at=now_ms + INVITE_MS,
        broker_key=first.broker_key,
        inviter_pubkey=keys[0].pubkey,
    )
    invite = msgspec.structs.replace(invite, signature=keys[0].sign(invite_bytes(invite)))
    others = [
        _ask(broker_url, "/v1/invites/redeem", _redeem(invite, its, name, now_ms))
        for its, name in zip(keys[1:], names[1:], strict=True)
    ]
    return keys, [Joined(**msgspec.structs.asdict(one), broker_url=broker_url) for one in (first, *others)]


def _redeem(invite: Invite, keys: KeyPair, name: str, now_ms: int) -> Redeem:
    request = Redeem(invite=invite, member_pubkey=keys.pubkey, name=name, timestamp_ms=now_ms, signature="")
    return msgspec.structs.replace(request, signature=keys.sign(redeem_bytes(request)))


def _ask(broker_url: str, path: str, request: CreateMesh | Redeem) -> Membership:
    parts = urlsplit(broker_url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=WITHIN_S)
    try:
        body = msgspec.json.encode(request)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status >= _ERROR:
        raise problem.parse(response.status, msgspec.json.decode(content))
    return msgspec.json.decode(content, type=Membership)


# --- services ----------------------------------------------------------------------------------------

Serve = Callable[[asyncio.Event, Callable[[T], None]], Coroutine[Any, Any, int]]


class _Services:
    """Services in one event loop, in a thread of its own. They are stopped in the opposite order."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._work, name="claudemesh-in-memory", daemon=True)
        self._has_begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._stops: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._has_begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for stop in reversed(self._stops):
                self._run(stop())
        finally:
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(WITHIN_S)

    def start(self, serve: Serve[T]) -> T:
        """Start a service, and return what it says when it is ready; what keeps it from it is raised."""
        return self._run(self._begin(serve))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(WITHIN_S)
        except TimeoutError:
            future.cancel()
            raise

    def _work(self) -> None:
        asyncio.run(self._until_end())

    async def _until_end(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._has_begun.set()
        await self._end.wait()

    async def _begin(self, serve: Serve[T]) -> T:
        stop = asyncio.Event()
        ready: asyncio.Future[T] = self._loop.create_future()
        task = self._loop.create_task(serve(stop, ready.set_result))

        async def end() -> None:
            stop.set()
            await task

        both: set[asyncio.Future[Any]] = {task, ready}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            raise DependencyError(f"a service of the mesh in memory ended at once, with {await task}")
        self._stops.append(end)
        return ready.result()
