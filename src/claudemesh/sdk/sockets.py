"""Connections to a daemon, for any number of callers at once; some are kept open between two requests.

How a connection is made, whom it may lead to and when a kept one is good is `daemon.client.connection`'s to decide;
here is what more it takes for many callers, for streams that are waited on with a limit, and for an event loop.
"""

import os
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from claudemesh.daemon.client.connection import OK, Connections
from claudemesh.daemon.client.http1 import EventReader, ResponseReader, judge_response, render_request
from claudemesh.kernel.errors import ConnectionLost
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.processes import pause
from claudemesh.sdk.plans import Heard

IDLE_MAX: Final = 64
NOTHING: Final = Heard([], "")


class Line(Connections):
    """One caller's way to the daemon: at most one connection is kept."""

    def take(self) -> socket.socket | None:
        return self._take_kept()

    def dial(self, deadline_ms: int) -> socket.socket:
        """Connect. This may wait: in an event loop it wants a thread of its own."""
        return self._connect(deadline_ms)

    def keep(self, connection: socket.socket) -> None:
        self._kept = connection

    def left_s(self, deadline_ms: int) -> float:
        return self._left_s(deadline_ms)

    def listen(self, after: str, deadline_ms: int) -> tuple[socket.socket, ResponseReader]:
        """Open a stream on a connection of its own; return when the daemon has said yes."""
        connection = self._connect(deadline_ms)
        reader = ResponseReader()
        try:
            self._write(connection, render_listen(after), deadline_ms)
            self._read(reader, connection, deadline_ms, lambda: is_open(reader))
        except BaseException:
            connection.close()
            raise
        return connection, reader


class Pool:
    """Lines for as many callers as there are. Threads may share it, and a forked child begins with none."""

    def __init__(self, sock: Path) -> None:
        self._sock = sock
        self._clock = SystemClock()
        self._idle: deque[Line] = deque()
        self._pid = os.getpid()
        self._is_closed = False

    def left_s(self, deadline_ms: int) -> float:
        return max(deadline_ms - self._clock.monotonic_ms(), 1) / 1000

    @contextmanager
    def line(self) -> Iterator[Line]:
        if self._pid != os.getpid():  # a parent's connections carry the parent's answers
            self._drop_idle()  # here only: the parent has its own descriptors of them
            self._pid = os.getpid()
        try:
            line = self._idle.pop()
        except IndexError:
            line = Line(self._sock, self._clock, pause)
        try:
            yield line
        finally:
            if self._is_closed or len(self._idle) >= IDLE_MAX:
                line.close()
            else:
                self._idle.append(line)

    def close(self) -> None:
        """Close what is kept; what is in use is closed when it is given back."""
        self._is_closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


# --- streams ---------------------------------------------------------------------------------------


def render_listen(after: str) -> bytes:
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
    return render_request("GET", "/v1/events", headers=headers)


def is_open(reader: ResponseReader) -> bool:
    """Say whether enough of the answer has come; the error is raised that it is."""
    if reader.status < OK:
        return False
    if reader.status == OK:
        return True
    if reader.is_done:
        judge_response(reader.status, reader.headers, reader.take())
    return False


class Ear(EventReader):
    """Events out of the bytes of a stream, and where it stands: it may say so before the first of them."""

    def __init__(self, response: ResponseReader) -> None:
        super().__init__()
        self._response = response
        self._told = ""
        self.is_over = False

    def take(self) -> Heard | None:
        """Return what has come and was not returned before; None if there is nothing new."""
        events = [*self.feed(self._response.take())]
        self.is_over = self.is_over or self._response.is_done
        if self._id == self._told and not events:
            return None
        self._told = self._id
        return Heard(events, self._id)

    def hear(self, data: bytes) -> Heard | None:
        """Take in what came, no bytes being the end; return what is new. None if it is over."""
        try:
            self._response.feed(data)
        except ConnectionLost:
            self.is_over = True
        return self.take() or (None if self.is_over else NOTHING)
