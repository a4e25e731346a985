"""A whole broker over real sockets: hello, send, deliver, ack."""

from pathlib import Path

import pytest

from claudemesh.kernel.fingerprint import Kind
from claudemesh.wire import frames
from tests.integration.broker_client import broker, create_mesh, dm, item, join


@pytest.mark.req("N1")
async def test_a_message_goes_from_one_member_to_another_and_is_acknowledged(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as b:
            [outcome] = await a.send(dm("m1", bob, "hello"))
            assert (outcome.status, outcome.history_id, outcome.duplicate) == (201, 1, False)
            [delivered] = await b.deliveries(1)
            assert delivered.body == "hello"
            assert delivered.sender_name == "alice"
            assert delivered.broker_message_id == outcome.broker_message_id
            await b.acknowledge([delivered])
            receipt = await a.expect(frames.Receipt)
            assert [(one.client_message_id, one.state) for one in receipt.items] == [("m1", "delivered")]
            assert (await a.call("receipts", ids=["m1"]))["items"][0]["counts"] == {"delivered": 1}


async def test_a_topics_subscribers_get_what_is_posted_and_its_sender_does_not(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob, carol = await join(alice, "bob"), await join(alice, "carol")
        async with alice.connected() as a, bob.connected() as b, carol.connected() as c:
            await a.call("topic.create", name="builds")
            for wire in (a, b, c):
                await wire.call("topic.subscribe", name="builds")
            outcomes = await a.send(*(item(f"m{n}", Kind.TOPIC, "builds", f"build {n}") for n in range(10)))
            assert [outcome.status for outcome in outcomes] == [201] * 10
            for wire in (b, c):
                got = await wire.deliveries(10)
                assert [one.body for one in got] == [f"build {n}" for n in range(10)]
                assert [one.history_id for one in got] == [*range(1, 11)]
            await b.send(item("x", Kind.TOPIC, "builds", "mine"))
            assert [one.body for one in await a.deliveries(1)] == ["mine"]
