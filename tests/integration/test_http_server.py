"""The server itself: how it starts and stops, what a connection can do, and WebSockets."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from websockets.asyncio.client import unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from claudemesh.asgi.events import ServerWarned
from claudemesh.asgi.messages import PULSE, TARGET, App, Pulse, Receive, Scope, Send
from claudemesh.asgi.server import Server, ServerLimits
from claudemesh.asgi.sockets import bind_unix
from claudemesh.runtime.observe import Observer
from tests.integration.local_ipc import BOUND_S, Client, on_uvloop, serving


async def nothing(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


# --- start and stop --------------------------------------------------------------------------------


@on_uvloop
async def test_a_server_may_be_stopped_before_it_started_and_twice(tmp_path: Path) -> None:
    sock = tmp_path / "mesh" / "sock"
    server = Server(nothing, [bind_unix(sock)], Observer())
    await server.stop()
    await server.stop()
    assert not sock.exists()
    with pytest.raises(RuntimeError):
        await server.start()


@on_uvloop
async def test_a_stopped_server_leaves_no_socket_behind_and_the_next_one_takes_its_place(tmp_path: Path) -> None:
    for _ in range(3):
        async with serving(tmp_path) as service, await service.by_socket() as client:
            assert (await client.ask("GET", "/v1/page")).status == 200
        assert not service.path.exists()


@on_uvloop
async def test_stopping_ends_idle_connections_at_once_and_waits_for_requests(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as service,
        await service.by_socket() as idle,
        await service.by_socket() as busy,
        asyncio.TaskGroup() as tasks,
    ):
        assert (await idle.ask("GET", "/v1/page")).status == 200
        held = tasks.create_task(busy.ask("GET", "/v1/held"))
        await service.toy.held.acquire()
        stopping = tasks.create_task(service.server.stop(grace_s=30))
        assert await idle.ended() == b""
        assert not stopping.done()
        service.toy.gate.set()
        answer = await held
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await stopping


@on_uvloop
async def test_stopping_ends_streams_properly_and_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, await service.by_socket() as client:
        await client.ask("GET", "/v1/events")
        await client.reader.readuntil(b"first\n\n")
        await service.server.stop(grace_s=30)
        assert (await client.ended()).endswith(b"0\r\n\r\n")
        assert service.toy.stream_closed.is_set()


@on_uvloop
async def test_what_does_not_end_within_the_grace_is_cut_without_an_answer(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as service,
        await service.by_socket() as client,
    ):
        await client.send(b"GET /v1/held HTTP/1.1\r\nHost: x\r\n\r\n")
        await service.toy.held.acquire()
        await service.server.stop(grace_s=0.05)
        assert await client.ended() == b""
        assert not service.path.exists()


@on_uvloop
async def test_a_server_takes_over_no_signal(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving(tmp_path):
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@on_uvloop
async def test_several_servers_share_a_loop_and_end_each_by_itself(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with serving(tmp_path) as one:
        async with serving(tmp_path_factory.mktemp("two")) as two, await two.by_socket() as client:
            assert (await client.ask("GET", "/v1/page")).status == 200
        async with await one.by_socket() as client:
            assert (await client.ask("GET", "/v1/page")).status == 200


# --- a connection ----------------------------------------------------------------------------------


@on_uvloop
async def test_requests_sent_in_a_row_are_answered_in_that_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, await service.by_socket() as client:
        await client.send(b"".join(b"GET /v1/trace/%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(50)))
        answers = [await client.answer() for _ in range(50)]
        assert [answer.json["text"] for answer in answers] == [str(n) for n in range(50)]


@on_uvloop
async def test_a_request_right_behind_a_large_one_is_not_taken_for_a_part_of_it(tmp_path: Path) -> None:
    large = b'{"text":"' + b"x" * 60_000 + b'"}'
    head = b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    async with serving(tmp_path) as service, await service.by_socket() as client:
        for _ in range(10):
            await client.send((head % len(large) + large) * 3 + b"GET /v1/pa")
            assert [(await client.answer()).status for _ in range(3)] == [202] * 3
            await client.send(b"ge HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.answer()).status == 200


class Watched:
    """A transport whose writes are written down."""

    def __init__(self, transport: asyncio.Transport, writes: list[bytes]) -> None:
        self._transport = transport
        self._writes = writes

    def write(self, data: bytes) -> None:
        self._writes.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


@on_uvloop
async def test_head_and_body_of_an_answer_leave_in_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    made = HttpToolsProtocol.connection_made
    monkeypatch.setattr(HttpToolsProtocol, "connection_made", lambda self, t: made(self, Watched(t, writes)))
    async with serving(tmp_path) as service, await service.by_socket() as client:
        await client.ask("GET", "/v1/page")
        await client.ask("POST", "/v1/echo", {"text": "x"})
        await client.ask("GET", "/v1/nowhere")
    assert [write[:12] for write in writes] == [b"HTTP/1.1 200", b"HTTP/1.1 202", b"HTTP/1.1 404"]
    assert all(write.endswith(b"}") for write in writes)


@pytest.mark.req("D15")
@on_uvloop
async def test_what_follows_a_body_does_not_count_as_a_header(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, await service.by_tcp() as client:
        head = f"POST /v1/echo HTTP/1.1\r\nHost: {client.host}\r\nContent-Type: application/json\r\n"
        body = "Transfer-Encoding: chunked\r\n\r\nc\r\n" + '{"text":"x"}' + "\r\n0\r\n"
        await client.send(f"{head}{body}Authorization: Bearer {service.token}\r\n\r\n".encode())
        assert (await client.answer()).refusal == (401, "missing_token")


@pytest.mark.req("R4")
@on_uvloop
async def test_40_a_target_that_names_a_host_is_told_to_the_app(tmp_path: Path) -> None:
    seen: list[object] = []

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope.get(TARGET))
        await nothing(scope, receive, send)

    async with serving(tmp_path, wrap=lambda _app: look) as service, await service.by_socket() as client:
        for target in (b"http://169.254.169.254/latest", b"/latest", b"*"):
            await client.send(b"OPTIONS " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.answer()).status == 204
    assert seen == [b"http://169.254.169.254/latest", None, b"*"]


@on_uvloop
async def test_an_answer_says_neither_who_serves_nor_when(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, await service.by_socket() as client:
        answer = await client.ask("GET", "/v1/page")
        assert sorted(answer.headers) == ["content-length", "content-type", "x-content-type-options"]


@on_uvloop
async def test_a_client_that_asks_first_is_told_to_go_ahead_or_not(tmp_path: Path) -> None:
    head = b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    async with serving(tmp_path) as service, await service.by_socket() as client:
        await client.send(head + b"Content-Length: 12\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b'{"text":"x"}')
        assert (await client.answer()).status == 202
        await client.send(head + b"Content-Length: 1000000\r\n\r\n")
        assert (await client.answer()).refusal == (413, "payload_too_large")


@on_uvloop
async def test_a_question_for_the_head_only_gets_no_body_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, await service.by_socket() as client:
        await client.send(b"HEAD /v1/page HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        assert (await client.ask("GET", "/v1/page")).status == 200


@on_uvloop
async def test_an_app_that_breaks_its_answer_off_is_cut_and_told(tmp_path: Path) -> None:
    def breaking(_: App) -> App:
        async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            raise RuntimeError("the secret")

        return app

    async with serving(tmp_path, wrap=breaking) as service, await service.by_socket() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.ended()).endswith(b"\r\n\r\n")
        (warned,) = (event for event in service.events if isinstance(event, ServerWarned))
        assert warned.error == "RuntimeError"
        assert "secret" not in repr(warned)


# --- WebSockets ------------------------------------------------------------------------------------


@on_uvloop
async def test_a_websocket_is_served_at_its_path_and_refused_with_a_problem_elsewhere(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        path = os.fspath(service.path)
        async with unix_connect(path, "ws://localhost/v1/ws") as client:
            assert client.protocol.extensions == []  # no compression: a small frame cannot become a large one
            await client.send("hi")
            assert await client.recv() == "hi"
        await service.toy.socket_ended.wait()
        with pytest.raises(InvalidStatus) as refused:
            await unix_connect(path, "ws://localhost/v1/other")
        assert refused.value.response.status_code == 404
        assert refused.value.response.headers["content-type"] == "application/problem+json"


@on_uvloop
async def test_a_message_over_the_limit_closes_a_websocket_with_1009(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, limits=ServerLimits(ws_max_size=1_000)) as service,
        unix_connect(os.fspath(service.path), "ws://localhost/v1/ws") as client,
    ):
        await client.send("x" * 1_001)
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


@on_uvloop
async def test_stopping_tells_a_websocket_that_the_server_restarts(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as service,
        unix_connect(os.fspath(service.path), "ws://localhost/v1/ws") as client,
    ):
        await client.send("hi")
        await client.recv()
        await service.server.stop(grace_s=30)
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        assert service.toy.socket_ended.is_set()


# --- below the messages of a WebSocket: its pulse --------------------------------------------------

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
MASK = b"\0\0\0\0"  # under which a byte stays what it is
TEXT, CLOSE, PING, PONG = (bytes([0x80 | kind]) for kind in (1, 8, 9, 10))
LONG_S = 1_000.0


def frame(kind: bytes, content: bytes = b"") -> bytes:
    return kind + bytes([0x80 | len(content)]) + MASK + content


@dataclass
class Bedside:
    """A server whose WebSockets' pulses are at hand, and whose app reads one message each time it is let."""

    pulses: list[Any] = field(default_factory=list)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    got: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    at_each: Callable[[Pulse], None] = lambda _pulse: None
    send: Send | None = None

    def wrap(self, _app: App) -> App:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            self.pulses.append(scope[PULSE])
            self.send = send
            await receive()
            await send({"type": "websocket.accept"})
            while True:
                await self.turns.acquire()
                message = await receive()
                self.at_each(scope[PULSE])
                self.got.put_nowait(message.get("text") or message["type"])
                if message["type"] == "websocket.disconnect":
                    return

        return app

    async def opened(self, client: Client) -> Any:  # noqa: ANN401  a pulse whose insides are turned
        assert (await client.ask("GET", "/v1/ws", None, UPGRADE)).status == 101
        return self.pulses[-1]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  what a transport does, it tells nobody
        await asyncio.sleep(0.001)


