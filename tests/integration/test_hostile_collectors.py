"""Collectors that answer badly, for ever or not at all, and what they must not get."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from claudemesh.daemon.settings import Config, Tracing
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime import spans as sending
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.spans import Span, Spans
from tests.integration.collector import collecting
from tests.mesh import local_daemon

pytestmark = pytest.mark.req("O1")

WITHIN_S = 30
NOBODY = "http://127.0.0.1:9/v1/traces"
TOKEN = "a-token-of-the-collector"  # noqa: S105

Behave = Callable[[socket.socket], None]


@contextmanager
def answering(behave: Behave) -> Iterator[str]:
    """Let every connection be treated like this, once it has sent something."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):
                        behave(connection)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
        listener.shutdown(socket.SHUT_RDWR)
    serving.join(WITHIN_S)


def a_span(number: int = 1, start_ms: int = 1) -> Span:
    return Span(
        name=f"span {number}",
        kind="producer",
        trace_id=1,
        span_id=number,
        start_ms=start_ms,
        end_ms=start_ms + 1,
        attributes={"k": "v"},
    )


def send(endpoint: str, *spans: Span) -> list[str]:
    """Send these, and return what was said about it."""
    said: list[str] = []
    sender = Spans(endpoint, 1.0, {"claudemesh.member": "alice"}, said.append)
    for span in spans or [a_span()]:
        sender.put(span)
    sender.close()
    return said


def test_a_redirect_is_not_followed_and_not_taken_for_success(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n"

    def behave(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(elsewhere)

    monkeypatch.setattr(sending, "QUIET_S", 0)
    with answering(behave) as endpoint:
        assert "302" in " ".join(send(endpoint))


def test_an_answer_without_end_is_not_read() -> None:
    taken: list[int] = []
    is_cut = threading.Event()

    def behave(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            for _ in range(64):
                connection.sendall(bytes(1 << 20))
                taken.append(1)
        finally:
            is_cut.set()

    with answering(behave) as endpoint:
        send(endpoint)
        assert is_cut.wait(WITHIN_S)
    assert len(taken) < 64


def test_a_collector_that_never_ends_its_answer_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "CLOSE_S", 0.2)
    asked, is_over = threading.Event(), threading.Event()

    def behave(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        asked.set()
        while not is_over.wait(0.1):  # each byte begins the time limit of a read anew
            connection.sendall(b"H")

    with answering(behave) as endpoint:
        closing = threading.Thread(target=send, args=[endpoint], daemon=True)
        closing.start()
        assert asked.wait(WITHIN_S)
        closing.join(WITHIN_S / 2)
        is_closed = not closing.is_alive()
        is_over.set()
    assert is_closed


def test_the_collectors_token_is_sent_and_no_password_of_netrc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password another\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{TOKEN}")
    heads: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        heads.append(connection.recv(1 << 16).partition(b"\r\n\r\n")[0].lower())
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    with answering(behave) as endpoint:
        send(endpoint)
    assert [b"authorization: bearer " + TOKEN.encode() in head for head in heads] == [True]


@pytest.mark.parametrize("header", [f"Authorization: Bearer {TOKEN}", f"authorization=Bearer%0A{TOKEN}"])
def test_a_header_that_is_none_is_told_of_without_its_token(monkeypatch: pytest.MonkeyPatch, header: str) -> None:
    monkeypatch.setattr(sending, "QUIET_S", 0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", header)
    said = " ".join(send(NOBODY))
    assert "not shown" in said
    assert TOKEN not in said


def test_an_instant_that_the_format_cannot_hold_costs_no_other_span() -> None:
    with collecting() as collector:
        send(collector.endpoint, a_span(1), a_span(2, start_ms=2**53 - 2), a_span(3, start_ms=-5))
        assert len(collector.wait_for(3)) == 3


def test_a_long_text_of_a_broker_is_cut() -> None:
    text = "x" * 100_000
    with collecting() as collector:
        send(collector.endpoint, replace(a_span(), attributes={"k": text}, error=text))
        [span] = collector.wait_for(1).values()
    assert span.attributes[0].value.string_value == span.status.message == text[: sending.TEXT_CHARS_MAX]


async def test_variables_that_cannot_be_followed_are_a_wrong_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")  # less than a batch
    config = Config(tracing=Tracing(endpoint=NOBODY))
    with pytest.raises(ConfigError, match="OTEL_"):
        async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), config=config):
            pass


@pytest.mark.parametrize(
    ("endpoint", "is_one"),
    [
        ("", True),
        ("https://collector.example/v1/traces", True),
        ("http://[::1]:4318/v1/traces", True),
        ("http://127.0.0.1:port/v1/traces", False),
        ("http://[::1/v1/traces", False),
        ("http://me:password@collector.example/v1/traces", False),
        ("http://collector.example/v1/traces?key=password", False),
        ("file:///etc/passwd", False),
    ],
)
def test_only_an_endpoint_that_can_be_asked_is_taken(endpoint: str, *, is_one: bool) -> None:
    try:
        msgspec.convert({"endpoint": endpoint}, Tracing)
    except msgspec.ValidationError:
        assert not is_one
    else:
        assert is_one
