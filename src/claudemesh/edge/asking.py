"""Asking a relay or a hub over HTTP: by a Unix socket or by a URL, one question at a time.

Nobody else is ever asked: no proxy, no redirect. It decides what became of a question that was not answered:
whether somebody listens at all, and whether the outcome is known.
"""

import http.client
import os
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import orjson

from claudemesh.edge.addresses import Origin, parse_origin
from claudemesh.kernel.errors import ConfigError, ConnectionLost, DeadlineExceeded, DependencyError
from claudemesh.runtime.home import find_socket
from claudemesh.wire import problem
from claudemesh.wire.addresses import explain_distrust
from claudemesh.wire.json import dump_json

TIMEOUT_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 256 << 20

_ERROR: Final = 400
_PEER: Final = struct.Struct("3i")  # SO_PEERCRED: pid, uid, gid


class NobodyThere(Exception):
    """Nothing listens there, and nothing was sent."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]  # names in small letters
    json: Any

    def checked(self) -> Any:  # noqa: ANN401  JSON is anything
        """Return what it holds, or raise the refusal that it is."""
        if self.status >= _ERROR:
            raise problem.parse(self.status, self.json)
        return self.json


class Api:
    """One place to ask. Connections are not kept: a command asks a few times, and servers come and go."""

    def __init__(self, where: str, origin: Origin | None, sock: Path | None, token: str | None = None) -> None:
        self.where = where  # as it is told to a person
        self._origin = origin
        self._sock = sock
        self._token = token

    @classmethod
    def at_url(cls, url: str, token: str | None = None) -> Self:
        """Ask what a URL names; ConfigError if it is none."""
        origin = parse_origin(url)
        return cls(f"{origin.scheme}://{origin.authority}{origin.prefix}", origin, None, token)

    @classmethod
    def at_socket(cls, sock: Path) -> Self:
        return cls(str(sock), None, sock)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answered:
        """Ask once. NobodyThere if nothing was sent; ConnectionLost or DeadlineExceeded if nobody knows."""
        content = None if body is None else dump_json(body)
        sent = {**(headers or {})} if content is None else {"content-type": "application/json", **(headers or {})}
        if self._token is not None:
            sent["authorization"] = f"Bearer {self._token}"
        prefix = "" if self._origin is None else self._origin.prefix
        with self._connected(timeout_s) as connection, _judged(self.where):
            connection.request(method, prefix + path, content, sent)
            answer = connection.getresponse()
            raw = answer.read(ANSWER_BYTES_MAX)
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answered(answer.status, found, _parse(raw, found, self.where))

    @contextmanager
    def _connected(self, timeout_s: float) -> Iterator[http.client.HTTPConnection]:
        connection = self._connection(timeout_s)
        try:
            try:
                connection.connect()
            except ssl.SSLCertVerificationError as error:
                raise ConfigError(f"{self.where}: {explain_distrust(error)}") from error
            except OSError as error:
                raise NobodyThere(f"{self.where} cannot be reached: {error.strerror or error}") from error
            yield connection
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._origin is None:
            return _UnixConnection(self._sock or Path(), timeout_s)
        host, port = self._origin.host, self._origin.port
        if self._origin.is_tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)


class _UnixConnection(http.client.HTTPConnection):
    """As the standard library's, by a socket in the file system that must be its owner's."""

    def __init__(self, sock: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = sock
        self._timeout_s = timeout_s

    def connect(self) -> None:
        found = find_socket(self._path)
        if found is None:
            raise NobodyThere(f"{self._path} is not there")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(os.fspath(found))
        _, uid, _ = _PEER.unpack(self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid != os.geteuid():
            raise ConfigError(f"another user's process answers on {found}: remove it and start your relay")


@contextmanager
def _judged(where: str) -> Iterator[None]:
    """Say of a question that left us that its outcome is unknown, if no answer came."""
    try:
        yield
    except TimeoutError as error:
        raise DeadlineExceeded(f"{where} did not answer in time: the outcome is unknown") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConnectionLost(f"{where} did not answer ({reason}): the outcome is unknown") from error


def _parse(raw: bytes, headers: Mapping[str, str], where: str) -> Any:  # noqa: ANN401  JSON is anything
    if not raw or "json" not in headers.get("content-type", ""):
        return None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise DependencyError(f"{where} answered with what is not JSON") from error
