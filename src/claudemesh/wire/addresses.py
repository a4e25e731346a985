"""Where a broker is. Its address comes from a user, an invite or a file, and is believed by one rule."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from claudemesh.kernel.errors import InvalidRequest

_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


def parse_broker_url(text: str) -> str:
    """Accept a broker's address in its one form. Without TLS only this machine is near enough."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"{text!r} is not a broker's address: https://HOST[:PORT]") from error
    scheme, host = _SCHEMES.get(parts.scheme), parts.hostname
    if scheme is None or not host or parts.query or parts.fragment or parts.username is not None:
        raise InvalidRequest(f"{text!r} is not a broker's address: https://HOST[:PORT]")
    if scheme == "http" and not is_loopback(host):
        raise InvalidRequest(
            f"{text!r} is not on this machine, and http can be read and changed on its way: use https"
        )
    named = f"[{host}]" if ":" in host else host
    return f"{scheme}://{named}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
