"""The load: a process that does nothing but ask, on so many connections, each with one request under way.

    python -m benchmarks.load '{"sock": …}'     see Task; prints a Load

Requests are rendered before the clock starts. `busy` is how much of its core the asking took: well below one means
that the server was the limit and not this; the rate that this could ask at is about rate / busy.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Literal, cast

import msgspec
import uvloop

from benchmarks.messages import ids, render_send

WARM_UP = 0.05  # of the requests, before the clock starts
BATCH = 100


Kind = Literal["send", "batch", "xadd", "progress"]


class Task(msgspec.Struct, kw_only=True):
    sock: str  # a path, or HOST:PORT
    kind: Kind
    run: str  # of which the ids are made
    requests: int
    connections: int = 64
    to: str = "b" * 64


class Load(msgspec.Struct, kw_only=True):
    rate: float  # of requests
    p50_ms: float
    p99_ms: float
    busy: float
    began_s: float  # on the machine's monotonic clock
    ended_s: float


# --- what is asked ----------------------------------------------------------------------------------


def _post(path: bytes, body: bytes, host: bytes = b"localhost", more: bytes = b"") -> bytes:
    head = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
    return head % (path, host, more, len(body)) + body


def _progress(task: Task) -> Iterator[bytes]:
    """Yield writes of 1 KiB to a hub, each under a key of its own."""
    host = task.sock.encode()
    for number, key in zip(range(task.requests), ids(task.run), strict=False):
        body = b'{"agent":"bench","summary":"%b"}' % (b"step %d, all is well; " % number * 50)[:990]
        yield _post(b"/progress/", body, host, b"idempotency-key: %b\r\n" % key.encode())


def _render(task: Task) -> Iterator[bytes]:
    if task.kind == "progress":
        yield from _progress(task)
        return
    numbered = enumerate(ids(task.run))
    for _ in range(task.requests):
        sends = (render_send(task.to, id_, number) for number, id_ in islice(numbered, BATCH))
        if task.kind == "batch":
            yield _post(b"/v1/send/batch", b'{"sends":[%b]}' % b",".join(sends))
        elif task.kind == "send":
            yield _post(b"/v1/send", next(sends))
        else:
            body = next(sends)
            yield b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nm\r\n$%d\r\n%b\r\n" % (len(body), body)


# --- what is answered -------------------------------------------------------------------------------


def _is_answered(data: bytes) -> bool:
    """Say whether this is a whole answer of HTTP, and fail if it is not a good one."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    at = data.find(b"content-length: ", 0, end) + 16
    if len(data) < end + 4 + int(data[at : data.find(b"\r\n", at)]):
        return False
    if data[9:10] != b"2":
        raise AssertionError(data[:500])
    return True


def _is_added(data: bytes) -> bool:
    if data[:1] == b"-":
        raise AssertionError(data[:500])
    return data.endswith(b"\r\n") and data.count(b"\r\n") == len(("length", "id"))


class _Connection(asyncio.Protocol):
    def __init__(self, is_answered: Callable[[bytes], bool]) -> None:
        self._is_answered = is_answered
        self._begun = b""
        self._asked_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def ask(self, requests: Iterator[bytes], waits: list[float]) -> asyncio.Future[None]:
        """Ask until there is nothing left to ask."""
        self._requests, self._waits = requests, waits
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next(time.monotonic())
        return self._done

    def _next(self, now_s: float) -> None:
        request = next(self._requests, None)
        if request is None:
            self._done.set_result(None)
            return
        self._asked_s = now_s
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._begun:
            data = self._begun + data
        try:
            is_answered = self._is_answered(data)
        except AssertionError as error:
            self._done.set_exception(error)
            return
        if not is_answered:
            self._begun = data
            return
        self._begun = b""
        now_s = time.monotonic()
        self._waits.append(now_s - self._asked_s)
        self._next(now_s)

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError("the server hung up"))


async def run(task: Task) -> Load:
    requests = list(_render(task))
    is_answered = _is_added if task.kind == "xadd" else _is_answered
    loop = asyncio.get_running_loop()
    made = partial(_Connection, is_answered)
    host, _, port = task.sock.rpartition(":")
    connections = [
        (
            await (
                loop.create_connection(made, host, int(port))
                if host
                else loop.create_unix_connection(made, task.sock)
            )
        )[1]
        for _ in range(task.connections)
    ]
    waits: list[float] = []
    pending = iter(requests)
    first = islice(pending, max(int(task.requests * WARM_UP), 1))
    await asyncio.gather(*(connection.ask(first, waits) for connection in connections))
    waits.clear()
    began_s, began_busy_s = time.monotonic(), time.process_time()
    await asyncio.gather(*(connection.ask(pending, waits) for connection in connections))
    ended_s, took_busy_s = time.monotonic(), time.process_time() - began_busy_s
    waits.sort()
    took_s = ended_s - began_s
    return Load(
        rate=len(waits) / took_s,
        p50_ms=waits[len(waits) // 2] * 1000,
        p99_ms=waits[int(len(waits) * 0.99)] * 1000,
        busy=took_busy_s / took_s,
        began_s=began_s,
        ended_s=ended_s,
    )


if __name__ == "__main__":
    task = msgspec.json.decode(sys.argv[1], type=Task)
    print(msgspec.json.encode(uvloop.run(run(task))).decode())
