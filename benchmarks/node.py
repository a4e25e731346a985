"""A server in a process of its own, so that it has a core and an interpreter to itself.

    python -m benchmarks.node FLUSHES echo SOCKET
    python -m benchmarks.node FLUSHES stock SOCKET
    python -m benchmarks.node FLUSHES daemon STATE_DIR [GROUP_MAX]
    python -m benchmarks.node FLUSHES broker FOLDER [STORE LIMITER]
    python -m benchmarks.node FLUSHES hub FOLDER HOST:PORT
    python -m benchmarks.node FLUSHES relay FOLDER HOST:PORT UPSTREAM

It prints `ready WHERE` when it answers. FLUSHES is a file of eight bytes in which it counts how often it flushed
the disk: once a commit, and three times a checkpoint (the WAL, the database, the WAL's new head), which is what
`perf stat -e syscalls:sys_enter_fdatasync` counts too; what a PostgreSQL flushes is not in it. `echo` is the floor
that a daemon's accepts are compared with: the daemon's own server and nothing behind it. `stock` is uvicorn as it
comes.
"""

import asyncio
import mmap
import os
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import apsw
import uvicorn

from claudemesh.asgi.messages import Receive, Scope, Send
from claudemesh.asgi.server import Server
from claudemesh.asgi.server import run as run_loop
from claudemesh.asgi.sockets import bind_unix
from claudemesh.broker import app as broker_app
from claudemesh.broker.settings import BrokerSettings, Limits
from claudemesh.daemon import app as daemon_app
from claudemesh.daemon.settings import DaemonSettings
from claudemesh.daemon.stores.sqlite.outbox import SCHEMA, SqliteOutboxStore
from claudemesh.edge import app as edge_app
from claudemesh.edge.settings import EdgeSettings
from claudemesh.hub import app as hub_app
from claudemesh.hub.settings import HubSettings
from claudemesh.runtime import points
from claudemesh.runtime.observe import Observer
from claudemesh.storage.sqlite import Database

FLUSHES_A_CHECKPOINT = 3
SENDS_PER_WINDOW = 1_000_000_000  # a benchmark is nobody's flood

_ANSWER = b'{"client_message_id":"00000000-000000000000000","status":"queued"}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_ANSWER))]


def main(flushes: str, kind: str, place: str, *rest: str) -> int:
    _count_flushes(Path(flushes))
    if kind == "echo":
        return run_loop(lambda: _serve_echo(Path(place)))
    if kind == "stock":
        return _serve_stock(Path(place))
    if kind == "daemon":
        return _serve_daemon(Path(place), *rest)
    if kind == "hub":
        return hub_app.run(HubSettings(store=f"sqlite:///{place}/hub.db", listen=rest[0]), _say_ready)
    if kind == "relay":
        settings = EdgeSettings(listen=rest[0], upstream=rest[1])
        return edge_app.run(settings, edge_app.Place(folder=Path(place) / "edge"), _say_ready)
    store, limiter = rest or (f"sqlite:///{place}/broker.db", "memory:")
    broker = BrokerSettings(
        store=store,
        limiter=limiter,
        listen="127.0.0.1:0",
        limits=Limits(sends_per_window=SENDS_PER_WINDOW),
    )
    return broker_app.run(broker, _say_ready, log_to_stderr=False)


def _serve_daemon(state_dir: Path, group_max: str = "") -> int:
    with ExitStack() as stack:
        if group_max:

            def open_limited(path: Path) -> SqliteOutboxStore:
                return SqliteOutboxStore(Database.open(path, SCHEMA, group_max=int(group_max)))

            stack.enter_context(mock.patch.object(SqliteOutboxStore, "open", open_limited))
        return daemon_app.run(DaemonSettings(state_dir=state_dir, tcp=False), _say_ready)


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    assert scope["type"] == "http"
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    await send({"type": "http.response.start", "status": 202, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _ANSWER})


async def _serve_echo(sock: Path) -> int:
    server = Server(_echo, [bind_unix(sock)], Observer())
    await server.start()
    _say_ready(sock)
    await asyncio.Event().wait()
    return 0


def _serve_stock(sock: Path) -> int:
    config = uvicorn.Config(
        _echo,
        http="httptools",
        loop="uvloop",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    bound = bind_unix(sock)
    bound.listen(2_048)
    _say_ready(sock)
    uvicorn.Server(config).run([bound])
    return 0


def _count_flushes(path: Path) -> None:
    path.write_bytes(bytes(8))
    descriptor = os.open(path, os.O_RDWR)
    shared = mmap.mmap(descriptor, 8)
    os.close(descriptor)
    lock = threading.Lock()  # an outbox and an inbox have a thread each
    counted = 0

    def note(flushes: int = 1) -> None:
        nonlocal counted
        with lock:
            counted += flushes
            shared[:] = counted.to_bytes(8, sys.byteorder)

    class Counting(apsw.Connection):
        def wal_checkpoint(
            self, dbname: str | None = None, mode: int = apsw.SQLITE_CHECKPOINT_PASSIVE
        ) -> tuple[int, int]:
            note(FLUSHES_A_CHECKPOINT)
            return super().wal_checkpoint(dbname, mode)

    mock.patch.object(apsw, "Connection", Counting).start()
    points.arm("sqlite.after_commit", note)


def _say_ready(where: object) -> None:
    print(f"ready {where}", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
