"""The certificate that a server shows: read when it starts, and again, with every connection left alone, on demand.

This file decides what may be shown at all. Whether it is believed is for clients to judge: one that is out of date
is warned of and shown, since a clock that is wrong at boot must not keep a server down.
"""

import ssl
from contextlib import suppress
from pathlib import Path

from claudemesh.asgi.events import CertificateKept, CertificateOutdated, CertificateRead
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.home import read_private
from claudemesh.runtime.observe import Observer


class Certificate:
    """A certificate and its key, both files. The listeners keep `context`; what it shows is changed by `reload`."""

    def __init__(self, chain: Path, key: Path, observer: Observer) -> None:
        """Read both; a key that is not private, or two files that are no pair, are a ConfigError."""
        self._chain = chain
        self._key = key
        self._observer = observer
        self._shown = self.context = self._read()
        # Not loaded into the standing context: a load that fails half way would leave it without a key.
        self.context.sni_callback = self._show

    def reload(self) -> None:
        """Show what the files hold now to whoever connects from here on; if it cannot be shown, go on as before."""
        try:
            self._shown = self._read()
        except ConfigError as error:
            self._observer.publish(CertificateKept(str(error)))

    def _show(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._shown

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            read_private(self._key)
            context.load_cert_chain(self._chain, self._key, password="")  # or it would be asked for at a terminal
        except ssl.SSLError as error:
            raise ConfigError(
                f"{self._chain} and {self._key} are no certificate and its key: "
                f"{error.reason or 'they have to be PEM, the key without a password'}"
            ) from error
        except OSError as error:
            raise ConfigError(f"{error.filename or self._chain} cannot be read: {error.strerror}") from error
        try:
            self._observer.publish(CertificateRead(_expiry(context, self._chain)))
        except ssl.SSLCertVerificationError as error:
            self._observer.publish(CertificateOutdated(error.verify_message))
        return context


def _expiry(server: ssl.SSLContext, chain: Path) -> str:
    """Return when it expires, as a client reads it that trusts this very certificate; what it objects to is raised.

    The standard library decodes a certificate only for one who was shown it.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(chain)
    asked, answered = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(answered, asked)
    callee = server.wrap_bio(asked, answered, server_side=True)
    for side in (caller, callee, caller, callee, caller):  # as often as TLS 1.2 needs it
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    shown = caller.getpeercert() or {}
    return str(shown.get("notAfter", ""))
