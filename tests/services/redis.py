"""A private Redis that has flushed what it acknowledged."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.ports import own_port
from tests.services.server import Server, running, throwaway_directory

ONCE = Retry(NoBackoff(), 0)  # the driver would try a refused connection again, each time more slowly


class Redis(Server):
    def __init__(self, directory: Path) -> None:
        self.port = own_port()
        self._socket = directory / "redis.sock"
        self._password = secrets.token_hex()
        settings = directory / "redis.conf"  # a file: what stands on a command line, everyone can read
        settings.write_text(f"""
            bind 127.0.0.1
            port {self.port}
            unixsocket {self._socket}
            requirepass {self._password}
            dir {directory}
            appendonly yes
            appendfsync always
            save ""
        """)
        super().__init__(directory, ["redis-server", str(settings)])

    @property
    def url(self) -> str:
        """Over its Unix socket."""
        return f"unix://:{self._password}@{self._socket}"

    @property
    def tcp_url(self) -> str:
        """Over loopback, for what cannot use the socket."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        with redis.Redis.from_url(self.url, retry=ONCE) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:  # not listening yet, or still loading
                return False


@contextmanager
def private_redis() -> Iterator[Redis]:
    with throwaway_directory() as directory, running(Redis(directory)) as server:
        yield server
