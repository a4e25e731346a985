"""Redis Streams with `appendfsync always`, the one setting of it that keeps what it has acknowledged."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis.asyncio import Redis

from benchmarks.messages import SIZE, text
from benchmarks.processes import Node, server


@contextmanager
def redis_server(appendonly: str = "yes") -> Iterator[Node]:
    with tempfile.TemporaryDirectory() as folder:
        sock = Path(folder) / "redis.sock"
        settings = {"port": "0", "unixsocket": str(sock), "dir": folder, "save": ""}
        settings |= {"appendonly": appendonly, "appendfsync": "always"}
        command = ["redis-server"]
        for name, value in settings.items():
            command += [f"--{name}", value]
        with server(command, sock) as one:
            yield one


async def measure_add(sock: str, messages: int, *, connections: int) -> float:
    """Return how many messages a second redis-py adds, each awaited, on so many connections."""
    numbers = iter(range(messages))

    async def add(client: Redis) -> None:
        for number in numbers:
            await client.xadd("s", {"m": text(number, SIZE)})

    clients = [Redis(unix_socket_path=sock, single_connection_client=True) for _ in range(connections)]
    try:
        for client in clients:
            await client.ping()
        began_s = time.monotonic()
        await asyncio.gather(*(add(client) for client in clients))
        return messages / (time.monotonic() - began_s)
    finally:
        for client in clients:
            await client.aclose()
