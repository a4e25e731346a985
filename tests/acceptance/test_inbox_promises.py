"""Into the inbox exactly once, whatever is delivered how often; and how a crowd comes back to its broker."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from claudemesh.daemon import identity
from claudemesh.runtime import points
from claudemesh.runtime.keys import KeyPair
from tests.acceptance.files import in_file
from tests.acceptance.test_daemon_life import damage
from tests.mesh import WITHIN_S, LocalDaemon, local_broker, local_daemon, local_mesh, rejoin


async def told(daemon: LocalDaemon, until: str) -> list[str]:
    """Return the bodies of all messages that the stream of events has told of, up to this one."""
    epoch = (await daemon.inbox())[0]["cursor"].partition(".")[0]
    reader, writer = await asyncio.open_unix_connection(str(daemon.state_dir / "sock"))
    writer.write(f"GET /v1/events HTTP/1.1\r\nhost: x\r\nlast-event-id: {epoch}.0\r\n\r\n".encode())
    seen = b""
    async with asyncio.timeout(WITHIN_S):
        while f'"body":"{until}"'.encode() not in seen:
            seen += await reader.read(65536)
    writer.close()
    messages = [event.partition(b"data: ")[2] for event in seen.split(b"\n\n") if b"event: message\n" in event]
    return [json.loads(message.partition(b"\n")[0])["body"] for message in messages]


@pytest.mark.req("Q2")
async def test_what_is_delivered_again_is_stored_once_and_told_once(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        cuts = iter([RuntimeError("the connection goes between the commit and its acknowledgement")])

        def cut() -> None:
            for error in cuts:
                raise error

        points.arm("daemon.before_ack", cut)
        try:
            await alice.send("bob", "twice", client_message_id="m1")
            await bob.receives(1)
            # It comes again on the next connection, and only that one acknowledges it.
            await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m1")
        finally:
            points.disarm_all()
        await alice.send("bob", "last")
        assert [message["body"] for message in await bob.receives(2)] == ["twice", "last"]
        assert await told(bob, "last") == ["twice", "last"]
        assert next(cuts, None) is None, "nothing was cut"


@pytest.mark.req("Q1")
async def test_what_the_inbox_could_not_store_is_not_acknowledged_and_comes_again(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        cuts = iter([RuntimeError("the daemon fails before the inbox has it")])

        def cut() -> None:
            for error in cuts:
                raise error

        points.arm("daemon.before_inbox", cut)
        try:
            await alice.send("bob", "kept", client_message_id="m1")
            assert [message["body"] for message in await bob.receives(1)] == ["kept"]
        finally:
            points.disarm_all()
        assert next(cuts, None) is None, "nothing was cut"


@pytest.mark.req("Q2", "Q7")
async def test_an_id_is_known_longer_than_its_message_is_kept(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice, rejoin(there) as bob:
            await alice.until(lambda health: health["connected"])
            await alice.send("bob", "old", client_message_id="m1")
            (old,) = await bob.receives(1)
            await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m1")
        await broker.stop()
        days = 31 * 86_400_000
        in_file(there / "inbox.db", "UPDATE event SET at = at - ?", days)
        in_file(there / "inbox.db", "UPDATE inbox SET received_at = received_at - ?", days)
        # As if the acknowledgement had never reached the broker, which so delivers it again.
        in_file(tmp_path / "broker.db", "UPDATE delivery_queue SET delivered_at = NULL")
        in_file(
            tmp_path / "broker.db",
            "INSERT INTO delivery_open SELECT recipient_id, 0, 1 << history_id FROM delivery_queue",
        )
        await broker.start()
        async with rejoin(here) as alice, rejoin(there) as bob:
            await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m1")
            await alice.send("bob", "new")
            (new,) = await bob.receives(1)
            assert new["body"] == "new"
            # Whoever was further back than that has missed something, and is told so wherever it asks.
            before = old["cursor"].partition(".")[0] + ".0"
            for answer in (
                await bob.request("GET", f"/v1/inbox?cursor={before}"),
                await bob.request("GET", "/v1/events", headers={"last-event-id": before}),
                await bob.post("/v1/inbox/read", {"upto": before}),
            ):
                assert (answer.status, answer.body["code"]) == (410, "cursor_expired")
            assert (await bob.request("GET", f"/v1/inbox?cursor={new['cursor']}")).status == 200


@pytest.mark.req("D9")
async def test_what_is_restored_into_a_lost_inbox_is_told_to_nobody(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice, rejoin(there) as bob:
            await alice.until(lambda health: health["connected"])
            for number in range(30):
                await alice.send("bob", f"{number} " + "x" * 500, client_message_id=f"m{number}")
            await bob.receives(30)
            await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m29")
        damage(there / "inbox.db")
        async with rejoin(here) as alice, rejoin(there) as bob:
            await bob.receives(30)
            found = (await bob.get("/v1/inbox/search?q=17"))["messages"]
            assert [message["client_message_id"] for message in found] == ["m17"]
            await alice.send("bob", "new")
            await bob.receives(31)
            assert await told(bob, "new") == ["new"]


@pytest.mark.req("F8", "P8")
async def test_messages_of_every_priority_wait_for_a_member_and_come_in_the_order_they_were_sent(
    tmp_path: Path,
) -> None:
    priorities = ["low", "now", "next", "now", "low", "next"]
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice:
            await alice.until(lambda health: health["connected"])
            for number, priority in enumerate(priorities):
                await alice.send("bob", str(number), client_message_id=f"m{number}", priority=priority)
            await alice.until(lambda found: found["state"] == "accepted", "/v1/trace/m5")
            other = await alice.send("bob", "0", client_message_id="m0", priority="now")
            assert other.status == 409, "it counts in the fingerprint"
            async with rejoin(there) as bob:
                got = [(message["body"], message["priority"]) for message in await bob.receives(6)]
                assert got == [(str(number), priority) for number, priority in enumerate(priorities)]


@pytest.mark.req("Q5")
async def test_daemons_that_lost_their_broker_come_back_at_instants_of_their_own(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) / "demo" for number in range(6)]
    async with AsyncExitStack() as stack:
        for folder in folders:
            folder.parent.mkdir(mode=0o700)
            await stack.enter_async_context(local_daemon(folder, keys=KeyPair.generate()))
        waits = [await first_waits(folder / "daemon.log") for folder in folders]
    assert len({first for first, _ in waits}) > 1, "in lock-step"
    assert max(first for first, _ in waits) < 500
    assert max(second for _, second in waits) < 1_000
    assert identity.load(folders[0], str).joined.broker_url.endswith(":9"), "nobody is there"


async def first_waits(log: Path) -> tuple[int, int]:
    """Return how long a daemon waits after its first and after its second try."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            lines = [json.loads(line) for line in log.read_text().splitlines()]  # noqa: ASYNC240  a few lines
            found = [line["retry_in_ms"] for line in lines if "retry_in_ms" in line]
            if len(found) >= 2:
                return found[0], found[1]
            await asyncio.sleep(0.01)
