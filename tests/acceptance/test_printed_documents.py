"""What commands print of real daemons and a real broker; `tests/printed.py` holds all of it against the schemas."""

import asyncio
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from claudemesh.cli import follow
from tests.acceptance.in_process import claudemesh
from tests.mesh import LocalDaemon, local_mesh

pytestmark = pytest.mark.req("C1")

WITHIN_S = 30


async def told(who: LocalDaemon, *words: str) -> Any:  # noqa: ANN401  JSON
    ran = await claudemesh(who, *words)
    assert ran.code == 0, (words, ran)
    return ran.json


@pytest.mark.prints(
    "claudemesh topic create",
    "claudemesh topic list",
    "claudemesh topic join",
    "claudemesh topic leave",
    "claudemesh topic tail",
    "claudemesh send --wait",
    "claudemesh inbox",
    "claudemesh trace",
)
async def test_what_is_printed_of_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        assert (await told(alice, "topic", "create", "ops"))["created"] is True
        for who in (alice, bob):
            await told(who, "topic", "join", "ops")
        sent = await told(alice, "send", "#ops", "hello", "--wait", "delivered", "--meta", '{"n": 1}')
        assert sent["reached"] is True
        [message] = (await told(bob, "inbox", "--topic", "ops"))["messages"]
        assert (message["body"], message["topic"], message["meta"]) == ("hello", "ops", {"n": 1})
        assert (await told(alice, "trace", sent["client_message_id"]))["state"] == "delivered"

        has_listed = asyncio.Event()
        loop, followed = asyncio.get_running_loop(), follow.follow_inbox

        def follow_two(*args: Any, **named: Any) -> Iterator[Any]:  # noqa: ANN401  as it is given
            for message in islice(followed(*args, **named), 2):
                yield message
                loop.call_soon_threadsafe(has_listed.set)

        monkeypatch.setattr(follow, "follow_inbox", follow_two)
        following = asyncio.create_task(claudemesh(bob, "topic", "tail", "ops"))
        async with asyncio.timeout(WITHIN_S):
            await has_listed.wait()
        assert (await alice.post("/v1/topic/post", {"topic": "ops", "message": "again"})).status == 202
        listed, streamed = (await following).lines
        assert [listed["body"], streamed["body"]] == ["hello", "again"]
        assert listed.keys() == streamed.keys()
        assert (await told(bob, "topic", "list"))["topics"][0]["subscribers"] == 2
        assert (await told(bob, "topic", "leave", "ops"))["was_subscribed"] is True


@pytest.mark.prints(
    "claudemesh queue create",
    "claudemesh queue list",
    "claudemesh queue work",
    "claudemesh queue renew",
    "claudemesh queue nack",
    "claudemesh queue ack",
)
async def test_what_is_printed_of_queues(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice") as (_, alice):
        assert (await told(alice, "queue", "create", "jobs"))["created"] is True
        assert await told(alice, "queue", "work", "jobs") is None
        await told(alice, "send", "queue:jobs", "do this", "--wait", "accepted")
        assert (await told(alice, "queue", "list"))["queues"][0]["ready"] == 1
        leased = await told(alice, "queue", "work", "jobs")
        lease = ("--id", leased["broker_message_id"], "--token", str(leased["lease_token"]))
        assert (await told(alice, "queue", "renew", "jobs", *lease))["id"] == leased["broker_message_id"]
        await told(alice, "queue", "nack", "jobs", *lease)
        again = await told(alice, "queue", "work", "jobs")
        assert again["lease_token"] > leased["lease_token"]
        lost = await claudemesh(alice, "queue", "ack", "jobs", *lease)
        assert (lost.code, lost.json["code"]) == (4, "lease_lost")
        lease = ("--id", leased["broker_message_id"], "--token", str(again["lease_token"]))
        assert (await told(alice, "queue", "ack", "jobs", *lease))["state"] == "acted"


@pytest.mark.prints(
    "claudemesh mesh set",
    "claudemesh mesh list",
    "claudemesh mesh leave",
    "claudemesh member role",
    "claudemesh member revoke",
    "claudemesh peer list",
    "claudemesh daemon status",
)
async def test_what_is_printed_of_the_mesh_and_its_members(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", "carol") as (_, alice, _bob, carol):
        terms = await told(alice, "mesh", "set", "--sends-per-window", "9", "--connections", "prefer_oldest")
        assert (terms["sends_per_window"], terms["connections"]) == (9, "prefer_oldest")
        assert [one["slug"] for one in (await told(alice, "mesh", "list"))["meshes"]] == ["demo"]
        assert (await told(alice, "member", "role", "bob", "admin"))["role"] == "admin"
        for words in (("peer", "list"), ("peer", "list", "--all")):
            assert len((await told(alice, *words))["peers"]) == 3
        assert (await told(alice, "daemon", "status"))["member"] == "alice"
        assert (await told(alice, "member", "revoke", "bob"))["name"] == "bob"
        refused = await claudemesh(carol, "member", "role", "alice", "member")
        assert (refused.code, refused.json["code"]) == (1, "forbidden")
        carol.stopping.set()
        assert (await carol.task) == 0
        left = await told(carol, "mesh", "leave", "--force")
        assert (left["left"], left["told_broker"]) == (True, False)


@pytest.mark.prints(
    "claudemesh daemon outbox list",
    "claudemesh daemon outbox inspect",
    "claudemesh daemon outbox requeue",
    "claudemesh daemon outbox drop",
    "claudemesh daemon outbox prune",
)
async def test_what_is_printed_of_the_outbox(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (broker, alice, _bob):
        await broker.stop()
        await alice.until(lambda health: not health["connected"])
        for number in (1, 2):
            await told(alice, "send", "bob", "hi", "--id", f"m{number}")
        rows = (await told(alice, "daemon", "outbox", "list"))["rows"]
        patch = tmp_path / "patch.json"
        patch.write_text(json.dumps({"message": "better"}))
        words = ("--id", rows[0]["id"], "--patch-payload", str(patch), "--force")
        anew = await told(alice, "daemon", "outbox", "requeue", *words)
        assert anew["status"] == "aborted"
        assert anew["client_message_id"]
        inspected = await told(alice, "daemon", "outbox", "inspect", "--id", anew["superseded_by"])
        assert inspected["ancestors"] == [rows[0]["id"]]
        assert (await told(alice, "daemon", "outbox", "drop", "--id", rows[1]["id"], "--force"))[
            "status"
        ] == "aborted"
        assert "pruned" in await told(alice, "daemon", "outbox", "prune", "--confirm")
