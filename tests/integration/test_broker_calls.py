"""What is asked by `call`: the directory, members, topics, queues, receipts, marks, retiring."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from claudemesh.broker.model import Member
from claudemesh.broker.stores.sqlite.directory import SqliteDirectoryStore
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime.keys import KeyPair
from claudemesh.wire import frames
from tests.integration.broker_client import BOUND_S, Peer, Refused, broker, create_mesh, dm, item, join, opened
from tests.integration.test_broker_hello import attest, refused_hello, session_hello


async def test_the_directory_names_everybody_with_their_keys(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with bob.connected() as wire:
            members = (await wire.call("directory"))["members"]
            assert [(one["name"], one["pubkey"], one["role"]) for one in members] == [
                ("alice", alice.keys.pubkey, "owner"),
                ("bob", bob.keys.pubkey, "member"),
            ]
            assert members[1]["member_id"] == wire.ack.member_id


async def test_a_call_that_cannot_be_answered_gets_a_problem_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            wrong = {
                "no.such.operation": {},
                "topic.create": {},
                "topic.subscribe": {"name": "nowhere"},
                "queue.work": {"name": "nothing"},
                "queue.ack": {"name": "q", "id": "x", "token": 2**70},
                "queue.renew": {"name": "q", "id": "x", "token": 1, "lease_ms": 0},
                "retire": {"client_message_id": "a b", "fingerprint": "0" * 64},
                "receipts": {"ids": ["x" * 200]},
                "read": {"broker_message_ids": ["x"] * 1001},
                "trace": {"id": "unknown"},
            }
            codes = {}
            for op, args in wrong.items():
                with pytest.raises(Refused) as refused:
                    await wire.call(op, **args)
                codes[op] = refused.value.code
            assert codes == {
                "no.such.operation": "not_found",
                "topic.create": "invalid_request",
                "topic.subscribe": "destination_not_found",
                "queue.work": "destination_not_found",
                "queue.ack": "invalid_request",
                "queue.renew": "invalid_request",
                "retire": "invalid_client_message_id",
                "receipts": "invalid_request",
                "read": "invalid_request",
                "trace": "not_found",
            }
            assert "server_time_ms" in await wire.call("ping")


@pytest.mark.parametrize("name", ["", "a b", "x" * 200, "-x", "é", "a\0b"])
async def test_a_name_that_no_topic_can_have_is_refused(tmp_path: Path, name: str) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            for op in ("topic.create", "topic.subscribe", "queue.create", "queue.work"):
                with pytest.raises(Refused) as refused:
                    await wire.call(op, name=name)
                assert refused.value.code == "invalid_request"


@pytest.mark.req("Q3")
async def test_work_is_leased_renewed_and_acked_over_the_wire(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        boss = await create_mesh(running, name="boss")
        worker = await join(boss, "worker")
        async with boss.connected() as b, worker.connected() as w:
            assert await b.call("queue.create", name="jobs") == {"name": "jobs", "created": True}
            assert await w.call("queue.work", name="jobs") is None
            [outcome] = await b.send(item("j1", Kind.QUEUE, "jobs", "sweep", meta={"room": 3}))
            work = await w.call("queue.work", name="jobs", lease_ms=60_000)
            assert (work["client_message_id"], work["body"], work["meta"]) == ("j1", "sweep", {"room": 3})
            assert (work["from"], work["from_name"]) == (boss.keys.pubkey, "boss")
            assert work["broker_message_id"] == outcome.broker_message_id
            assert work["lease_expires_at"] > work["accepted_at"]
            claim = {"name": "jobs", "id": work["broker_message_id"], "token": work["lease_token"]}
            assert (await w.call("queue.renew", **claim, lease_ms=120_000))["lease_ttl_ms"] > 60_000
            with pytest.raises(Refused) as refused:
                await w.call("queue.ack", **claim | {"token": work["lease_token"] + 1})
            assert refused.value.code == "lease_lost"
            await w.call("queue.ack", **claim)
            [receipt] = (await b.call("receipts", ids=["j1"]))["items"]
            assert (receipt["state"], receipt["recipients"][0]["name"]) == ("acted", "worker")
            assert (await b.call("queue.list"))["queues"][0]["ready"] == 0


@pytest.mark.req("Q3", "Q6")
async def test_work_that_is_handed_over_is_acted_with_the_workers_reply_and_its_sender_is_told_then(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path) as running:
        boss = await create_mesh(running, name="boss")
        worker, other = await join(boss, "worker"), await join(boss, "other")
        async with boss.connected() as b, worker.connected() as w, other.connected() as o:
            await b.call("queue.create", name="jobs")
            await b.send(item("j1", Kind.QUEUE, "jobs", "sweep"))
            work = await w.call("queue.work", name="jobs")
            hints = [await b.expect(frames.Receipt)]
            claim = {"name": "jobs", "id": work["broker_message_id"], "token": work["lease_token"]}
            with pytest.raises(Refused) as refused:
                await w.call("queue.ack", **claim, handed_over="yes")
            assert refused.value.code == "invalid_request"
            for _ in range(2):
                answer = await w.call("queue.ack", **claim, handed_over=True)
                assert answer == {"id": work["broker_message_id"], "state": "delivered"}
            [receipt] = (await b.call("receipts", ids=["j1"]))["items"]
            assert (receipt["state"], receipt["recipients"][0]["handed_over"]) == ("delivered", True)
            for wire, id_ in ((o, "r0"), (w, "r1")):
                await wire.send(dm(id_, boss, reply_to=work["broker_message_id"]))
            hints.append(await b.expect(frames.Receipt))
            assert [hint.items[0].state for hint in hints] == ["delivered", "acted"], "nothing moved in between"
            assert (await w.call("queue.ack", **claim, handed_over=True))["state"] == "acted"
            [receipt] = (await b.call("receipts", ids=["j1"]))["items"]
            assert receipt["state"] == "acted"
            assert "handed_over" not in receipt["recipients"][0]


@pytest.mark.req("Q6")
async def test_receipts_go_from_accepted_to_acted_and_only_by_evidence(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as b:

            async def state() -> str:
                return (await a.call("receipts", ids=["m"]))["items"][0]["state"]

            await a.send(dm("m", bob))
            [delivered] = await b.deliveries(1)
            states = [await state()]  # pushed is not delivered
            await b.acknowledge([delivered])
            hints = [await a.expect(frames.Receipt)]
            states.append(await state())
            marked = await b.call("read", broker_message_ids=[delivered.broker_message_id, "unknown"])
            assert marked == {"marked": 1}
            hints.append(await a.expect(frames.Receipt))
            states.append(await state())
            await b.send(dm("r", alice, reply_to=delivered.broker_message_id))
            hints.append(await a.expect(frames.Receipt))
            states.append(await state())
            assert [hint.items[0].state for hint in hints] == ["delivered", "read", "acted"]
            assert states == ["accepted", "delivered", "read", "acted"]
            traced = await b.call("trace", id=delivered.broker_message_id)
            assert traced["recipients"][0]["acted_at"] >= traced["recipients"][0]["delivered_at"]
            assert (await a.call("trace", id="m"))["broker_message_id"] == delivered.broker_message_id


@pytest.mark.req("D10")
async def test_retiring_returns_the_accept_or_closes_the_id(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            item = dm("done", alice)
            [outcome] = await wire.send(item)
            told = await wire.call("retire", client_message_id="done", fingerprint=item.fingerprint)
            assert (told["accepted"], told["broker_message_id"]) == (True, outcome.broker_message_id)
            other = await wire.call("retire", client_message_id="done", fingerprint="0" * 64)
            assert other == {"accepted": False, "taken": True}, "another request has the id"
            late = await wire.call("retire", client_message_id="late", fingerprint="0" * 64)
            assert late == {"accepted": False}
            [refusal] = await wire.send(dm("late", alice))
            assert (refusal.status, refusal.code) == (409, "id_retired")


async def test_a_full_inbox_pauses_deliveries_until_it_says_otherwise(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            assert await wire.call("deliver.pause", paused=True) == {"paused": True}
            await wire.send(dm("1", alice))
            await wire.call("ping")
            assert not [one for one in wire._passed if isinstance(one, frames.Deliver)]
            await wire.call("deliver.pause", paused=False)
            assert len(await wire.deliveries(1)) == 1


# --- who may be there, and on which terms -------------------------------------------------------------------


@pytest.mark.req("Q8", "N3")
async def test_a_member_who_is_revoked_is_put_out_at_once_and_for_good(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob, carol = await join(alice, "bob"), await join(alice, "carol")
        session = KeyPair.generate()
        async with alice.connected() as a, bob.connected() as b, opened(running) as s, carol.connected() as c:
            await s.say(session_hello(bob, session, s.nonce, attest(bob.keys, session)))
            await s.expect(frames.HelloAck)
            with pytest.raises(Refused) as refused:
                await c.call("member.revoke", member="bob")
            assert refused.value.code == "forbidden"
            gone = await a.call("member.revoke", member="Bob")
            assert (gone["name"], gone["pubkey"]) == ("bob", bob.keys.pubkey)
            for wire in (b, s):
                assert await wire.closed() == (4401, "revoked")
            assert await c.hear("member_left") == {"name": "bob", "pubkey": bob.keys.pubkey}
            assert await refused_hello(bob) == (4401, "revoked")
            [outcome] = await c.send(dm("1", bob))
            assert (outcome.status, outcome.code) == (404, "destination_not_found")
            assert [one["name"] for one in (await c.call("peers", all=True))["peers"]] == ["alice", "carol"]
            assert (await c.call("resolve", pubkeys=[bob.keys.pubkey, session.pubkey]))["known"] == []


@pytest.mark.req("Q8")
async def test_a_member_is_put_out_also_if_whoever_revoked_it_is_gone_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_written, may_go_on = asyncio.Event(), asyncio.Event()
    revoke = SqliteDirectoryStore.revoke

    async def revoke_slowly(*args: Any) -> Member:  # noqa: ANN401  whatever it is called with
        member = await revoke(*args)
        is_written.set()
        await may_go_on.wait()
        return member

    monkeypatch.setattr(SqliteDirectoryStore, "revoke", revoke_slowly)
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with bob.connected() as b, asyncio.timeout(BOUND_S):
            async with alice.connected() as a:
                await a.say(frames.Call(1, "member.revoke", {"member": "bob"}))
                await is_written.wait()
            may_go_on.set()
            assert await b.closed() == (4401, "revoked")


@pytest.mark.req("Q8")
async def test_whoever_leaves_is_answered_and_then_closed(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as b:
            with pytest.raises(Refused) as refused:
                await a.call("member.revoke", member=alice.keys.pubkey)
            assert refused.value.problem["reason"] == "last_owner"
            assert (await b.call("member.revoke", member=bob.keys.pubkey))["name"] == "bob"
            assert await b.closed() == (4401, "revoked")
            assert (await a.call("ping"))["server_time_ms"]


@pytest.mark.req("Q8")
async def test_an_admin_invites_and_revokes_from_the_moment_it_is_one(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as b:
            made = await a.call("member.role", member="bob", role="admin")
            assert (made["name"], made["role"]) == ("bob", "admin")
            await join(bob, "carol")
            for op, args in (
                ("member.revoke", {"member": "alice"}),
                ("member.role", {"member": "carol", "role": "owner"}),
            ):
                with pytest.raises(Refused) as refused:
                    await b.call(op, **args)
                assert refused.value.code == "forbidden"
            assert (await b.call("member.revoke", member="carol"))["name"] == "carol"
            with pytest.raises(Refused) as refused:
                await a.call("member.role", member="bob", role="king")
            assert refused.value.code == "invalid_request"


@pytest.mark.req("B1", "Q8")
async def test_a_meshs_own_budget_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as b:
            changed = await a.call("mesh.set", sends_per_window=2)
            assert (changed["sends_per_window"], changed["connections"]) == (2, "prefer_newest")
            outcomes = await b.send(*(dm(f"{number}", alice) for number in range(4)))
            assert [outcome.status for outcome in outcomes] == [201, 201, 429, 429]
            with pytest.raises(Refused) as refused:
                await b.call("mesh.set", sends_per_window=100)
            assert refused.value.code == "forbidden"
    async with broker(tmp_path) as again, Peer(again, bob.keys, bob.membership).connected() as b:
        outcomes = await b.send(*(dm(f"n{number}", alice) for number in range(3)))
        assert [outcome.status for outcome in outcomes] == [201, 201, 429]
