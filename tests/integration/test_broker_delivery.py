"""Deliveries over real sockets: in order, again after a break, and never more than a consumer can take."""

import asyncio
import socket
from pathlib import Path

import pytest

from claudemesh.broker import deliver
from claudemesh.broker.app import check, sweep
from claudemesh.broker.settings import BrokerSettings, Connections, Limits
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime import points
from claudemesh.wire import frames
from tests.integration.broker_client import BOUND_S, broker, create_mesh, dm, item, join, opened


async def test_sends_that_do_not_wait_for_their_answers_are_applied_in_order(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as b:
            for number in range(200):
                await a.send_only(*(dm(f"{number}-{part}", bob, f"{number}-{part}") for part in range(5)))
            results = [await a.expect(frames.SendResult) for _ in range(200)]
            given = {result.n: [outcome.history_id for outcome in result.outcomes] for result in results}
            assert [id_ for n in sorted(given) for id_ in given[n]] == [*range(1, 1001)]
            got = await b.deliveries(1000)
            assert [one.body for one in got] == [f"{number}-{part}" for number in range(200) for part in range(5)]


@pytest.mark.req("Q1")
async def test_what_was_not_acknowledged_comes_again_on_the_next_connection_and_the_rest_does_not(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a:
            await a.send(*(dm(f"{n}", bob) for n in range(10)))
            async with bob.connected() as b:
                got = await b.deliveries(10)
                await b.acknowledge(got[:4])
                await b.acknowledge([got[7]])
                while (await a.call("receipts", ids=["7"]))["items"][0]["state"] == "accepted":
                    pass
            async with bob.connected() as b:
                again = await b.deliveries(5)
                assert [one.client_message_id for one in again] == ["4", "5", "6", "8", "9"]
                await b.acknowledge(again)
                await a.send(dm("10", bob))
                assert [one.client_message_id for one in await b.deliveries(1)] == ["10"]


@pytest.mark.req("B6")
async def test_a_commit_wakes_its_recipients_also_when_its_sender_is_gone(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with bob.connected() as b, opened(running) as wire:
            # Gone just after the commit: no answer reaches it, and nobody is told on its connection.
            points.arm("broker.after_accept", wire.socket.transport.abort)
            await wire.say(alice.hello(wire.nonce))
            await wire.send_only(dm("1", bob, "last words"))
            assert [one.body for one in await b.deliveries(1)] == ["last words"]
            points.disarm_all()


@pytest.mark.req("Q4", "N3")
async def test_a_consumer_that_stops_reading_is_closed_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, body = 60, "x" * 400_000
    monkeypatch.setattr(deliver, "WINDOW_BYTES", 64 << 20)  # else the kernel's buffers could take it all
    async with broker(tmp_path, connections=Connections(slow_consumer_s=0.1)) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.settimeout(0)
        port = int(running.url.rpartition(":")[2])
        await asyncio.get_running_loop().sock_connect(narrow, ("127.0.0.1", port))
        async with opened(running, sock=narrow, max_queue=1) as slow, alice.connected() as a:
            await slow.say(bob.hello(slow.nonce))
            await slow.expect(frames.HelloAck)
            for number in range(count):
                assert (await a.send(dm(f"{number}", bob, body)))[0].status == 201
            assert await slow.closed() == (4408, "slow_consumer")  # by now it reads
            async with bob.connected() as b:
                got: list[str] = []
                while len(got) < count:
                    page = (await b.expect(frames.Deliver)).items
                    got += [one.client_message_id for one in page]
                    await b.acknowledge(page)
                assert got == [f"{number}" for number in range(count)]


@pytest.mark.req("B1", "D7")
async def test_beyond_the_budget_the_rest_is_put_off_and_a_retry_is_answered(tmp_path: Path) -> None:
    async with broker(tmp_path, limits=Limits(sends_per_window=2, window_s=3600)) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            outcomes = await wire.send(*(dm(f"{n}", alice) for n in range(4)))
            assert [outcome.status for outcome in outcomes] == [201, 201, 429, 429]
            assert 0 < (outcomes[2].retry_after_ms or 0) <= 3_600_000
            again = await wire.send(*(dm(f"{n}", alice) for n in range(4)))
            assert [outcome.status for outcome in again] == [200, 200, 429, 429]


@pytest.mark.req("B8")
async def test_an_operator_checks_and_sweeps_beside_the_running_broker(tmp_path: Path) -> None:
    settings = BrokerSettings(store=f"sqlite:///{tmp_path / 'broker.db'}")
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            await wire.call("topic.create", name="news")
            await wire.call("topic.subscribe", name="news")
            await wire.send(dm("1", alice), item("2", Kind.TOPIC, "news"))
            assert await check(settings) == {"violations": 0, "items": []}
            assert await sweep(settings) == {"messages": 0, "dead_letters": 0, "ids": 0}
            assert (await wire.send(dm("3", alice)))[0].status == 201


async def test_a_broker_that_stops_finishes_what_it_has_begun(tmp_path: Path) -> None:
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        points.arm("broker.after_accept", lambda: loop.call_soon(reached.set))
        try:
            async with alice.connected() as wire:
                await wire.send_only(*(dm(f"{n}", alice) for n in range(50)))
                async with asyncio.timeout(BOUND_S):
                    await reached.wait()
                running.stop.set()
                assert (await wire.closed())[0] == 1012
        finally:
            points.disarm_all()
    settings = BrokerSettings(store=f"sqlite:///{tmp_path / 'broker.db'}")
    assert (await check(settings))["violations"] == 0


@pytest.mark.req("B5")
async def test_an_item_that_is_no_message_is_refused_by_itself(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            good, other = (frames.render_item(dm(id_, alice)).decode() for id_ in ("good", "other"))
            strange = good.replace('"kind":"dm"', '"kind":"smoke"')
            sealed = good[:-1] + ',"encoding":"sealed"}'
            huge = good[:-1] + f',"sender_seq":{2**70}}}'
            items = f"{good},{strange},{sealed},17,{huge},{other}"
            await wire.socket.send(f'{{"type":"send","n":5,"items":[{items}]}}')
            result = await wire.expect(frames.SendResult)
            assert result.n == 5
            assert [outcome.status for outcome in result.outcomes] == [201, 400, 400, 400, 400, 201]


async def test_more_acks_in_a_frame_than_any_window_holds_end_the_connection(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            await wire.say(frames.Ack([1] * 20_000))
            assert await wire.closed() == (4400, "bad_frame")