def fall_silent(pulse: Any) -> None:  # noqa: ANN401  as above
    """Have nothing come for long."""
    pulse._heard_s -= LONG_S
    assert pulse.silent_s() >= LONG_S


@pytest.mark.req("P7")
@on_uvloop
async def test_a_beat_is_a_ping_and_a_text_in_one_write(tmp_path: Path) -> None:
    bed = Bedside()
    async with serving(tmp_path, wrap=bed.wrap) as service, await service.by_socket() as client:
        pulse = await bed.opened(client)
        writes: list[bytes] = []
        pulse.transport = Watched(pulse.transport, writes)
        for _ in range(2):
            pulse.beat("still here")
            assert await client.reader.readexactly(14) == PING + b"\0" + TEXT + b"\x0astill here"
        assert len(writes) == 2


@pytest.mark.req("P1", "P7")
@pytest.mark.parametrize(
    "sent",
    [frame(TEXT, b"hi"), frame(PING), frame(PONG), frame(PONG, b"asked by nobody"), TEXT],
    ids=["text", "ping", "pong", "any-pong", "half-a-frame"],
)
@on_uvloop
async def test_whatever_comes_ends_a_silence(tmp_path: Path, sent: bytes) -> None:
    bed = Bedside()
    bed.turns.release()
    async with serving(tmp_path, wrap=bed.wrap) as service, await service.by_socket() as client:
        pulse = await bed.opened(client)
        fall_silent(pulse)
        await client.send(sent)
        await until(lambda: pulse.silent_s() < LONG_S)
        assert 0 <= pulse.silent_s() < BOUND_S


