"""What happens on the HTTP surfaces, for logs and metrics. Paths are the route table's, never the caller's."""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from claudemesh.runtime.observe import Level


class RequestAnswered(msgspec.Struct, frozen=True):
    """One request, from its first look-up to its last byte; a stream counts when it ends.

    A struct, since a frozen dataclass takes several times as long to make, and this is made with every request.
    """

    name: ClassVar[str] = "http.request_answered"
    level: ClassVar[Level] = "debug"
    method: str
    path: str  # as in the route table; empty if there is no such route
    status: int
    code: str  # of the error; empty if there was none
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """Nobody expected this. The error's text stays out: it may quote what was sent."""

    name: ClassVar[str] = "http.request_failed"
    level: ClassVar[Level] = "error"
    method: str
    path: str
    error: str
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A request did not get past the guard or the limits."""

    name: ClassVar[str] = "http.request_refused"
    level: ClassVar[Level] = "warning"
    code: str


@dataclass(frozen=True, slots=True)
class TokenExposed:
    """A security event: somebody put a token into a URL, where histories and logs keep it."""

    name: ClassVar[str] = "http.token_exposed"
    level: ClassVar[Level] = "error"
    peer: str
    is_ours: bool  # it was a token in force: rotate it


@dataclass(frozen=True, slots=True)
class TokenRotated:
    """A new local token is in force; the old one is taken for a minute more."""

    name: ClassVar[str] = "http.token_rotated"


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """A connection was closed before any request: another user's, one too many, or too slow."""

    name: ClassVar[str] = "http.connection_refused"
    level: ClassVar[Level] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class CertificateRead:
    """A TLS certificate was read, at the start or at a reload."""

    name: ClassVar[str] = "http.certificate_read"
    expires: str


@dataclass(frozen=True, slots=True)
class CertificateOutdated:
    """It is shown all the same, and clients will refuse it: have it renewed, then reload."""

    name: ClassVar[str] = "http.certificate_outdated"
    level: ClassVar[Level] = "error"
    reason: str


@dataclass(frozen=True, slots=True)
class CertificateKept:
    """A reload failed, and the certificate from before it is still shown."""

    name: ClassVar[str] = "http.certificate_kept"
    level: ClassVar[Level] = "error"
    reason: str


@dataclass(frozen=True, slots=True)
class ServerWarned:
    """The server's own words, which quote nothing of a request."""

    name: ClassVar[str] = "http.server_warned"
    level: ClassVar[Level] = "warning"
    text: str
    error: str = ""
