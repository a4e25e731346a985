"""What is sent to the upstream and over which connections; and when it is certain that nothing was."""

import asyncio

import pytest

from claudemesh.edge.upstream import Outgoing, Unanswered, Unreached, Upstream, UpstreamLimits
from claudemesh.kernel.errors import ConfigError
from claudemesh.kernel.write_errors import BadHeader
from tests.ports import own_port
from tests.unit.edge.fake_upstream import (
    BOUND_S,
    KEYLESS,
    OK,
    READ,
    WRITE,
    Peer,
    Step,
    answer,
    ask,
    hold,
    read,
    relay_to,
    reset,
    say,
    until,
    upstream_of,
)

# --- what is sent ------------------------------------------------------------------------------------


@pytest.mark.req("R4", "R6")
async def test_a_request_is_sent_with_the_relays_own_credential_and_no_other() -> None:
    headers = (
        (b"idempotency-key", b"k1"),
        (b"authorization", b"Bearer of-the-caller"),
        (b"cookie", b"sid=1"),
        (b"host", b"evil.example"),
        (b"accept-encoding", b"gzip"),
        (b"content-length", b"999"),
        (b"transfer-encoding", b"chunked"),
        (b"accept", b"application/json"),
    )
    async with relay_to((answer(OK),), credential="of-the-relay") as (fake, upstream):
        incoming = await ask(upstream, Outgoing("PATCH", "/tasks/t1", "a=b", headers, b'{"x":1}'))
    assert incoming == (200, (), b"ok")
    assert fake.requests == [
        b"PATCH /tasks/t1?a=b HTTP/1.1\r\n"
        b"host: 127.0.0.1:%d\r\n"
        b"accept-encoding: identity\r\n"
        b"connection: keep-alive\r\n"
        b"idempotency-key: k1\r\n"
        b"accept: application/json\r\n"
        b"authorization: Bearer of-the-relay\r\n"
        b"content-length: 7\r\n"
        b"\r\n"
        b'{"x":1}' % fake.port
    ]


async def test_a_read_has_no_length_and_a_base_path_goes_before() -> None:
    async with upstream_of((answer(OK),)) as fake:
        upstream = Upstream(f"http://localhost:{fake.port}/api/")
        await ask(upstream, READ)
        await upstream.close()
    head, _, _ = fake.requests[0].partition(b"\r\n")
    assert head == b"GET /api/tasks/t1 HTTP/1.1"
    assert b"content-length" not in fake.requests[0]
    assert b"authorization" not in fake.requests[0]


async def test_head_and_body_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async with relay_to((answer(OK), answer(OK))) as (_, upstream):
        await ask(upstream)
        (connection,) = upstream._open
        transport = connection._transport
        writes: list[bytes] = []

        class Watched:
            def is_closing(self) -> bool:
                return False

            def abort(self) -> None:
                assert transport
                transport.abort()

            def write(self, data: bytes) -> None:
                writes.append(data)
                assert transport
                transport.write(data)

        monkeypatch.setattr(connection, "_transport", Watched())
        await ask(upstream)
    (written,) = writes
    assert written.endswith(b"\r\n\r\n{}")


@pytest.mark.req("R4")
@pytest.mark.parametrize(
    "outgoing",
    [
        Outgoing("POST", "/a\r\nX: y"),
        Outgoing("POST", "/a b"),
        Outgoing("POST", "a"),
        Outgoing("POST", "//evil/a"),
        Outgoing("POST", "/a", "b\nc"),
        Outgoing("POST /x", "/a"),
        Outgoing("POST", "/a", "", ((b"x-source-a", b"b\r\nX: y"),)),
        Outgoing("POST", "/a", "", ((b"x-source-a", b"b\nX: y"),)),
        Outgoing("POST", "/a", "", ((b"x-source-a", b"b\rX: y"),)),
        Outgoing("POST", "/a", "", ((b"x-source-a", b"\0"),)),
        Outgoing("POST", "/a", "", ((b"x\r\ny", b"z"),)),
    ],
)
async def test_44_what_would_break_out_of_its_line_is_not_sent(outgoing: Outgoing) -> None:
    async with relay_to((answer(OK),)) as (fake, upstream):
        with pytest.raises(BadHeader):
            await ask(upstream, outgoing)
    assert fake.connections == 0


async def test_a_credential_that_is_none_is_not_sent() -> None:
    async with relay_to((answer(OK),), credential="a\r\nb") as (fake, upstream):
        with pytest.raises(ConfigError):
            await ask(upstream)
    assert fake.connections == 0


# --- unreached: nothing was sent -------------------------------------------------------------------------


@pytest.mark.req("R4")
async def test_who_refuses_a_connection_is_unreached() -> None:
    upstream = Upstream(f"http://127.0.0.1:{own_port()}")
    for _ in range(100):  # a connection that was not made takes no place in the pool
        with pytest.raises(Unreached):
            await ask(upstream)
    assert upstream._count == 0