@pytest.mark.req("P7")
@on_uvloop
async def test_the_server_asks_nobody_by_itself_and_sending_is_no_sign_of_life(tmp_path: Path) -> None:
    bed = Bedside()
    async with serving(tmp_path, wrap=bed.wrap) as service, await service.by_socket() as client:
        pulse = await bed.opened(client)
        assert (pulse.ping_timer, pulse.pong_timer) == (None, None)
        fall_silent(pulse)
        pulse.beat("x")
        await client.reader.readexactly(5)
        assert pulse.silent_s() >= LONG_S


@pytest.mark.req("P7")
@on_uvloop
async def test_nobody_is_silent_while_it_is_we_who_do_not_read(tmp_path: Path) -> None:
    bed = Bedside()
    async with serving(tmp_path, wrap=bed.wrap) as service, await service.by_socket() as client:
        pulse = await bed.opened(client)
        await client.send(frame(TEXT, b"one") + frame(TEXT, b"two"))
        await until(lambda: pulse.read_paused)
        pulse._heard_s -= LONG_S
        assert pulse.silent_s() == 0
        bed.turns.release()
        assert await bed.got.get() == "one"
        assert pulse.silent_s() == 0, "there is still something that we have not read"
        bed.turns.release()
        assert await bed.got.get() == "two"
        assert pulse.silent_s() < BOUND_S, "only from here on could it have been heard"
        fall_silent(pulse)


