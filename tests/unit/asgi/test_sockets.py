"""A server listens where only its owner can reach it, and removes nothing that is not its own."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from claudemesh.asgi.sockets import bind_tcp, bind_unix, parse_listen, port_of, unlink_unix
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.home import find_socket


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def sock(tmp_path: Path) -> Path:
    return tmp_path / "mesh" / "sock"


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """Make a runtime directory whose name is short, which a test's own is not."""
    with TemporaryDirectory(prefix="cm-") as directory:
        yield Path(directory)


@pytest.fixture
def long_sock(tmp_path: Path) -> Path:
    directory = tmp_path / ("long-" * 22)
    directory.mkdir(mode=0o700)
    return directory / "sock"


# --- Unix ------------------------------------------------------------------------------------------


@pytest.mark.req("D15")
@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_socket_and_directory_are_the_owner_s_only_whatever_the_umask(sock: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with bind_unix(sock):
            assert (mode_of(sock), mode_of(sock.parent)) == (0o600, 0o700)
    finally:
        os.umask(before)


@pytest.mark.req("D15")
def test_binding_leaves_the_umask_alone_since_all_threads_share_it(
    sock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "umask")
    with bind_unix(sock):
        assert mode_of(sock) == 0o600


@pytest.mark.req("D15")
@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_a_directory_that_others_may_enter_is_refused(sock: Path, mode: int) -> None:
    sock.parent.mkdir()
    sock.parent.chmod(mode)
    with pytest.raises(ConfigError):
        bind_unix(sock)
    assert not sock.exists()


@pytest.mark.req("D15")
def test_a_directory_of_another_user_is_refused(sock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sock.parent.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: sock.parent.stat().st_uid + 1)
    with pytest.raises(ConfigError):
        bind_unix(sock)


def test_a_socket_that_a_dead_process_left_is_taken_over(sock: Path) -> None:
    bind_unix(sock).close()
    assert sock.is_socket()
    with bind_unix(sock) as listener:
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.fspath(sock))


@pytest.mark.req("D15")
@pytest.mark.parametrize("kind", ["link", "dangling", "link to a socket", "file", "directory", "pipe"])
def test_what_is_not_a_socket_is_named_and_left_alone(sock: Path, kind: str) -> None:
    sock.parent.mkdir(mode=0o700)
    other = sock.with_name("other")
    if kind == "link":
        other.write_text("precious")
        sock.symlink_to(other)
    elif kind == "dangling":
        sock.symlink_to(other)
    elif kind == "link to a socket":
        bind_unix(other).close()
        sock.symlink_to(other)
    elif kind == "file":
        sock.write_text("precious")
    elif kind == "directory":
        sock.mkdir()
    else:
        os.mkfifo(sock)
    before = sock.lstat()
    with pytest.raises(ConfigError, match=str(sock)):
        bind_unix(sock)
    assert os.path.samestat(before, sock.lstat())
    assert other.exists() == (kind in ("link", "link to a socket"))


@pytest.mark.req("D15")
def test_a_socket_of_another_user_is_left_alone(sock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bind_unix(sock).close()
    owner = sock.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr("claudemesh.asgi.sockets.ensure_private_dir", lambda _: None)
    with pytest.raises(ConfigError, match="another user"):
        bind_unix(sock)
    assert sock.is_socket()


def test_a_path_that_is_too_long_names_a_socket_in_the_runtime_directory(long_sock: Path, run_dir: Path) -> None:
    for _ in range(2):  # the second finds what the first left
        with bind_unix(long_sock, run_dir) as listener:
            place = find_socket(long_sock)
            assert place is not None
            assert place.parent.parent == run_dir
            assert (mode_of(long_sock), mode_of(place), mode_of(place.parent)) == (0o600, 0o600, 0o700)
            listener.listen()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(os.fspath(place))


def test_a_place_that_cannot_be_made_is_named(sock: Path, long_sock: Path, run_dir: Path) -> None:
    with pytest.raises(ConfigError, match="cannot make"):
        bind_unix(sock.parent / "below" / "sock")
    with pytest.raises(ConfigError, match="cannot make"):
        bind_unix(long_sock, run_dir / "nowhere")


def test_a_runtime_directory_that_moved_is_named_anew(long_sock: Path, run_dir: Path) -> None:
    for name in ("one", "two"):
        (run_dir / name).mkdir(mode=0o700)
        bind_unix(long_sock, run_dir / name).close()
        place = find_socket(long_sock)
        assert place is not None
        assert place.is_relative_to(run_dir / name)


def test_a_file_that_names_no_socket_of_ours_is_left_alone(long_sock: Path, run_dir: Path) -> None:
    long_sock.write_text("precious")
    long_sock.chmod(0o600)
    with pytest.raises(ConfigError, match="in the way"):
        bind_unix(long_sock, run_dir)
    assert long_sock.read_text() == "precious"


def test_a_socket_that_is_given_up_leaves_no_file(sock: Path) -> None:
    with bind_unix(sock) as listener:
        unlink_unix(listener)
        assert not sock.exists()
        unlink_unix(listener)


# --- TCP -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_a_loopback_address_is_bound(host: str) -> None:
    with bind_tcp(host, 0) as listener:
        assert port_of(listener) > 0


@pytest.mark.req("D15")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - as below
def test_an_address_that_others_can_reach_is_refused_unless_it_is_asked_for(host: str) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1"):
        bind_tcp(host, 0)


def test_an_open_address_is_bound_if_it_is_asked_for() -> None:
    with bind_tcp("0.0.0.0", 0, allow_any=True) as listener:  # noqa: S104 - that is the question
        assert port_of(listener) > 0


def test_an_open_ipv6_address_is_reached_by_both_families() -> None:
    with bind_tcp("::", 0, allow_any=True) as listener:
        listener.listen()
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port_of(listener)), 30).close()


def test_a_port_that_is_served_already_is_refused_and_one_that_was_served_is_not() -> None:
    with bind_tcp("127.0.0.1", 0) as listener:
        listener.listen()
        port = port_of(listener)
        with pytest.raises(ConfigError, match=str(port)):
            bind_tcp("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port)):
            listener.settimeout(30)
            listener.accept()[0].close()  # ours is closed first, and lingers
    bind_tcp("127.0.0.1", port).close()


@pytest.mark.parametrize(
    ("host", "port"), [("no.such.name.invalid", 1), ("", 1), ("127.0.0.1", 70_000), ("127.0.0.1", -1)]
)
def test_what_is_no_address_is_refused(host: str, port: int) -> None:
    with pytest.raises(ConfigError):
        bind_tcp(host, port, allow_any=True)


@pytest.mark.parametrize(
    ("text", "url", "is_loopback"),
    [
        ("127.0.0.1:7450", "http://127.0.0.1:7450", True),
        ("[::1]:7450", "http://[::1]:7450", True),
        ("[::]:7450", "http://[::]:7450", False),
        ("mesh.example.org:7450", "http://mesh.example.org:7450", False),
    ],
)
def test_where_to_listen_is_read_and_told_as_a_client_takes_it(text: str, url: str, *, is_loopback: bool) -> None:
    address = parse_listen(text)
    assert (address.url(address.port), address.is_loopback) == (url, is_loopback)


@pytest.mark.parametrize("text", ["", "here", ":7450", "127.0.0.1:", "127.0.0.1:²", "127.0.0.1:-1"])
def test_what_is_no_place_to_listen_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        parse_listen(text)
