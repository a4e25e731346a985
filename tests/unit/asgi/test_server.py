"""Head and body of an answer leave together."""

import asyncio
import os
import resource

from claudemesh.asgi.server import _Joined, run


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


def test_a_process_runs_its_main_coroutine_on_the_fast_loop_and_ends_with_its_number() -> None:
    async def main() -> int:
        assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        return os.EX_USAGE

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert run(main) == os.EX_USAGE
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(before[1], 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
