"""What comes back of a request: an answer, one that cannot be passed on, or none."""

import asyncio
import gzip

import pytest

from claudemesh.edge.upstream import Outgoing, Unanswered, UpstreamLimits
from claudemesh.kernel.write_errors import AnswerTooLarge, BadGateway, RedirectRefused
from tests.unit.edge.fake_upstream import BOUND_S, OK, WRITE, Peer, Step, answer, ask, hold, read, relay_to, reset

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SMALL = UpstreamLimits(answer_bytes_max=1_000, head_bytes_max=2_000)


# --- what comes back -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [
        (b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nbody", 201, b"body"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;x=y\r\ndy\r\n0\r\nX: y\r\n\r\n",
            200,
            b"body",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\nContent-Length: 5000\r\n\r\n', 304, b""),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", 503, b""),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil it is closed", 200, b"until it is closed"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 300 Choose\r\nContent-Length: 0\r\n\r\n", 300, b""),
    ],
)
async def test_an_answer_is_returned_whatever_its_status(sent: bytes, status: int, body: bytes) -> None:
    async with relay_to((answer(sent),), limits=SMALL) as (_, upstream):
        incoming = await ask(upstream)
    assert (incoming.status, incoming.body) == (status, body)


async def test_an_answer_may_come_byte_by_byte() -> None:
    sent = b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED[:-2] + b"ETag: x\r\n\r\n1\r\na\r\n0\r\n\r\n"

    async def dribble(peer: Peer) -> None:
        await peer.read()
        for byte in sent:
            await peer.write(bytes([byte]))
            await asyncio.sleep(0)

    async with relay_to((dribble, dribble)) as (fake, upstream):
        for _ in range(2):
            assert await ask(upstream) == (200, ((b"etag", b"x"),), b"a")
    assert fake.connections == 1


async def test_the_head_alone_is_answered_with_the_head_alone() -> None:
    async with relay_to((answer(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nETag: x\r\n\r\n"),)) as (
        fake,
        upstream,
    ):
        for _ in range(2):
            assert await ask(upstream, Outgoing("HEAD", "/x")) == (200, ((b"etag", b"x"),), b"")
    assert fake.connections == 2


@pytest.mark.req("R6")
async def test_headers_of_the_connection_and_cookies_are_not_passed_on() -> None:
    sent = (
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
        b'Set-Cookie: a=b\r\nTrailer: X\r\nETag: "1"\r\nX-Other: 2\r\nContent-Length: 0\r\n\r\n'
    )
    async with relay_to((answer(sent),)) as (_, upstream):
        assert (await ask(upstream)).headers == ((b"etag", b'"1"'), (b"x-other", b"2"))


@pytest.mark.req("R4")
@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"303 See", b"307 Temporary", b"308 Permanent"])
@pytest.mark.parametrize(
    "location", [b"http://127.0.0.1/", b"http://169.254.169.254/", b"file:///etc/passwd", b"/elsewhere"]
)
async def test_42_a_redirect_is_not_followed(status: bytes, location: bytes) -> None:
    sent = b"HTTP/1.1 " + status + b"\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
    async with relay_to((answer(sent),)) as (fake, upstream):
        with pytest.raises(RedirectRefused) as refused:
            await ask(upstream)
    assert (refused.value.status, refused.value.code) == (502, "redirect_refused")
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_001,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"64\r\n" + b"x" * 100 + b"\r\n" + b"3e8\r\n" + b"x" * 1_000,
        b"HTTP/1.1 200 OK\r\nX-Y: " + b"z" * 2_001,
        b"HTTP/1.1 200 OK\r\n" + (b"X: y\r\n" * 400),
    ],
    ids=["length", "until closed", "chunks", "header", "headers"],
)
async def test_an_answer_that_is_too_large_is_cut(sent: bytes) -> None:
    async with relay_to((answer(sent), hold), limits=SMALL) as (fake, upstream):
        with pytest.raises(AnswerTooLarge) as refused:
            await ask(upstream)
        async with asyncio.timeout(BOUND_S):
            await fake.gone.wait()
    assert refused.value.status == 502


async def test_55_an_answer_that_is_packed_although_nobody_asked_is_not_unpacked() -> None:
    packed = gzip.compress(b"\0" * 1_000_000)
    sent = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with relay_to((answer(sent + packed),)) as (_, upstream):
        incoming = await ask(upstream)
    assert incoming.body == packed
    assert incoming.headers == ((b"content-encoding", b"gzip"),)


@pytest.mark.parametrize(
    "sent",
    [
        b"220 mail.example ESMTP\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x16\x03\x01\x00\x05",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\x08b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 9,
    ],
)
async def test_what_is_no_answer_is_a_bad_gateway(sent: bytes) -> None:
    async with relay_to((answer(sent), hold)) as (fake, upstream):
        with pytest.raises(BadGateway) as refused:
            await ask(upstream)
        async with asyncio.timeout(BOUND_S):
            await fake.gone.wait()
    assert (refused.value.status, refused.value.code) == (502, "bad_gateway")


# --- unanswered: a byte may have got there ----------------------------------------------------------------


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "script",
    [
        (read,),
        (read, reset),
        (answer(b"H"),),
        (answer(b"H"), reset),
        (answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),),
        (answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), reset),
        (answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"),),
        (answer(b"HTTP/1.1 100 Continue\r\n\r\n"),),
    ],
    ids=["closed", "reset", "a byte", "a byte, reset", "truncated", "truncated, reset", "chunks", "interim"],
)
async def test_an_answer_that_breaks_off_is_unanswered_and_not_asked_again(script: tuple[Step, ...]) -> None:
    async with relay_to(script) as (fake, upstream):
        with pytest.raises(Unanswered):
            await ask(upstream)
        assert fake.connections == 1
        assert upstream._count == 0


@pytest.mark.req("R4")
async def test_an_answer_without_a_length_that_is_reset_is_unanswered() -> None:
    async with relay_to((answer(b"HTTP/1.1 200 OK\r\n\r\nhalf"), reset)) as (_, upstream):
        with pytest.raises(Unanswered):
            await ask(upstream)


@pytest.mark.req("R4")
async def test_an_answer_that_does_not_come_in_time_is_unanswered() -> None:
    slow = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    async with relay_to((read, hold), (slow, hold)) as (fake, upstream):
        for _ in range(2):
            fake.gone.clear()
            with pytest.raises(Unanswered):
                await upstream.request(WRITE, timeout_s=0.05)
            async with asyncio.timeout(BOUND_S):
                await fake.gone.wait()
        assert upstream._count == 0
