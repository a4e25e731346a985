"""A broker in this process, and callers that speak to it over real sockets. Every wait has a bound."""

# ruff: noqa: ANN401 - changes to a field of any type are what hostile callers are made of

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from claudemesh.broker.app import serve
from claudemesh.broker.settings import BrokerSettings
from claudemesh.kernel.fingerprint import Kind, SendRequest, fingerprint_send
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World, real_world
from claudemesh.wire import frames, signing
from claudemesh.wire.invite import CreateMesh, Invite, Membership, Redeem
from tests.ports import own_address

BOUND_S = 30.0

clock = SystemClock()
ids = UlidSource(clock)

F = TypeVar("F")


@dataclass
class RunningBroker:
    url: str
    stop: asyncio.Event
    world: World

    @property
    def ws_url(self) -> str:
        return self.url.replace("http://", "ws://") + "/v1/ws"


@asynccontextmanager
async def broker(
    folder: Path, *, surroundings: World | None = None, **settings: Any
) -> AsyncIterator[RunningBroker]:
    """Serve on a free port until the block ends."""
    chosen = BrokerSettings(**{"store": f"sqlite:///{folder / 'broker.db'}", "listen": own_address()} | settings)
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop, world = asyncio.Event(), surroundings or real_world()
    serving = asyncio.create_task(serve(chosen, started.set_result, stop, world))
    try:
        async with asyncio.timeout(BOUND_S):
            await asyncio.wait([serving, started], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
            yield RunningBroker(await started, stop, world)
    finally:
        stop.set()
        async with asyncio.timeout(BOUND_S):
            await serving


# --- HTTP ------------------------------------------------------------------------------------------


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


async def request(method: str, url: str, body: object = None, headers: dict[str, str] | None = None) -> Answer:
    data = None if body is None else msgspec.json.encode(body)
    sent = {"Content-Type": "application/json"} if data is not None else {}
    asked = urllib.request.Request(url, data, sent | (headers or {}), method=method)  # noqa: S310  our own server

    def ask() -> Answer:
        try:
            with urllib.request.urlopen(asked, timeout=BOUND_S) as answer:  # noqa: S310
                return Answer(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read())

    return await asyncio.to_thread(ask)


def create_request(keys: KeyPair, slug: str, name: str, **changes: Any) -> CreateMesh:
    asked = CreateMesh(slug=slug, member_pubkey=keys.pubkey, name=name, timestamp_ms=clock.wall_ms(), signature="")
    asked = msgspec.structs.replace(asked, **changes)
    if "signature" in changes:
        return asked
    return msgspec.structs.replace(asked, signature=keys.sign(signing.create_mesh_bytes(asked)))


def make_invite(inviter: "Peer", **changes: Any) -> Invite:
    invite = Invite(
        broker_url=inviter.broker.url,
        mesh_id=inviter.membership.mesh_id,
        slug=inviter.membership.slug,
        invite_id=ids.ulid(),
        uses=100,
        expires_at=clock.wall_ms() + 3_600_000,
        broker_key=inviter.membership.broker_key,
        inviter_pubkey=inviter.keys.pubkey,
    )
    invite = msgspec.structs.replace(invite, **changes)
    if "signature" in changes:
        return invite
    return msgspec.structs.replace(invite, signature=inviter.keys.sign(signing.invite_bytes(invite)))


def redeem_request(keys: KeyPair, invite: Invite, name: str, **changes: Any) -> Redeem:
    asked = Redeem(invite=invite, member_pubkey=keys.pubkey, name=name, timestamp_ms=clock.wall_ms(), signature="")
    asked = msgspec.structs.replace(asked, **changes)
    if "signature" in changes:
        return asked
    return msgspec.structs.replace(asked, signature=keys.sign(signing.redeem_bytes(asked)))


# --- members ---------------------------------------------------------------------------------------


@dataclass
class Peer:
    """A member with its keys; `instance_id` is its state directory's."""

    broker: RunningBroker
    keys: KeyPair
    membership: Membership
    instance_id: str = field(default_factory=ids.ulid)

    def hello(self, nonce: str, **changes: Any) -> frames.Hello:
        said = frames.Hello(
            mesh_id=self.membership.mesh_id,
            member_pubkey=self.keys.pubkey,
            instance_id=self.instance_id,
            timestamp_ms=clock.wall_ms(),
            signature="",
        )
        said = msgspec.structs.replace(said, **changes)
        if "signature" in changes:
            return said
        return msgspec.structs.replace(said, signature=self.keys.sign(signing.hello_bytes(nonce, said)))

    @asynccontextmanager
    async def connected(self, **changes: Any) -> AsyncIterator["Wire"]:
        """Open a connection and say hello."""
        async with opened(self.broker) as wire:
            await wire.say(self.hello(wire.nonce, **changes))
            wire.ack = await wire.expect(frames.HelloAck)
            yield wire


async def create_mesh(running: RunningBroker, slug: str = "demo", name: str = "owner") -> Peer:
    keys = KeyPair.generate()
    answer = await request("POST", f"{running.url}/v1/meshes", create_request(keys, slug, name))
    assert answer.status == 200, answer.body
    return Peer(running, keys, msgspec.json.decode(answer.body, type=Membership))


async def join(inviter: Peer, name: str) -> Peer:
    keys = KeyPair.generate()
    asked = redeem_request(keys, make_invite(inviter), name)
    answer = await request("POST", f"{inviter.broker.url}/v1/invites/redeem", asked)
    assert answer.status == 200, answer.body
    return Peer(inviter.broker, keys, msgspec.json.decode(answer.body, type=Membership))


# --- the wire --------------------------------------------------------------------------------------


class Refused(Exception):
    """A call was answered with an error."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem["code"])
        self.problem = problem
        self.code = problem["code"]


class Wire:
    """One connection, after the welcome."""

    ack: frames.HelloAck

    def __init__(self, socket: ClientConnection, nonce: str) -> None:
        self.socket = socket
        self.nonce = nonce
        self._n = 0
        self._passed: list[Any] = []

    async def say(self, frame: Any) -> None:
        await self.socket.send(frames.render(frame))

    async def expect(self, kind: type[F]) -> F:
        """Return the next frame of this kind; others are kept for whoever expects them."""
        for position, frame in enumerate(self._passed):
            if isinstance(frame, kind):
                return self._passed.pop(position)
        async with asyncio.timeout(BOUND_S):
            while True:
                frame = frames.parse_from_broker(await self.socket.recv())
                if isinstance(frame, kind):
                    return frame
                self._passed.append(frame)

    async def hear(self, name: str) -> dict[str, Any]:
        """Return what the next event of this name says; others are passed over."""
        while True:
            event = await self.expect(frames.Event)
            if event.name == name:
                return event.data

    async def send(self, *items: frames.SendItem) -> list[frames.Outcome]:
        n = await self.send_only(*items)
        result = await self.expect(frames.SendResult)
        assert result.n == n
        return result.outcomes

    async def send_only(self, *items: frames.SendItem) -> int:
        self._n += 1
        await self.say(frames.Send(self._n, [*items]))
        return self._n

    async def call(self, op: str, **args: Any) -> Any:
        self._n += 1
        await self.say(frames.Call(self._n, op, args))
        reply = await self.expect(frames.Reply)
        assert reply.n == self._n
        if reply.error is not None:
            raise Refused(reply.error)
        return reply.result

    async def deliveries(self, count: int) -> list[frames.DeliverItem]:
        """Return the next so many deliveries, not acknowledged yet."""
        found: list[frames.DeliverItem] = []
        while len(found) < count:
            found += (await self.expect(frames.Deliver)).items
        return found

    async def acknowledge(self, items: Iterable[frames.DeliverItem]) -> None:
        await self.say(frames.Ack([item.history_id for item in items]))

    async def closed(self) -> tuple[int, str]:
        """Return how the broker closed it."""
        async with asyncio.timeout(BOUND_S):
            with suppress(ConnectionClosed):
                while True:
                    self._passed.append(frames.parse_from_broker(await self.socket.recv()))
        assert self.socket.close_code is not None
        return self.socket.close_code, self.socket.close_reason or ""


@asynccontextmanager
async def opened(running: RunningBroker, **options: Any) -> AsyncIterator[Wire]:
    """Open a socket and hear the welcome, nothing more."""
    chosen = {"max_size": None, "compression": None, "proxy": None, "close_timeout": 1, "ping_interval": None}
    chosen["max_queue"] = None  # it reads on and answers pings, whatever the test waits for meanwhile
    async with connect(running.ws_url, **chosen | options) as socket:
        async with asyncio.timeout(BOUND_S):
            welcome = frames.parse_from_broker(await socket.recv())
        assert isinstance(welcome, frames.Welcome)
        yield Wire(socket, welcome.nonce)


def item(client_message_id: str, kind: Kind, ref: str, body: str = "hi", **changes: Any) -> frames.SendItem:
    """Return a message with the right fingerprint, unless another is given."""
    asked = {name: changes[name] for name in ("reply_to", "priority", "meta") if name in changes}
    fingerprint = fingerprint_send(SendRequest(kind=kind, ref=ref, body=body, **asked)).hex()
    return frames.SendItem(
        **{
            "client_message_id": client_message_id,
            "kind": kind,
            "ref": ref,
            "body": body,
            "fingerprint": fingerprint,
        }
        | changes
    )


def dm(client_message_id: str, to: Peer, body: str = "hi", **changes: Any) -> frames.SendItem:
    return item(client_message_id, Kind.DM, to.keys.pubkey, body, **changes)
