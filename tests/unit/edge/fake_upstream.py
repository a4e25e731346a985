"""An upstream that does, connection by connection, what a test tells it: on plain sockets, byte by byte."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from claudemesh.edge.model import Answer
from claudemesh.edge.upstream import Outgoing, Upstream, UpstreamLimits

BOUND_S = 30

Step = Callable[["Peer"], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
WRITE = Outgoing("POST", "/progress/", "", ((b"idempotency-key", b"k1"),), b"{}")
KEYLESS = Outgoing("POST", "/progress/", "", (), b"{}")
READ = Outgoing("GET", "/tasks/t1")


class Peer:
    """The upstream's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fake: "FakeUpstream") -> None:
        self.reader, self.writer, self.fake = reader, writer, fake

    async def read(self) -> None:
        """Read one request, and keep it."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
        self.fake.requests.append(head + await self.reader.readexactly(length))

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_gone(self) -> None:
        with suppress(OSError):
            while await self.reader.read(65_536):
                pass
        self.fake.gone.set()


def answer(data: bytes) -> Step:
    """Return the step that reads a request and answers it."""

    async def step(peer: Peer) -> None:
        await peer.read()
        await peer.write(data)

    return step


async def read(peer: Peer) -> None:
    await peer.read()


async def hold(peer: Peer) -> None:
    """Do nothing until the other side goes."""
    await peer.until_gone()


async def reset(peer: Peer) -> None:
    plug = peer.writer.get_extra_info("socket")
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.writer.transport.abort()


def say(data: bytes) -> Step:
    async def step(peer: Peer) -> None:
        await peer.write(data)

    return step


class FakeUpstream:
    """`scripts[n]` is what the n-th connection does, then it closes; the last one is for all that follow."""

    def __init__(self, *scripts: tuple[Step, ...]) -> None:
        self.scripts = scripts
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = 0
        self.gone = asyncio.Event()
        self.port = 0
        self.faults: list[BaseException] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self.scripts[min(self.connections, len(self.scripts) - 1)]
        self.connections += 1
        peer = Peer(reader, writer, self)
        try:
            for step in script:
                await step(peer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed += 1
            writer.close()


@asynccontextmanager
async def upstream_of(
    *scripts: tuple[Step, ...], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeUpstream]:
    fake = FakeUpstream(*scripts)
    server = await asyncio.start_server(fake.serve, host, 0, ssl=tls)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()


async def ask(upstream: Upstream, outgoing: Outgoing = WRITE) -> Answer:
    async with asyncio.timeout(BOUND_S):
        return await upstream.request(outgoing)


@asynccontextmanager
async def relay_to(
    *scripts: tuple[Step, ...], limits: UpstreamLimits | None = None, credential: str | None = None
) -> AsyncIterator[tuple[FakeUpstream, Upstream]]:
    async with upstream_of(*scripts) as fake:
        upstream = Upstream(f"http://127.0.0.1:{fake.port}", limits=limits, credential=lambda: credential)
        try:
            yield fake, upstream
        finally:
            await upstream.close()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not is_so():  # noqa: ASYNC110 - there is nothing to wait on: it is in the middle of the relay
            await asyncio.sleep(0)
