"""What a server shows: a certificate with its private key, and no change that would leave it with neither."""

import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from claudemesh.asgi.events import CertificateKept, CertificateOutdated, CertificateRead
from claudemesh.asgi.tls import Certificate
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.observe import Observer
from tests.certificates import Authority, Pair

NAME = "mesh.example.org"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.sign(f"DNS:{NAME}")


@pytest.fixture
def happened() -> list[object]:
    return []


@pytest.fixture
def observer(happened: list[object]) -> Observer:
    observer = Observer()
    observer.subscribe(object, happened.append)
    return observer


def shown(
    certificate: Certificate, authority: Authority, version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
) -> str:
    """Shake hands as a client that trusts the authority, and return the common name that it was shown."""
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    trusting.maximum_version = version
    asked, answered = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(answered, asked, server_hostname=NAME)
    server = certificate.context.wrap_bio(asked, answered, server_side=True)
    for side in (client, server, client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    subject: Any = (client.getpeercert() or {})["subject"]
    [[(_, name)]] = subject
    return str(name)


def test_a_certificate_is_shown_and_its_end_is_told(
    pair: Pair, authority: Authority, observer: Observer, happened: list[object]
) -> None:
    certificate = Certificate(*pair, observer)
    assert shown(certificate, authority) == "1"
    assert certificate.context.minimum_version == ssl.TLSVersion.TLSv1_2
    [read] = happened
    assert isinstance(read, CertificateRead)
    assert ssl.cert_time_to_seconds(read.expires) > 0


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(pair: Pair, observer: Observer, mode: int) -> None:
    pair.key.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        Certificate(*pair, observer)


@pytest.mark.parametrize("wrong", ["another key", "no key", "a key with a password", "no PEM", "no certificate"])
def test_what_is_no_certificate_with_its_key_is_one_line_that_names_the_file(
    pair: Pair, authority: Authority, observer: Observer, wrong: str
) -> None:
    named = pair.chain if wrong == "no certificate" else pair.key
    if wrong == "another key":
        authority.sign(f"DNS:{NAME}").key.rename(pair.key)
    elif wrong == "a key with a password":
        locking = ["openssl", "ec", "-in", pair.key, "-out", pair.key, "-aes256", "-passout", "pass:secret"]
        subprocess.run(locking, check=True, capture_output=True)
    elif wrong == "no PEM":
        pair.key.write_text("not a key")
    else:
        named.unlink()
    with pytest.raises(ConfigError, match=str(named)) as refused:
        Certificate(*pair, observer)
    assert "\n" not in str(refused.value)


def test_a_certificate_that_is_out_of_date_is_shown_and_told_of(
    authority: Authority, observer: Observer, happened: list[object]
) -> None:
    Certificate(*authority.sign(f"DNS:{NAME}", days=-1), observer)
    assert happened == [CertificateOutdated("certificate has expired")]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_reload_shows_what_the_files_hold_now(
    pair: Pair, authority: Authority, observer: Observer, version: ssl.TLSVersion
) -> None:
    certificate = Certificate(*pair, observer)
    pair.become(authority.sign(f"DNS:{NAME}"))
    certificate.reload()
    assert shown(certificate, authority, version) == "2"


@pytest.mark.parametrize("wrong", ["only the certificate is new", "the key is gone", "the key is open"])
def test_a_reload_that_fails_shows_what_was_shown_before(
    pair: Pair,
    authority: Authority,
    observer: Observer,
    happened: list[object],
    wrong: str,
) -> None:
    certificate = Certificate(*pair, observer)
    if wrong == "only the certificate is new":
        authority.sign(f"DNS:{NAME}").chain.rename(pair.chain)
    elif wrong == "the key is gone":
        pair.key.unlink()
    else:
        pair.key.chmod(0o644)
    certificate.reload()
    assert shown(certificate, authority) == "1"
    assert isinstance(happened[-1], CertificateKept)
