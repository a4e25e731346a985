"""Cases that once went wrong: each of these lost, doubled, blocked or ended something."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from claudemesh.cli import enrol
from claudemesh.daemon import identity
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home
from claudemesh.runtime.keys import KeyPair
from tests.acceptance.test_terms_and_tokens import GOOD
from tests.mesh import a_membership, a_welcome, local_broker, local_daemon, local_mesh, rejoin


async def shook_hands(socket: ServerConnection, frame: dict[str, Any]) -> bool:
    """Answer a hello and its terms as a broker does; False if it is something else."""
    if frame["type"] == "hello":
        ack = {"presenceId": "p", "memberId": "m", "meshSlug": "d", "leaseTtlMs": 1, "brokerVersion": "x"}
        await socket.send(json.dumps({"type": "hello_ack", **ack}))
    elif frame["type"] == "feature_negotiation_request":
        await socket.send(json.dumps({"type": "feature_negotiation_response", "supported": GOOD}))
    else:
        return False
    return True


async def test_a_connection_that_ends_while_it_begins_does_not_end_the_daemon(tmp_path: Path) -> None:
    connections = 0

    async def talk(socket: ServerConnection) -> None:
        nonlocal connections
        connections += 1
        assert socket.request is not None
        await socket.send(a_welcome(socket.request.path))
        async for text in socket:
            frame = json.loads(text)
            if await shook_hands(socket, frame):
                continue
            if connections == 1:
                await socket.close(1011)  # in the middle of the daemon's first question
            elif connections == 2:
                await socket.send(json.dumps({"type": "reply", "n": frame["n"], "result": {"nonsense": 1}}))
            else:
                answer: dict[str, Any] = {"members": [], "items": [], "upto_history_id": None}
                await socket.send(json.dumps({"type": "reply", "n": frame["n"], "result": answer}))

    async with serve(talk, "127.0.0.1", 0) as server:
        joined = a_membership("demo", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), joined=joined) as daemon:
            await daemon.until(lambda health: health["connected"] and connections >= 3)
            assert daemon.task is not None
            assert not daemon.task.done()


@pytest.mark.req("N4")
async def test_a_daemon_whose_place_was_taken_stays_away_until_somebody_decides(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        (here,) = await broker.enrol("alice")
        copy = tmp_path / "copy" / "demo"
        async with rejoin(here) as first:
            await first.until(lambda health: health["connected"])
            joined = identity.load_membership(here)
            async with local_daemon(copy, keys=identity.load_keys(here), joined=joined) as second:
                await second.until(lambda health: health["connected"])
                health = await first.until(lambda found: not found["connected"])
                assert health["degraded"] or (await first.until(lambda found: found["degraded"]))
                assert (await first.send("queue:work", "still accepted")).status == 202


@pytest.mark.req("D2")
async def test_a_message_that_no_frame_can_carry_is_refused_and_blocks_nobody(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        huge = {"to": "bob", "message": "x", "client_message_id": "m1", "meta": {"k": "y" * 5_000_000}}
        small = {"to": "bob", "message": "small", "client_message_id": "m2"}
        answer = await alice.post("/v1/send/batch", {"sends": [huge, small]})
        assert [outcome["http_status"] for outcome in answer.body["outcomes"]] == [413, 202]
        assert [message["body"] for message in await bob.receives(1)] == ["small"]
        again = await alice.send("bob", "x", client_message_id="m1")
        assert again.status == 202, "the id was still free"


@pytest.mark.req("D2")
async def test_who_joins_while_we_are_connected_can_be_written_to_when_the_broker_is_gone(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (broker, alice, _):
        owner = identity.load_membership(alice.state_dir)
        keys = identity.load_keys(alice.state_dir)
        invite = enrol.make_invite(owner, keys, "another", 1, SystemClock().wall_ms() + 60_000)
        home = Home(tmp_path / "homes" / "carol")
        await asyncio.to_thread(enrol.join, enrol.Enrolment(home, "carol", SystemClock()), invite)

        async def knows_carol() -> bool:
            return (await alice.send("carol", "hello", client_message_id="c1")).status == 202

        await broker.stop()
        await alice.until(lambda health: not health["connected"])
        assert await knows_carol()


@pytest.mark.req("Q1")
async def test_a_message_to_a_sessions_key_reaches_that_session_and_later_its_member(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice, rejoin(there) as bob:
            for daemon in (alice, bob):
                await daemon.until(lambda health: health["connected"])
            run_dir = tmp_path / "run" / "demo"
            joined, keys = identity.load_membership(there), identity.load_keys(there)
            async with local_daemon(run_dir, keys=keys, joined=joined, ephemeral_ttl_ms=60_000) as run:
                session = (await run.until(lambda health: health["connected"]))["session_pubkey"]
                assert (await alice.send(session, "for the run", client_message_id="m1")).status == 202
                assert [m["body"] for m in await run.receives(1)] == ["for the run"]
                assert (await alice.send("bob", "for bob", client_message_id="m2")).status == 202
                assert [m["body"] for m in await bob.receives(1)] == ["for bob"]
                assert len(await run.inbox()) == 1
            assert (await alice.send(session, "too late", client_message_id="m3")).status == 202
            assert [m["body"] for m in await bob.receives(2)] == ["for bob", "too late"]


@pytest.mark.req("D2")
async def test_a_key_that_leads_to_nobody_is_refused_while_the_broker_can_be_asked(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice") as (_, alice):
        refused = await alice.send("e" * 64, "x", client_message_id="m1")
        assert (refused.status, refused.body["code"]) == (404, "unknown_destination")


async def test_sends_in_a_batch_are_counted_once(tmp_path: Path) -> None:
    async with local_daemon(tmp_path / "demo", keys=KeyPair.generate()) as daemon:
        sends = [{"to": "queue:q", "message": "x", "client_message_id": f"m{n}"} for n in range(3)]
        for _ in range(2):
            await daemon.post("/v1/send/batch", {"sends": sends})
        metrics = (await daemon.request("GET", "/v1/metrics")).body
        assert "cm_daemon_dedupe_total 3.0" in metrics


@pytest.mark.req("N1")
async def test_whoever_took_the_brokers_place_is_told_nothing(tmp_path: Path) -> None:
    heard: list[str] = []
    opened = asyncio.Event()

    async def pretend(socket: ServerConnection) -> None:
        old = a_welcome("?challenge=of-another-day")  # as one who has recorded what the real one said
        await socket.send(old)
        opened.set()
        heard.extend([str(text) async for text in socket])

    async with serve(pretend, "127.0.0.1", 0) as server:
        joined = a_membership("demo", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), joined=joined) as daemon:
            await daemon.send("queue:work", "top secret", client_message_id="m1")
            await asyncio.wait_for(opened.wait(), 30)
            health = await daemon.until(lambda found: "not the broker" in found["link"])
            assert not health["connected"]
            assert heard == []
            assert (await daemon.get("/v1/trace/m1"))["state"] == "queued"


@pytest.mark.req("Q1")
async def test_a_delivery_that_comes_before_the_terms_are_agreed_is_stored_and_acknowledged(tmp_path: Path) -> None:
    acked: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
    item = {
        "history_id": 7,
        "broker_message_id": "B7",
        "client_message_id": "m7",
        "sender_id": "S",
        "sender_pubkey": "a" * 64,
        "sender_name": "ann",
        "kind": "dm",
        "ref": "b" * 64,
        "body": "early",
        "accepted_at": 1,
    }

    async def talk(socket: ServerConnection) -> None:
        assert socket.request is not None
        await socket.send(a_welcome(socket.request.path))
        async for text in socket:
            frame = json.loads(text)
            if await shook_hands(socket, frame):
                if frame["type"] == "hello":
                    await socket.send(json.dumps({"type": "deliver", "items": [item]}))
            elif frame["type"] == "ack":
                acked.set_result(frame["ids"])
            else:
                answer: dict[str, Any] = {"members": [], "items": [], "upto_history_id": None}
                await socket.send(json.dumps({"type": "reply", "n": frame["n"], "result": answer}))

    async with serve(talk, "127.0.0.1", 0) as server:
        joined = a_membership("demo", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), joined=joined) as daemon:
            assert await asyncio.wait_for(acked, 30) == [7]
            assert [message["body"] for message in await daemon.inbox()] == ["early"]
