"""One address in front of several brokers, as a load balancer is: a connection goes to the first that takes it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Front:
    """`brokers` are host:port, in the order in which they are tried; it may be changed at any time."""

    brokers: list[str]
    url: str = ""
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    def cut(self) -> None:
        """End every connection that stands, as a network that drops does."""
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for where in tuple(self.brokers):
            host, _, port = where.rpartition(":")
            with suppress(OSError):
                onward = await asyncio.open_connection(host, int(port))
                break
        else:
            writer.transport.abort()
            return
        self._open |= {writer, onward[1]}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, onward[1]))
                group.create_task(self._copy(onward[0], writer))
        finally:
            self._open -= {writer, onward[1]}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def front_of(*brokers: str) -> AsyncIterator[Front]:
    front = Front(list(brokers))
    server = await asyncio.start_server(front._serve, "127.0.0.1", 0)
    front.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield front
    finally:
        server.close()
        front.cut()
