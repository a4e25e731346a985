"""How far one gets towards a broker: its name, its port, its certificate, its answer. What fails ends it."""

import json
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from claudemesh.cli import enrol
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import MeshError
from claudemesh.wire.addresses import explain_distrust, parse_broker_url

Step = Literal["address", "name", "port", "certificate", "answer", "reached"]

CONNECT_S: Final = 3.0

_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Probe:
    step: Step  # that failed; or `reached`
    detail: str
    health: dict[str, Any] | None = None
    skew_ms: int | None = None  # how much later it is there
    took_ms: int = 0  # by which the skew may be wrong


def probe(url: str, clock: Clock) -> Probe:
    """Try each step, once."""
    try:
        parts = urlsplit(parse_broker_url(url))
    except MeshError as error:
        return Probe("address", error.detail or error.title)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Probe("name", f"{host} has no address: {error.strerror}")
    try:
        connection = socket.create_connection((host, port), CONNECT_S)
    except OSError as error:
        where = ", ".join(sorted({str(one[4][0]) for one in found}))
        return Probe("port", f"nothing answers at {where}, port {port}: {error.strerror or 'no answer in time'}")
    with connection:
        refused = _shake_hands(connection, host) if parts.scheme == "https" else None
    return refused or _ask(url, clock)


def _shake_hands(connection: socket.socket, host: str) -> Probe | None:
    try:
        ssl.create_default_context().wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return Probe("certificate", explain_distrust(error))
    except OSError as error:
        return Probe("certificate", f"no TLS is spoken there: {getattr(error, 'reason', None) or error.strerror}")
    return None


def _ask(url: str, clock: Clock) -> Probe:
    before_ms, began_ms = clock.wall_ms(), clock.monotonic_ms()
    try:
        status, content = enrol.exchange(url, "/v1/health", timeout_s=CONNECT_S)
    except MeshError as error:
        return Probe("answer", error.detail or error.title)
    took_ms = clock.monotonic_ms() - began_ms
    try:
        health = json.loads(content)
    except ValueError:
        health = None
    if status != _OK or not isinstance(health, dict) or not isinstance(health.get("broker_key"), str):
        return Probe("answer", f"it answered {status}, and not as a broker does")
    there_ms = health.get("server_time_ms")
    skew_ms = there_ms - (before_ms + took_ms // 2) if isinstance(there_ms, int) else None
    return Probe("reached", f"answered in {took_ms} ms", health, skew_ms, took_ms)
