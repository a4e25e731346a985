"""From one daemon's socket to another's inbox, through a broker: once, in order, whatever stops in between."""

import asyncio
from pathlib import Path

import pytest

from tests.mesh import local_broker, local_mesh, rejoin


@pytest.mark.req("Q1", "Q6")
async def test_a_message_reaches_the_other_inbox_and_its_life_can_be_traced(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        sent = await alice.send("bob", "hello bob", client_message_id="m1", meta={"n": 1})
        assert sent.status == 202
        (message,) = await bob.receives(1)
        assert (message["body"], message["from_name"], message["meta"]) == ("hello bob", "alice", {"n": 1})
        assert message["from"] == alice.keys.pubkey
        trace = await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m1")
        assert [step["state"] for step in trace["steps"]] == ["queued", "accepted", "delivered"]
        again = await alice.send("bob", "hello bob", client_message_id="m1", meta={"n": 1})
        assert (again.status, again.body["duplicate"]) == (200, True)
        assert again.body["broker_message_id"] == message["broker_message_id"]
        other = await alice.send("bob", "other", client_message_id="m1")
        assert (other.status, other.body["conflict"]) == (409, "outbox_done_fingerprint_mismatch")
        assert len(await bob.inbox()) == 1


@pytest.mark.req("D7", "Q1")
async def test_many_messages_arrive_once_and_in_order(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", "carol") as (_, alice, bob, carol):
        for number in range(60):
            await alice.send(("bob", "carol")[number % 2], str(number))
        assert [m["body"] for m in await bob.receives(30)] == [str(n) for n in range(0, 60, 2)]
        assert [m["body"] for m in await carol.receives(30)] == [str(n) for n in range(1, 60, 2)]


@pytest.mark.req("D9", "P8")
async def test_sends_wait_while_the_broker_is_away_and_arrive_when_it_is_back(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (broker, alice, bob):
        await alice.send("bob", "before")
        await bob.receives(1)
        await broker.stop()
        await alice.until(lambda health: not health["connected"])
        for number in range(10):
            assert (await alice.send("bob", str(number))).status == 202
        assert (await alice.get("/v1/health"))["queue_depth"] == 10
        await broker.start()
        assert [m["body"] for m in await bob.receives(11)] == ["before", *map(str, range(10))]


@pytest.mark.req("D9")
async def test_a_daemon_that_comes_back_sends_what_it_had_accepted(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(there) as bob:
            async with rejoin(here) as alice:
                await alice.until(lambda health: health["connected"])
                assert (await alice.send("bob", "first", client_message_id="m0")).status == 202
                await bob.receives(1)
                await broker.stop()
                assert (await alice.send("bob", "kept", client_message_id="m1")).status == 202
            await broker.start()
            async with rejoin(here) as alice:
                assert [m["client_message_id"] for m in await bob.receives(2)] == ["m0", "m1"]
                await alice.until(lambda found: found["state"] != "queued", "/v1/trace/m1")  # her daemon has heard
                assert (await alice.send("bob", "kept", client_message_id="m1")).body["duplicate"]


@pytest.mark.req("P8")
async def test_what_is_sent_to_a_member_who_is_away_is_delivered_once_on_return(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice:
            await alice.until(lambda health: health["connected"])
            for number in range(5):
                await alice.send("bob", str(number), client_message_id=f"m{number}")
            await alice.until(lambda found: found["state"] == "accepted", "/v1/trace/m4")
            async with rejoin(there) as bob:
                assert [m["body"] for m in await bob.receives(5)] == list(map(str, range(5)))
            async with rejoin(there) as bob:
                await bob.until(lambda health: health["connected"])
                assert len(await bob.inbox()) == 5
            await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m4")


@pytest.mark.req("Q8")
async def test_a_topic_reaches_its_subscribers_and_nobody_else(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", "carol") as (_, alice, bob, carol):
        assert (await alice.post("/v1/topic/create", {"topic": "news"})).status == 200
        early = await alice.send("#news", "too early", client_message_id="m0")
        assert early.status == 202
        dead = await alice.until(lambda found: found["state"] == "dead", "/v1/trace/m0")
        assert "not_subscribed" in dead["steps"][-1]["evidence"]
        for daemon in (alice, bob):
            assert (await daemon.post("/v1/topic/subscribe", {"topic": "news"})).status == 200
        posted = await alice.post("/v1/topic/post", {"topic": "news", "message": "hi", "mentions": ["bob"]})
        assert posted.status == 202
        (message,) = await bob.receives(1)
        assert (message["topic"], message["body"], message["meta"]) == ("news", "hi", {"mentions": ["bob"]})
        assert [m["body"] for m in (await bob.get("/v1/inbox?mentions=me"))["messages"]] == ["hi"]
        assert await alice.inbox() == await carol.inbox() == []


@pytest.mark.req("Q6")
async def test_a_read_mark_reaches_the_sender_and_a_reply_shows_that_it_acted(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        await alice.send("bob", "please", client_message_id="m1")
        (message,) = await bob.receives(1)
        delivered = await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m1")
        assert delivered["counts"] == {"delivered": 1}
        marked = await bob.post("/v1/inbox/read", {"ids": [message["broker_message_id"]]})
        assert marked.body == {"marked": 1, "unread": 0}
        await alice.until(lambda found: found["state"] == "read", "/v1/trace/m1")
        await bob.send("alice", "done", reply_to_id=message["broker_message_id"])
        acted = await alice.until(lambda found: found["state"] == "acted", "/v1/trace/m1")
        states = [step["state"] for step in acted["steps"]]
        assert states == ["queued", "accepted", "delivered", "read", "acted"]
        (reply,) = await alice.receives(1)
        assert reply["reply_to_id"] == message["broker_message_id"]


@pytest.mark.req("Q3")
async def test_work_is_leased_to_one_worker_at_a_time_and_acknowledged_with_its_token(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", "carol") as (_, alice, bob, carol):
        await alice.post("/v1/queue/create", {"queue": "builds"})
        await alice.send("queue:builds", "build 1", client_message_id="b1")
        await alice.until(lambda found: found["state"] == "accepted", "/v1/trace/b1")
        work = (await bob.post("/v1/queue/work", {"queue": "builds"})).body
        assert (work["body"], work["from"]) == ("build 1", alice.keys.pubkey)
        assert (await carol.post("/v1/queue/work", {"queue": "builds"})).body is None
        claim = {"queue": "builds", "id": work["broker_message_id"], "token": work["lease_token"]}
        stolen = await carol.post("/v1/queue/ack", claim)
        assert (stolen.status, stolen.body["code"]) == (409, "lease_lost")
        assert (await bob.post("/v1/queue/ack", claim)).status == 200
        acted = await alice.until(lambda found: found["state"] == "acted", "/v1/trace/b1")
        assert acted["steps"][-1]["state"] == "acted"
        assert await bob.inbox() == []


@pytest.mark.req("Q3", "Q6")
async def test_work_that_was_handed_over_is_acted_only_with_the_reply_of_who_did_that(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", "carol") as (_, alice, bob, carol):
        await alice.post("/v1/queue/create", {"queue": "builds"})
        await alice.send("queue:builds", "build 1", client_message_id="b1")
        await alice.until(lambda found: found["state"] == "accepted", "/v1/trace/b1")
        work = (await bob.post("/v1/queue/work", {"queue": "builds"})).body
        claim = {"queue": "builds", "id": work["broker_message_id"], "token": work["lease_token"]}
        refused = await bob.post("/v1/queue/ack", claim | {"handed_over": "yes"})
        assert (refused.status, refused.body["code"]) == (400, "invalid_request")
        handed_over = await bob.post("/v1/queue/ack", claim | {"handed_over": True})
        assert (handed_over.status, handed_over.body["state"]) == (200, "delivered")
        assert (await carol.post("/v1/queue/work", {"queue": "builds"})).body is None
        await carol.send("alice", "I did it", reply_to_id=work["broker_message_id"])
        await alice.receives(1)
        delivered = await alice.get("/v1/trace/b1")
        assert (delivered["state"], delivered["is_current"]) == ("delivered", True)
        assert delivered["steps"][-1]["evidence"] == "bob leased it, and handed it over to a ledger"
        await bob.send("alice", "it is in the ledger", reply_to_id=work["broker_message_id"])
        acted = await alice.until(lambda found: found["state"] == "acted", "/v1/trace/b1")
        assert [step["state"] for step in acted["steps"]] == ["queued", "accepted", "delivered", "acted"]
        assert acted["steps"][-1]["evidence"].endswith("answered it")


@pytest.mark.req("Q7")
async def test_a_stream_goes_on_after_the_event_that_was_seen_last(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        await alice.send("bob", "one")
        first = await bob.receives(1)
        for number in ("two", "three"):
            await alice.send("bob", number)
        await bob.receives(3)
        reader, writer = await asyncio.open_unix_connection(str(bob.state_dir / "sock"))
        head = f"GET /v1/events HTTP/1.1\r\nhost: x\r\nlast-event-id: {first[0]['cursor']}\r\n\r\n"
        writer.write(head.encode())
        seen = b""
        async with asyncio.timeout(30):
            while seen.count(b"event: message") < 2:
                seen += await reader.read(65536)
        writer.close()
        assert b'"body":"two"' in seen
        assert b'"body":"three"' in seen
        assert b'"body":"one"' not in seen
        for cursor, status, code in [
            ("nonsense", 400, "invalid_request"),
            ("0123.1", 410, "cursor_expired"),
            (first[0]["cursor"].split(".")[0] + ".999", 409, "cursor_ahead"),
        ]:
            refused = await bob.request("GET", "/v1/events", headers={"last-event-id": cursor})
            assert (refused.status, refused.body["code"]) == (status, code)
            paged = await bob.request("GET", f"/v1/inbox?cursor={cursor}")
            assert (paged.status, paged.body["code"]) == (status, code)


@pytest.mark.req("Q2")
async def test_search_finds_words_and_takes_them_for_nothing_but_words(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        for text in ("the deploy failed at noon", "deploy is fine", "lunch at noon"):
            await alice.send("bob", text)
        await bob.receives(3)

        async def found(words: str) -> list[str]:
            page = await bob.get(f"/v1/inbox/search?q={words}")
            return [m["body"] for m in page["messages"]]

        assert await found("deploy%20noon") == ["the deploy failed at noon"]
        assert len(await found("noon")) == 2
        assert len(await found("-deploy")) == 2, "a minus is no operator"
        for hostile in ("%22", "NEAR(", "body:x", "*", "a%20OR%20b", "%27;--"):
            assert await found(hostile) == [], hostile
