"""The local bearer token: a private file, and which tokens are in force.

This file decides what a presented token is. Whether one is needed at all is for `guard`.
"""

import hmac
from pathlib import Path
from typing import Final, Protocol

from claudemesh.asgi.events import TokenRotated
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.home import read_private, write_private
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.tokens import fresh_token

GRACE_MS: Final = 60_000
TOKEN_CHARS_MIN: Final = 32  # a shorter one was written by hand, and can be guessed


class TokenSource(Protocol):
    def identify(self, presented: bytes) -> str | None:
        """Return the name, one of a few, under which its requests are counted, or None; in constant time."""
        ...


class AnyOf:
    """The tokens of several sources. All are asked every time, so that the time does not tell whose it was."""

    def __init__(self, *sources: TokenSource) -> None:
        self._sources = sources

    def identify(self, presented: bytes) -> str | None:
        found = [source.identify(presented) for source in self._sources]
        return next((name for name in found if name is not None), None)


class TokenFile:
    """The token in the file, and for a minute after a rotation the one before it."""

    def __init__(self, path: Path, clock: Clock, observer: Observer) -> None:
        """Read the file, or make it; one that is not private, or is no token, is a ConfigError."""
        self._path = path
        self._clock = clock
        self._observer = observer
        self._current = _read_or_create(path)
        self._previous: bytes | None = None
        self._previous_until_ms = 0

    def identify(self, presented: bytes) -> str | None:
        is_current = hmac.compare_digest(presented, self._current)
        # Compared in any case, so that the time does not tell whether there was a rotation.
        is_previous = hmac.compare_digest(presented, self._previous or self._current)
        if is_current:
            return "local"
        if is_previous and self._clock.monotonic_ms() < self._previous_until_ms:
            return "local-previous"
        return None

    def rotate(self) -> str:
        """Put a new token into the file and return it. The old one works for a minute more, or until a restart."""
        token = fresh_token()
        write_private(self._path, f"{token}\n".encode())
        self._previous, self._current = self._current, token.encode()
        self._previous_until_ms = self._clock.monotonic_ms() + GRACE_MS
        self._observer.publish(TokenRotated())
        return token

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"


def read_token(path: Path) -> str:
    """Return the token as a client sends it; FileNotFoundError if there is no file."""
    token = read_private(path).strip()
    if len(token) < TOKEN_CHARS_MIN or not token.isascii() or len(token.split()) != 1:
        raise ConfigError(f"{path} holds no token: remove it, and the next start makes a new one")
    return token.decode()


def _read_or_create(path: Path) -> bytes:
    try:
        return read_token(path).encode()
    except FileNotFoundError:
        token = fresh_token()
    try:
        write_private(path, f"{token}\n".encode(), replace=False)
    except FileExistsError:  # somebody was faster, and theirs is the one that clients find
        return read_token(path).encode()
    return token.encode()
