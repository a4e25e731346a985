"""Which upstream a relay may have, and at which addresses: judged before a connection, for every address of a name.

An operator names one origin. An address that is written out is the one that is meant. A name may resolve to
anything, today and tomorrow, and to something else for whoever asks again: so every address it has must be a public
one or lie in a network that the operator named. `localhost` is this machine. Addresses inside of addresses (IPv4 in
IPv6, by any of the ways there are) are judged by what is inside. Without TLS only this machine and named networks
are spoken to, since the credential goes along.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from claudemesh.kernel.errors import ConfigError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_PORTS: Final = {"http": 80, "https": 443}
_NAME = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?\.?"
)
_PREFIX = re.compile(r"(?:/[A-Za-z0-9_.~-]+)*")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOCALHOST: Final = "localhost"
_EVERYBODY: Final = IPv4Address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Origin:
    """The one upstream."""

    scheme: str
    host: str  # a name in small letters, or an address without brackets
    port: int
    prefix: str  # of every path, "" or "/api"
    address: Address | None  # if that is what was written

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Return what goes into the Host header."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_origin(url: str) -> Origin:
    """Return the upstream that the URL names, or say what is wrong with it, without showing it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError("the upstream is no URL") from error
    if parts.scheme not in _PORTS:
        raise ConfigError("the upstream's URL begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the upstream's URL holds a login: put the credential where credentials are kept")
    if parts.query or parts.fragment or "?" in url or "#" in url or not _PREFIX.fullmatch(parts.path.rstrip("/")):
        raise ConfigError("the upstream's URL ends with its host, or with a plain path")
    if ".." in parts.path.split("/") or "." in parts.path.split("/"):
        raise ConfigError("the path of the upstream's URL goes up")
    host = (parts.hostname or "").lower()
    address = _parse_address(host)
    if address is None and not _NAME.fullmatch(host):
        raise ConfigError("the upstream's host is neither a name nor an address as it is usually written")
    if port == 0:
        raise ConfigError("the upstream's port is 1 to 65535")
    return Origin(parts.scheme, host, port or _PORTS[parts.scheme], parts.path.rstrip("/"), address)


def _parse_address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks, or say which of the texts is none."""
    networks: list[Network] = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise ConfigError(f"networks: {text!r} is no network, as 10.0.0.0/8 is") from error
    return tuple(networks)


def judge_address(origin: Origin, resolved: str, networks: Iterable[Network]) -> str | None:
    """Return why this address of the origin is not to be connected to, or None if it may be."""
    address = _parse_address(resolved)
    if address is None or (isinstance(address, IPv6Address) and address.scope_id is not None):
        return "it is no address"
    inner = unwrap(address)
    if inner.is_unspecified or inner.is_multicast or inner == _EVERYBODY:
        return "nobody has this address"
    if any(inner in network or address in network for network in networks):
        return None
    is_local = inner.is_loopback and (origin.address == address or origin.host.rstrip(".") == _LOCALHOST)
    if not (is_local or origin.address == address or inner.is_global):
        return "it is not public, and in none of the named networks"
    return None if is_local or origin.is_tls else "without TLS it has to be in a named network"


def unwrap(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (address,))[-1]
