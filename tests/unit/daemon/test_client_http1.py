"""HTTP/1.1 without IO: a response is read however it is cut, and nothing else is taken for one."""

import pytest

from claudemesh.daemon.client.http1 import EventReader, ResponseReader, StreamEvent, quote, render_request
from claudemesh.kernel.errors import ConnectionLost, DependencyError, InvalidRequest


def read_in_pieces(raw: bytes, size: int) -> ResponseReader:
    reader = ResponseReader()
    for start in range(0, len(raw), size):
        reader.feed(raw[start : start + size])
        if reader.is_done:
            break
    return reader


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("raw", "body", "is_last"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", b"", True),
        (b"HTTP/1.1 204 No\r\n\r\n", b"", False),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x", False),
        (
            b"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING:Chunked\r\n\r\n3;x\r\nabc\r\nA\r\n0123456789\r\n0\r\nT:\r\n\r\n",
            b"abc0123456789",
            False,
        ),
    ],
)
def test_a_response_is_read_however_it_is_cut(raw: bytes, body: bytes, is_last: bool, size: int) -> None:  # noqa: FBT001
    reader = read_in_pieces(raw, size)
    assert reader.is_done
    assert reader.take() == body
    assert reader.is_last is is_last


def test_a_response_without_a_length_ends_with_its_connection() -> None:
    reader = read_in_pieces(b"HTTP/1.1 200 OK\r\n\r\nabc", 4)
    assert not reader.is_done
    reader.feed(b"")
    assert reader.is_done
    assert reader.is_last
    assert reader.take() == b"abc"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_an_answer_that_is_cut_short_is_a_lost_connection(raw: bytes) -> None:
    reader = read_in_pieces(raw, 100)
    with pytest.raises(ConnectionLost):
        reader.feed(b"")


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_not_http_is_not_taken_for_an_answer(raw: bytes) -> None:
    with pytest.raises(DependencyError):
        ResponseReader().feed(raw)


def test_no_word_of_a_request_can_become_a_header() -> None:
    with pytest.raises(InvalidRequest):
        render_request("GET", "/v1/x\r\nX: y")
    with pytest.raises(InvalidRequest):
        render_request("GET", "/v1/events", headers={"Last-Event-ID": "a\nb"})
    assert quote("a\r\nb/ä") == "a%0D%0Ab%2F%C3%A4"
    assert render_request("POST", "/v1/x", {"a": 1}, {"n": 1, "no": None, "off": False}).endswith(
        b"POST /v1/x?n=1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Content-Length: 7\r\n\r\n{"a":1}'
    )


def test_an_event_without_data_is_none_and_its_id_stays() -> None:
    reader = EventReader()
    assert list(reader.feed(b"id: 7\r\n\r\nevent: x\n\n")) == []
    assert list(reader.feed(b"data:1\n")) == []
    assert list(reader.feed(b"\n")) == [StreamEvent("7", "x", "1")]