async def test_a_name_that_nobody_has_is_unreached() -> None:
    async def unknown(_host: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    async def empty(_host: str, _port: int) -> list[str]:
        return []

    for resolver in (unknown, empty):
        with pytest.raises(Unreached):
            await ask(Upstream("https://hub.example", resolver=resolver))


async def test_a_connection_that_is_not_made_in_time_is_unreached() -> None:
    async def never(_host: str, _port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    limits = UpstreamLimits(connect_timeout_s=0.01)
    with pytest.raises(Unreached):
        await ask(Upstream("https://hub.example", resolver=never, limits=limits))
    with pytest.raises(Unreached):
        await Upstream("https://hub.example", resolver=never).request(READ, timeout_s=0.01)


async def test_who_speaks_before_it_is_asked_is_unreached() -> None:
    async with relay_to((say(b"220 mail.example ESMTP\r\n"), hold)) as (fake, upstream):
        connection = await upstream._take(asyncio.get_running_loop().time() + BOUND_S)
        async with asyncio.timeout(BOUND_S):
            await fake.gone.wait()
        with pytest.raises(Unreached):
            await connection.exchange(b"x", asyncio.get_running_loop().time() + BOUND_S, is_head=False)
        assert upstream._count == 0


async def test_a_full_pool_is_unreached() -> None:
    limits = UpstreamLimits(connections_max=1, waiting_max=1)
    async with relay_to((read, hold), limits=limits) as (fake, upstream):
        first = asyncio.create_task(ask(upstream))
        await until(lambda: fake.requests)
        waiting = asyncio.create_task(upstream.request(WRITE, timeout_s=0.05))
        await until(lambda: upstream._waiting)
        with pytest.raises(Unreached, match="waiting"):
            await ask(upstream)
        with pytest.raises(Unreached, match="free in time"):
            await waiting
        assert not upstream._waiting
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        async with asyncio.timeout(BOUND_S):
            await fake.gone.wait()  # nobody waits for that answer any more


async def test_after_the_end_nothing_is_sent() -> None:
    limits = UpstreamLimits(connections_max=1)
    async with relay_to((answer(OK), hold), limits=limits) as (fake, upstream):
        await ask(upstream)
        busy = asyncio.create_task(ask(upstream))
        await until(lambda: not upstream._idle)
        waiting = [asyncio.create_task(ask(upstream)) for _ in range(3)]
        await until(lambda: len(upstream._waiting) == 3)
        await upstream.close()
        with pytest.raises(Unanswered):
            await busy
        for asked in (*waiting, ask(upstream)):
            with pytest.raises(Unreached):
                await asked
        assert fake.connections == 1


async def test_a_connection_that_is_made_after_the_end_is_closed() -> None:
    may_go_on = asyncio.Event()

    async def slow(_host: str, _port: int) -> list[str]:
        await may_go_on.wait()
        return ["127.0.0.1"]

    async with upstream_of((hold,)) as fake:
        upstream = Upstream(f"http://localhost:{fake.port}", resolver=slow)
        asked = asyncio.create_task(ask(upstream))
        await until(lambda: upstream._count)
        await upstream.close()
        may_go_on.set()
        with pytest.raises(Unreached):
            await asked
        async with asyncio.timeout(BOUND_S):
            await fake.gone.wait()
    assert (upstream._count, upstream._open) == (0, set())


# --- connections that are kept ---------------------------------------------------------------------------


async def test_one_connection_does_for_many_requests() -> None:
    async with relay_to((answer(OK),) * 5) as (fake, upstream):
        for _ in range(5):
            await ask(upstream)
    assert fake.connections == 1


async def test_no_more_connections_are_made_than_allowed() -> None:
    limits = UpstreamLimits(connections_max=3)
    async with relay_to((answer(OK),) * 100, limits=limits) as (fake, upstream):
        incoming = await asyncio.gather(*(ask(upstream) for _ in range(50)))
        assert fake.connections == 3
    assert {one.status for one in incoming} == {200}
    assert len(fake.requests) == 50


async def test_a_turn_that_nobody_takes_is_the_next_ones() -> None:
    limits = UpstreamLimits(connections_max=1)
    async with relay_to((answer(OK),) * 100, limits=limits) as (_, upstream):
        tasks = [asyncio.create_task(ask(upstream)) for _ in range(30)]
        await until(lambda: len(upstream._waiting) > 10)
        for task in tasks[1::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [False, True] * 15


async def test_a_turn_that_comes_in_the_moment_of_giving_up_is_the_next_ones() -> None:
    limits = UpstreamLimits(connections_max=1)
    async with relay_to((read, hold), limits=limits) as (fake, upstream):
        tasks = [asyncio.create_task(ask(upstream)) for _ in range(3)]
        await until(lambda: fake.requests and len(upstream._waiting) == 2)
        _, next_turn = upstream._waiting
        upstream._wake()
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        assert next_turn.done()
        assert not next_turn.cancelled()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not upstream._waiting


async def test_a_connection_that_was_closed_while_idle_is_not_used() -> None:
    async with relay_to((answer(OK),), (answer(OK),)) as (fake, upstream):
        await ask(upstream)
        await until(lambda: not upstream._idle)
        await ask(upstream)
        assert fake.connections == 2
        assert len(fake.requests) == 2


@pytest.mark.req("R4")
@pytest.mark.parametrize("outgoing", [WRITE, READ])
@pytest.mark.parametrize("end", [(), (reset,)])
async def test_a_request_that_met_a_closing_connection_is_sent_once_more(
    outgoing: Outgoing, end: tuple[Step, ...]
) -> None:
    async with relay_to((answer(OK), read, *end), (answer(OK),)) as (fake, upstream):
        await ask(upstream)
        assert (await ask(upstream, outgoing)).status == 200
    assert fake.requests[1] == fake.requests[2]
    assert len(fake.requests) == 3


@pytest.mark.req("R4")
async def test_a_write_without_a_key_is_never_sent_twice() -> None:
    async with relay_to((answer(OK), read), (answer(OK),)) as (fake, upstream):
        await ask(upstream)
        with pytest.raises(Unanswered):
            await ask(upstream, KEYLESS)
    assert len(fake.requests) == 2


@pytest.mark.req("R4")
async def test_a_request_that_met_two_closing_connections_is_unanswered() -> None:
    async with relay_to((answer(OK), read), (read,)) as (fake, upstream):
        await ask(upstream)
        with pytest.raises(Unanswered):
            await ask(upstream)
    assert len(fake.requests) == 3


@pytest.mark.req("R4")
async def test_a_request_that_was_once_sent_is_unanswered_even_if_now_nobody_is_there() -> None:
    async with upstream_of((answer(OK), read)) as fake:
        names = [["127.0.0.1"], ["127.0.0.1"]]

        async def resolver(_host: str, _port: int) -> list[str]:
            names.pop()
            if not names:
                raise OSError(-2, "gone")
            return ["127.0.0.1"]

        upstream = Upstream(f"http://localhost:{fake.port}", resolver=resolver)
        await ask(upstream)
        with pytest.raises(Unanswered):
            await ask(upstream)
        await upstream.close()


async def test_a_second_try_makes_room_for_itself() -> None:
    barrier = asyncio.Barrier(2)

    async def together(peer: Peer) -> None:
        await peer.read()
        await barrier.wait()
        await peer.write(OK)

    limits = UpstreamLimits(connections_max=2)
    async with relay_to((together, hold), (together, hold), (hold,), limits=limits) as (_, upstream):
        await asyncio.gather(ask(upstream), ask(upstream))
        old = list(upstream._idle)
        new = await upstream._take(asyncio.get_running_loop().time() + BOUND_S, is_new=True)
        assert new not in old
        assert (upstream._count, upstream._idle) == (2, old[1:])


@pytest.mark.parametrize(
    "sent",
    [
        OK + OK,
        OK + b"HTTP/1.1 500 Smuggled\r\n",
        OK + b"garbage",
        OK + b"\r\nx",
        OK.replace(b"content-length", b"connection: close\r\ncontent-length"),
        OK.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
async def test_a_connection_with_something_behind_the_answer_is_not_used_again(sent: bytes) -> None:
    async with relay_to((answer(sent), hold)) as (fake, upstream):
        for number in (1, 2):
            assert (await ask(upstream)).body == b"ok"
            assert fake.connections == number
            assert not upstream._idle


async def test_a_connection_on_which_something_comes_unasked_is_not_used_again() -> None:
    async with relay_to((answer(OK), say(b"HTTP/1.1 200 OK\r\n\r\n"), hold), (answer(OK),)) as (fake, upstream):
        await ask(upstream)
        async with asyncio.timeout(BOUND_S):
            await fake.gone.wait()
        assert not upstream._idle
        await ask(upstream)
        assert fake.connections == 2


async def test_a_connection_that_was_idle_for_too_long_is_not_used_again() -> None:
    async with relay_to((answer(OK), hold), limits=UpstreamLimits(keep_alive_s=0.0)) as (fake, upstream):
        await ask(upstream)
        (connection,) = upstream._idle
        connection._idle_since_s -= 1
        await ask(upstream)
        assert fake.connections == 2


async def test_an_answer_that_came_just_before_its_asker_gave_up_costs_no_connection() -> None:
    async with relay_to((answer(OK), answer(OK))) as (fake, upstream):
        asked = asyncio.create_task(ask(upstream))
        await until(lambda: upstream._idle)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await ask(upstream)).status == 200
        assert fake.connections == 1
