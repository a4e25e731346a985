"""Ports that are a test's own for as long as its process lives, also while nothing listens there.

A port that the kernel chose is anybody's again as soon as its server stops: a client elsewhere may be given it
before the server comes back, and a server at another address of this machine may have it already. These lie below
the kernel's range, and are taken in blocks, each marked by a name that ends with the process that holds it.
"""

import secrets
import socket

FIRST, LAST, BLOCK = 15_000, 30_000, 50

_marks: list[socket.socket] = []
_left: list[int] = []


def own_port() -> int:
    """Return a port that nobody listens on and that no other test is given."""
    while True:
        if not _left:
            _left.extend(_claim_block())
        port = _left.pop()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            try:
                probe.bind(("", port))  # at every address
            except OSError:
                continue  # somebody's who knows nothing of this
        return port


def own_address(host: str = "127.0.0.1") -> str:
    return f"{host}:{own_port()}"


def _claim_block() -> range:
    while True:
        # Not `random`: every xdist worker has the same seed.
        first = FIRST + BLOCK * secrets.randbelow((LAST - FIRST) // BLOCK)
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0claudemesh-test-ports-{first}")
        except OSError:
            mark.close()
            continue
        _marks.append(mark)
        return range(first, first + BLOCK)
