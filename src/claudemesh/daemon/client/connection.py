"""The socket under the client: connecting, one exchange within its time, and a stream of events.

When the connection ends before the answer is complete, the outcome is unknown; this file says so (`ConnectionLost`,
`DeadlineExceeded`) and tries nothing again, since only the caller knows whether its request may be made twice.
"""

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from claudemesh.daemon.client.http1 import EventReader, ResponseReader, StreamEvent, judge_response
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import ConfigError, ConnectionLost, DeadlineExceeded, NoDaemon
from claudemesh.runtime.home import find_socket

READ_BYTES: Final = 256 << 10
BACKLOG_PAUSE_S: Final = 0.01
OK: Final = 200

_PEER: Final = struct.Struct("3i")  # SO_PEERCRED: pid, uid, gid


class EventStream:
    """Events as they happen, until the daemon ends them or somebody closes it.

    A daemon that goes away ends the stream like one that stops: who listens knows after which id to begin again.
    """

    def __init__(self, connection: socket.socket, reader: ResponseReader) -> None:
        self._connection = connection
        self._events = self._read(reader)

    def __iter__(self) -> Iterator[StreamEvent]:
        return self._events

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def _read(self, reader: ResponseReader) -> Iterator[StreamEvent]:
        events = EventReader()
        with suppress(OSError, ConnectionLost):
            while True:
                yield from events.feed(reader.take())
                if reader.is_done:
                    break
                reader.feed(self._connection.recv(READ_BYTES))
        self.close()


class Connections:
    """Connections to one daemon, of which one is kept open; for one thread at a time."""

    def __init__(self, sock: Path, clock: Clock, sleep: Callable[[float], None]) -> None:
        self._sock = sock
        self._clock = clock
        self._sleep = sleep
        self._kept: socket.socket | None = None

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def exchange(self, request: bytes, deadline_ms: int) -> tuple[int, Any]:
        """Send a request and return status and answer; an error that is the answer is raised."""
        connection = self._take_kept() or self._connect(deadline_ms)
        try:
            self._write(connection, request, deadline_ms)
            reader = ResponseReader()
            self._read(reader, connection, deadline_ms, lambda: reader.is_done)
        except BaseException:
            connection.close()  # what is still to come on it is no later request's answer
            raise
        if reader.is_last:
            connection.close()
        else:
            self._kept = connection
        return reader.status, judge_response(reader.status, reader.headers, reader.take())

    def stream(self, request: bytes, deadline_ms: int) -> "EventStream":
        """Open a stream on a connection of its own; the deadline is for its first answer only."""
        connection = self._connect(deadline_ms)
        reader = ResponseReader()
        try:
            self._write(connection, request, deadline_ms)
            self._read(reader, connection, deadline_ms, lambda: reader.status >= OK)
            if reader.status != OK:
                self._read(reader, connection, deadline_ms, lambda: reader.is_done)
                judge_response(reader.status, reader.headers, reader.take())
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        return EventStream(connection, reader)

    def _write(self, connection: socket.socket, request: bytes, deadline_ms: int) -> None:
        connection.settimeout(self._left_s(deadline_ms))
        try:
            connection.sendall(request)
        except TimeoutError as error:
            raise DeadlineExceeded("the daemon did not take the request in time: the outcome is unknown") from error
        except OSError:
            pass  # it may have answered before it had read all of it; if not, reading will tell

    def _read(
        self, reader: ResponseReader, connection: socket.socket, deadline_ms: int, is_enough: Callable[[], bool]
    ) -> None:
        while not is_enough():
            connection.settimeout(self._left_s(deadline_ms))
            try:
                data = connection.recv(READ_BYTES)
            except TimeoutError as error:
                raise DeadlineExceeded("the daemon did not answer in time: the outcome is unknown") from error
            except OSError as error:
                raise ConnectionLost(f"reading the daemon's answer failed: {error.strerror}") from error
            reader.feed(data)

    def _left_s(self, deadline_ms: int) -> float:
        return max(deadline_ms - self._clock.monotonic_ms(), 1) / 1000

    def _take_kept(self) -> socket.socket | None:
        """Return the connection that was kept, unless the daemon has closed it since: then it reads as ended."""
        connection, self._kept = self._kept, None
        if connection is None:
            return None
        connection.settimeout(0)
        with suppress(OSError):
            try:
                connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return connection
        connection.close()
        return None

    def _connect(self, deadline_ms: int) -> socket.socket:
        path = find_socket(self._sock)
        if path is None:
            raise NoDaemon(f"{self._sock} is not there: {self._how_to_start()}")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            while not self._try_connect(connection, path, deadline_ms):
                self._sleep(BACKLOG_PAUSE_S)
            _judge_peer(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _try_connect(self, connection: socket.socket, path: Path, deadline_ms: int) -> bool:
        connection.settimeout(self._left_s(deadline_ms))
        try:
            connection.connect(os.fspath(path))
        except BlockingIOError as error:  # as many as it lets wait are waiting
            if self._clock.monotonic_ms() >= deadline_ms:
                raise DeadlineExceeded("the daemon takes no connection; nothing was sent") from error
            return False
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NoDaemon(f"nobody listens on {path}: {self._how_to_start()}") from error
        except OSError as error:
            raise ConfigError(f"{path} cannot be connected to: {error.strerror}") from error
        return True

    def _how_to_start(self) -> str:
        return how_to_start(self._sock.parent.name)  # a state directory goes by its mesh


def how_to_start(slug: str) -> str:
    """Say how, with the mesh: who has joined several would be asked which."""
    return f"start it with `claudemesh daemon up --mesh {slug}`"


def _judge_peer(connection: socket.socket, path: Path) -> None:
    """Refuse to talk to what somebody else has put in our daemon's place."""
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if uid != os.geteuid():
        raise ConfigError(f"another user's process answers on {path}: remove it and start your daemon")
