"""A daemon that says what a test told it to: HTTP on a Unix socket, one thread a connection."""

import json
import os
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from tests.ports import own_port

JSON = "application/json"
PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON is anything
        return json.loads(self.body)


Answer = bytes | None | Callable[[Asked], bytes | None]  # None: hang up


def respond(status: int, body: object = None, *, content_type: str = JSON, **headers: str) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {content_type}", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def refuse(status: int, code: str, **members: object) -> bytes:
    problem = {"type": f"urn:claudemesh:problem:{code}", "title": code, "status": status, "code": code, **members}
    return respond(status, problem, content_type=PROBLEM)


@dataclass
class ScriptedDaemon:
    """Answers each path with what is next in its list; the last one stays. Without a path it listens on a port."""

    path: Path | None
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._answers: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._address = ("127.0.0.1", own_port())

    def on(self, method: str, path: str, *answers: Answer) -> Self:
        self._answers[method, path] = list(answers)
        return self

    def start(self) -> Self:
        """Listen; after a stop at the same place again."""
        self._listener = socket.socket(socket.AF_INET if self.path is None else socket.AF_UNIX)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(self._address if self.path is None else os.fspath(self.path))
        self._listener.listen(16)
        self._run(self._accept)
        return self

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self._address)

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        self.drop_connections()
        for thread in list(self._threads):
            thread.join(10)

    def drop_connections(self) -> None:
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                self._run(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as stream:
            while (asked := _read(stream)) is not None:
                self.asked.append(asked)
                answers = self._answers[asked.method, asked.path]
                answer = (
                    (answers.pop(0) if len(answers) > 1 else answers[0]) if answers else refuse(404, "not_found")
                )
                said = answer(asked) if callable(answer) else answer
                if said is None:
                    break
                connection.sendall(said)
        self._open.remove(connection)


def _read(stream: BinaryIO) -> Asked | None:
    line = stream.readline().decode().split()
    if not line:
        return None
    headers = {}
    while header := stream.readline().decode().strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", "0")))
    path, _, query = line[1].partition("?")
    return Asked(line[0], path, query, headers, body)


@contextmanager
def scripted_daemon(path: Path | None) -> Iterator[ScriptedDaemon]:
    daemon = ScriptedDaemon(path).start()
    try:
        yield daemon
    finally:
        daemon.stop()
