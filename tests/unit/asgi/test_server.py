"""Head and body of an answer leave together, in two messages or in one step."""

import asyncio
import gc
import logging
import os
import resource

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from claudemesh.asgi.messages import ANSWER, Response, send_response
from claudemesh.asgi.server import GARBAGE_MAX, _answer, _Joined, run


class Transport:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


def test_the_head_waits_for_the_first_of_the_body_and_for_no_more() -> None:
    transport = Transport()
    joined = _Joined(transport)
    joined.write(HEAD)
    assert transport.writes == []
    joined.write(b"bo")
    joined.write(b"dy")
    assert transport.writes == [HEAD + b"bo", b"dy"]


def test_an_empty_body_sends_the_head_too() -> None:
    transport = Transport()
    joined = _Joined(transport)
    joined.write(HEAD)
    joined.write(b"")
    assert transport.writes == [HEAD]


def test_a_go_ahead_does_not_wait() -> None:
    transport = Transport()
    joined = _Joined(transport)
    go_ahead = b"HTTP/1.1 100 Continue\r\n\r\n"
    joined.write(go_ahead)
    assert transport.writes == [go_ahead]
    joined.write(HEAD)
    joined.write(b"body")
    assert transport.writes == [go_ahead, HEAD + b"body"]


def test_a_head_without_a_body_is_sent_before_the_end() -> None:
    transport = Transport()
    joined = _Joined(transport)
    joined.write(HEAD)
    joined.close()
    assert (transport.writes, transport.closed, joined.is_closing()) == ([HEAD], True, True)


def _cycle_of(transport: Transport) -> RequestResponseCycle:
    return RequestResponseCycle(
        scope={"type": "http", "method": "POST"},
        transport=_Joined(transport),
        flow=FlowControl(transport),
        logger=logging.getLogger(__name__),
        access_logger=logging.getLogger(__name__),
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=True,
        keep_alive=True,
        on_response=lambda: transport.writes.append(b"(done)"),
    )


ANSWERS = [
    Response(202, b'{"status":"queued"}', ((b"content-type", b"application/json"),)),
    Response(429, b"{}", ((b"content-type", b"application/problem+json"), (b"retry-after", b"1"))),
    Response(204),
]


@pytest.mark.parametrize("response", ANSWERS, ids=lambda response: str(response.status))
async def test_an_answer_in_one_step_is_what_two_messages_make_of_it(response: Response) -> None:
    transports = slow, fast = Transport(), Transport()
    cycles = [_cycle_of(transport) for transport in transports]
    await send_response(response, {}, cycles[0].send)
    assert _answer(cycles[1], fast, response.status, response.headers, response.body)
    assert fast.writes == slow.writes
    for cycle in cycles:
        assert (cycle.response_started, cycle.response_complete, cycle.waiting_for_100_continue) == (
            True,
            True,
            False,
        )
        assert cycle.message_event.is_set()


@pytest.mark.parametrize("why", ["it_closes", "nobody_reads", "nobody_is_there", "it_began"])
async def test_where_an_answer_needs_more_than_a_write_it_goes_the_long_way(why: str) -> None:
    transport = Transport()
    cycle = _cycle_of(transport)
    cycle.keep_alive = why != "it_closes"
    cycle.flow.write_paused = why == "nobody_reads"
    cycle.disconnected = why == "nobody_is_there"
    cycle.response_started = why == "it_began"
    assert not _answer(cycle, transport, 200, (), b"{}")
    assert transport.writes == []
    assert not cycle.response_complete


@pytest.mark.parametrize("line_break", [b"\r\n", b"\r", b"\n"])
async def test_a_header_that_would_begin_another_line_is_never_sent(line_break: bytes) -> None:
    transport = Transport()
    cycle = _cycle_of(transport)
    with pytest.raises(ValueError, match="line break"):
        _answer(cycle, transport, 200, ((b"allow", b"GET" + line_break + b"set-cookie: a=b"),), b"")
    assert transport.writes == []
    assert not cycle.response_started  # so there is still a 500 to send


async def test_the_way_to_answer_does_not_stay_in_the_scope() -> None:
    sent: list[bytes] = []

    def answer(_status: int, _headers: object, body: bytes) -> bool:
        sent.append(body)
        return True

    async def send(_message: object) -> None:
        pytest.fail("it is answered")

    scope: dict[str, object] = {ANSWER: answer}
    await send_response(Response(body=b"once"), scope, send)
    assert (sent, scope) == ([b"once"], {})


def test_a_process_runs_its_main_coroutine_on_the_fast_loop_and_ends_with_its_number() -> None:
    async def main() -> int:
        assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        assert gc.get_threshold()[0] == GARBAGE_MAX
        assert gc.get_freeze_count() > 0
        return os.EX_USAGE

    threshold = gc.get_threshold()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert run(main) == os.EX_USAGE
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(before[1], 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        gc.unfreeze()
        gc.set_threshold(*threshold)
