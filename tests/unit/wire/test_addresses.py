"""Which addresses a broker may have, whoever says so."""

import pytest

from claudemesh.kernel.errors import InvalidRequest
from claudemesh.wire.addresses import parse_broker_url


@pytest.mark.req("N1")
@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:7450", "http://127.0.0.1:7450"),
        ("ws://localhost:1/", "http://localhost:1"),
        ("http://127.8.9.1:7450", "http://127.8.9.1:7450"),
        ("http://[::1]:7450", "http://[::1]:7450"),
        ("https://mesh.example.org", "https://mesh.example.org"),
        ("wss://mesh.example.org/base/", "https://mesh.example.org/base"),
    ],
)
def test_a_broker_has_one_address(text: str, url: str) -> None:
    assert parse_broker_url(text) == url


@pytest.mark.req("N1")
@pytest.mark.parametrize(
    "text",
    [
        "http://mesh.example.org",
        "ws://10.0.0.1:7450",
        "http://127.0.0.1.example.org",
        "http://localhost.example.org",
        "http://0.0.0.0:1",
        "https://user:secret@example.org",
        "https://example.org?token=x",
        "https://example.org#x",
        "https://",
        "ftp://127.0.0.1",
        "http://127.0.0.1:99999",
        "127.0.0.1:7450",
        "http://[::1",
        "",
    ],
)
def test_without_tls_only_this_machine_is_near_enough(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_broker_url(text)
