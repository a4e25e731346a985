"""Where a broker is. Its address comes from a user, an invite or a file, and is believed by one rule."""

import ssl
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from claudemesh.kernel.errors import InvalidRequest

_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_NO_ISSUER: Final = range(18, 22)  # OpenSSL's X509_V_ERR_*: signed by itself, or by nobody that is known here


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


def explain_distrust(error: ssl.SSLCertVerificationError) -> str:
    """Say why who answered there is not believed to be the broker, and how one with a private CA would be."""
    why = f"its certificate is refused: {error.verify_message.rstrip('.')}"
    return f"{why}; name a CA of your own in SSL_CERT_FILE" if error.verify_code in _NO_ISSUER else why
