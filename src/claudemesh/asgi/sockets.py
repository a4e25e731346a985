"""Where a server listens: sockets that are bound before the server sees them, so that nobody else can reach them.

A server that bound a Unix socket itself would open it to all users for a moment, or for good. And what stands in
the way is never removed unless it is a socket of our own: the caller holds the instance lock, so nobody uses that
one. Where a client finds the socket is for `runtime.home` to say.
"""

import ipaddress
import os
import socket
import stat
from pathlib import Path
from typing import Final, NamedTuple

from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.home import (
    SOCKET_PATH_BYTES_MAX,
    choose_socket,
    ensure_private_dir,
    read_private,
    write_private,
)
from claudemesh.wire.addresses import is_loopback

_PRIVATE_MODE: Final = 0o600


# --- Unix ------------------------------------------------------------------------------------------


def bind_unix(path: Path, runtime_dir: Path | None = None) -> socket.socket:
    """Bind a socket that only its owner can open: 0600, in a directory that is 0700.

    If the path is too long for a socket, it is bound in the runtime directory, and a private file at `path` says
    where.
    """
    path = path.absolute()
    _ensure(path.parent)
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        return _bind_private(path)
    place = choose_socket(path.parent, runtime_dir)
    _ensure(place.parent)
    _judge_pointer(path, place)
    listener = _bind_private(place)
    write_private(path, os.fsencode(place) + b"\n")
    return listener


def unlink_unix(listener: socket.socket) -> None:
    """Remove a Unix socket's file, so that a client sees at once that nobody listens."""
    name = listener.getsockname() if listener.family == socket.AF_UNIX else None
    if isinstance(name, str) and name and (path := Path(name)).is_socket():
        path.unlink(missing_ok=True)


def _ensure(directory: Path) -> None:
    try:
        ensure_private_dir(directory)
    except OSError as error:
        raise ConfigError(f"cannot make {directory}: {error.strerror}") from error


def _bind_private(path: Path) -> socket.socket:
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        # Its directory kept all others out until here. A umask would too, but it is the whole process's: two
        # threads that set and restore it at once leave it changed.
        path.chmod(_PRIVATE_MODE)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen at {path}: {error.strerror}") from error
    listener.settimeout(0)
    return listener


def _clear(path: Path) -> None:
    """Remove a socket that an earlier process of ours left behind; anything else stays, and is refused."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise ConfigError(f"{path} is in the way of the socket and is not one: move it away")
    if status.st_uid != os.geteuid():
        raise ConfigError(f"{path} is a socket of another user: move it away")
    path.unlink()


def _judge_pointer(path: Path, place: Path) -> None:
    """Let a file be replaced only if it names a socket as ours is named."""
    try:
        named = Path(os.fsdecode(read_private(path).strip()))
    except FileNotFoundError:
        return
    if named.name != place.name:
        raise ConfigError(f"{path} is in the way of the socket and does not name one: move it away")


# --- TCP -------------------------------------------------------------------------------------------


class Address(NamedTuple):
    """Where a server is told to listen."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def url(self, port: int) -> str:
        """Return what it is reached by, once it has a port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{port}"


def parse_listen(text: str) -> Address:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal()):
        raise ConfigError(f"listen = {text!r} is not HOST:PORT")
    return Address(host, int(port))


def bind_tcp(host: str, port: int, *, allow_any: bool = False) -> socket.socket:
    """Bind a port of this machine only; `allow_any` is for servers that are meant to be reached from others."""
    if port not in range(1 << 16):
        raise ConfigError(f"{port} is not a port")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen at {host}:{port}: {error}") from error
    family, _, _, _, address = found[0]
    if not allow_any and not all(_is_loopback(address) for *_, address in found):
        raise ConfigError(f"{host} can be reached from other machines: listen at 127.0.0.1")
    # With its protocol named: else asyncio does not know that it is TCP, and leaves Nagle's delay on.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A port that was served a moment ago is free; one that is being served is still refused.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # There is one address to name, so [::] is both families', whatever the machine's own default.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen at {host}:{port}: {error.strerror}") from error
    listener.settimeout(0)
    return listener


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def _is_loopback(address: tuple[object, ...]) -> bool:
    return ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
