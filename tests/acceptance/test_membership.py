"""Members who leave, are put out, or are there twice: what their daemons do, and what the others see."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from claudemesh.cli.enrol import exchange
from claudemesh.daemon.events import BrokerDisconnected
from claudemesh.kernel.retry import BACKOFF_CAP_MS
from claudemesh.runtime.home import Home
from claudemesh.runtime.patience import wait_until
from tests.integration.test_cli_daemon import Shell
from tests.mesh import WITHIN_S, local_broker, local_mesh, rejoin


@pytest.mark.req("Q8", "N3")
async def test_a_daemon_whose_member_was_revoked_says_so_keeps_its_rows_and_rarely_asks_again(
    tmp_path: Path,
) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        waits: list[int | None] = []
        bob.world.observer.subscribe(BrokerDisconnected, lambda event: waits.append(event.retry_in_ms))
        assert (await bob.post("/v1/member/revoke", {"member": "alice"})).body["code"] == "forbidden"
        assert (await alice.post("/v1/member/revoke", {"member": "bob"})).status == 200
        health = await bob.until(lambda health: health["link"] == "closed: 4401 revoked")
        assert (health["connected"], health["degraded"]) == (False, True)
        assert [BACKOFF_CAP_MS // 2 <= (wait or 0) <= BACKOFF_CAP_MS for wait in waits] == [True]
        assert (await bob.send("alice", "still here", client_message_id="kept")).status == 202
        assert (await bob.get("/v1/health"))["queue_depth"] == 1
        await alice.until(lambda peers: len(peers["peers"]) == 1, "/v1/peers?all=true")
        assert (await alice.send("bob", "hi")).body["code"] == "unknown_destination"


@pytest.mark.req("N4")
async def test_of_two_daemons_on_copies_of_one_state_directory_the_older_gives_way_and_says_so(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path) as broker:
        [alice, bob] = await broker.enrol("alice", "bob")
        async with rejoin(alice) as sender, rejoin(bob) as original:
            await original.until(lambda health: health["connected"])
            copied = tmp_path / "copy" / bob.name
            shutil.copytree(bob, copied, ignore=shutil.ignore_patterns("sock", "pid", "*.db*"))
            async with rejoin(copied) as copy:
                await copy.until(lambda health: health["connected"])
                health = await original.until(lambda health: health["link"] == "closed: 1000 session_replaced")
                assert health["degraded"], "and it comes back in half a minute, not at once"
                await sender.send("bob", "hi")
                assert [message["body"] for message in await copy.receives(1)] == ["hi"]
                assert (await copy.get("/v1/health"))["connected"]
                assert await original.inbox() == []


@pytest.mark.req("Q8")
async def test_leaving_ends_the_membership_where_the_broker_can_be_told(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        places = await broker.enrol("alice", "bob")
        alice, bob = (Shell(Home(place.parents[1])) for place in places)

        def leave() -> None:
            bob.run("daemon", "up", "--no-tcp")
            alice.run("daemon", "up", "--no-tcp")
            try:
                for shell in (alice, bob):
                    assert wait_until(lambda at=shell: at.run("daemon", "status")["connected"], WITHIN_S)
                left = bob.run("mesh", "leave")
                assert left["told_broker"] is True
                assert [peer["name"] for peer in alice.run("peer", "list", "--all")["peers"]] == ["alice"]
                last = alice.run("mesh", "leave")  # a mesh keeps its last owner, who leaves it alone
                assert last["told_broker"] is False
            finally:
                for shell in (alice, bob):
                    for slug in shell.home.meshes():
                        shell.run("daemon", "down", "--mesh", slug)

        await asyncio.to_thread(leave)


@pytest.mark.req("Q8")
async def test_any_member_makes_topics_and_queues_once_and_only_while_the_broker_is_there(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (broker, alice, bob):
        for path, name in (("/v1/topic/create", {"topic": "news"}), ("/v1/queue/create", {"queue": "jobs"})):
            made = [(await one.post(path, name)).body["created"] for one in (bob, alice, bob)]
            assert made == [True, False, False]
        await bob.post("/v1/topic/subscribe", {"topic": "news"})
        await bob.send("#news", "before", client_message_id="m1")
        await bob.until(lambda found: found["state"] != "queued", "/v1/trace/m1")
        await alice.post("/v1/topic/subscribe", {"topic": "news"})
        await bob.send("#news", "after")
        assert [message["body"] for message in await alice.receives(1)] == ["after"]
        assert (await asyncio.to_thread(health_of, broker.url))["connections"] == 2, "each daemon has one socket"
        await broker.stop()
        await bob.until(lambda health: not health["connected"])
        for path, name in (("/v1/topic/create", {"topic": "more"}), ("/v1/queue/work", {"queue": "jobs"})):
            assert (await bob.post(path, name)).body["code"] == "broker_unreachable"


def health_of(url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(exchange(url, "/v1/health")[1])
    return found