@pytest.mark.req("P7")
@on_uvloop
async def test_a_beat_adds_nothing_to_what_waits_to_be_read(tmp_path: Path) -> None:
    bed = Bedside()
    size = 16 << 20
    async with serving(tmp_path, wrap=bed.wrap) as service, await service.by_socket() as client:
        pulse = await bed.opened(client)
        assert bed.send is not None
        await bed.send({"type": "websocket.send", "text": "x" * size})
        for _ in range(3):
            pulse.beat("not now")
        assert (await client.reader.readexactly(10 + size))[10:].strip(b"x") == b""
        await until(lambda: pulse.transport.get_write_buffer_size() == 0)
        pulse.beat("now")
        assert await client.reader.readexactly(7) == PING + b"\0" + TEXT + b"\x03now"


@pytest.mark.req("P7")
@on_uvloop
async def test_a_cut_ends_a_websocket_without_a_word(tmp_path: Path) -> None:
    bed = Bedside()
    bed.turns.release()
    async with serving(tmp_path, wrap=bed.wrap) as service, await service.by_socket() as client:
        pulse = await bed.opened(client)
        pulse.abort()
        assert await client.ended() == b""
        assert await bed.got.get() == "websocket.disconnect"
        pulse.abort()
        pulse.beat("to nobody")


@pytest.mark.req("P7")
@pytest.mark.parametrize("closing", ["the peer", "the server"])
@on_uvloop
async def test_a_beat_in_the_moment_of_a_close_is_simply_not_sent(tmp_path: Path, closing: str) -> None:
    failed: list[Exception] = []

    def beat(pulse: Pulse) -> None:
        try:
            pulse.beat("too late")
        except Exception as error:  # noqa: BLE001  whatever it is, it would end whoever asks all connections
            failed.append(error)

    bed = Bedside(at_each=beat)
    bed.turns.release()
    async with serving(tmp_path, wrap=bed.wrap) as service, await service.by_socket() as client:
        await bed.opened(client)
        if closing == "the peer":
            await client.send(frame(TEXT, b"bye") + frame(CLOSE, b"\x03\xe8"))
        else:
            await service.server.stop(grace_s=30)
        await bed.got.get()
        assert failed == []
        assert b"too late" not in await client.ended()
