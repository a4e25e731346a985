"""A whole broker over real sockets: hello, send, deliver, ack."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect

from claudemesh.kernel.fingerprint import Kind
from claudemesh.wire import frames
from tests.integration.broker_client import BOUND_S, broker, create_mesh, dm, item, join, request


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


@pytest.mark.req("N1")
async def test_the_frames_are_spelled_as_the_contract_spells_them(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        async with connect(running.ws_url, proxy=None) as socket, asyncio.timeout(BOUND_S):
            heard: dict[str, dict[str, Any]] = {}

            async def hear(kind: str) -> dict[str, Any]:
                while kind not in heard:
                    frame = json.loads(await socket.recv())
                    heard[frame["type"]] = frame
                return heard.pop(kind)

            async def say(kind: str, **fields: object) -> None:
                await socket.send(json.dumps({"type": kind, **fields}))

            welcome = await hear("welcome")
            hello = alice.hello(welcome["nonce"])
            await say(
                "hello",
                meshId=hello.mesh_id,
                memberPubkey=hello.member_pubkey,
                instanceId=hello.instance_id,
                timestampMs=hello.timestamp_ms,
                signature=hello.signature,
            )
            await say("feature_negotiation_request", require=["client_message_id_dedupe"], optional=["colour"])
            assert {"presenceId", "leaseTtlMs"} <= (await hear("hello_ack")).keys()
            offer = await hear("feature_negotiation_response")
            assert offer.get("missing_required", []) == []
            assert [*offer["supported"]] == ["client_message_id_dedupe"]
            assert offer["supported"]["client_message_id_dedupe"]["params"]["version"] == 2
            sent = msgspec.to_builtins(dm("m1", alice))
            await say("send", n=1, items=[sent, sent])
            result = await hear("send_result")
            assert (result["n"], [outcome["status"] for outcome in result["outcomes"]]) == (1, [201, 200])
            [delivered] = (await hear("deliver"))["items"]
            assert (delivered["client_message_id"], delivered["body"]) == ("m1", "hi")
            await say("ack", ids=[delivered["history_id"]])
            assert [one["state"] for one in (await hear("receipt"))["items"]] == ["delivered"]
            await say("call", n=2, op="topic.create", args={"name": "news"})
            reply = await hear("reply")
            assert (reply["n"], reply["result"]["created"]) == (2, True)
            await say("greetings")
            assert (await hear("error"))["code"] == "bad_frame"
        paths = (await request("GET", f"{running.url}/openapi.json")).json["paths"]
        assert paths.keys() == {"/v1/meshes", "/v1/invites/redeem", "/v1/health", "/v1/metrics", "/openapi.json"}
