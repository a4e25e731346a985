"""Several brokers on one PostgreSQL: whoever is connected where, it is one mesh. Hints cross, and may be lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from claudemesh.broker import switchboard
from claudemesh.broker.app import check, restored
from claudemesh.broker.policy import EPOCH_SKIP
from claudemesh.broker.seating import Seating
from claudemesh.broker.settings import BrokerSettings, Presence
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime.keys import KeyPair
from claudemesh.wire import frames
from tests.integration.broker_client import (
    BOUND_S,
    Peer,
    Refused,
    RunningBroker,
    Wire,
    broker,
    create_mesh,
    dm,
    item,
    join,
    opened,
)
from tests.integration.test_broker_hello import attest, session_hello

LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen %' AND datname = current_database()"


@dataclass
class Brokers:
    one: RunningBroker
    two: RunningBroker
    dsn: str
    have_missed_something: bool = False

    def at(self, running: RunningBroker, peer: Peer) -> Peer:
        """Return the same member, who goes to this broker."""
        return Peer(running, peer.keys, peer.membership, peer.instance_id)


@pytest.fixture
async def brokers(
    tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Brokers]:
    # Longer than any test waits: what arrives, arrives by a hint, and not since somebody looked again.
    monkeypatch.setattr(switchboard, "LOOK_AGAIN_S", 10 * BOUND_S)
    look_over = Seating.look_over

    async def look_over_if_missed(
        seating: Seating,
    ) -> None:  # and not as one does that has just begun beside another
        if made is not None and made.have_missed_something:
            await look_over(seating)

    monkeypatch.setattr(Seating, "look_over", look_over_if_missed)
    made: Brokers | None = None
    async with AsyncExitStack() as stack:
        chosen = {"store": postgres_database, "presence": Presence(lease_ttl_ms=3_000)}
        one, two = [await stack.enter_async_context(broker(tmp_path, **chosen)) for _ in range(2)]
        made = Brokers(one, two, postgres_database)
        yield made


async def until_present(wire: Wire, *names: str) -> None:
    """Wait until these are connected, and nobody else."""
    async with asyncio.timeout(BOUND_S):
        while {peer["name"] for peer in (await wire.call("peers"))["peers"]} != {*names}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.req("Q1")
async def test_a_message_taken_at_one_broker_is_pushed_by_the_other_to_whoever_is_connected_there(
    brokers: Brokers,
) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = brokers.at(brokers.two, await join(alice, "bob"))
    async with alice.connected() as here, bob.connected() as there:
        for number in range(20):
            [outcome] = await here.send(dm(f"m{number}", bob, f"body {number}"))
            assert (outcome.status, outcome.history_id) == (201, number + 1)
            [delivered] = await there.deliveries(1)
            assert delivered.body == f"body {number}"
            await there.acknowledge([delivered])


@pytest.mark.req("Q1", "B4")
async def test_what_two_brokers_take_at_once_is_pushed_in_the_order_of_the_mesh(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob, carol = brokers.at(brokers.two, await join(alice, "bob")), await join(alice, "carol")
    async with alice.connected() as one, bob.connected() as two, carol.connected() as reader:

        async def send(wire: Wire, who: str) -> None:
            for number in range(50):
                await wire.send(dm(f"{who}-{number}", carol))

        await asyncio.gather(send(one, "alice"), send(two, "bob"))
        found = await reader.deliveries(100)
    assert [delivered.history_id for delivered in found] == list(range(1, 101))


@pytest.mark.req("B3", "Q6")
async def test_a_topic_reaches_its_subscribers_at_every_broker_and_receipts_come_back(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    places = [brokers.one, brokers.two, brokers.one, brokers.two]
    peers = [brokers.at(place, await join(alice, f"p{number}")) for number, place in enumerate(places)]
    async with AsyncExitStack() as stack:
        poster = await stack.enter_async_context(alice.connected())
        wires = [await stack.enter_async_context(peer.connected()) for peer in peers]
        await poster.call("topic.create", name="news")
        for wire in (poster, *wires):
            await wire.call("topic.subscribe", name="news")
        await poster.send(item("post", Kind.TOPIC, "news"))
        for wire in wires:
            await wire.acknowledge(await wire.deliveries(1))
        while True:
            [receipt] = (await poster.expect(frames.Receipt)).items
            if receipt.counts.get("delivered") == len(wires):
                break


@pytest.mark.req("N4")
async def test_a_member_who_comes_at_another_broker_takes_its_deliveries_along(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = await join(alice, "bob")
    elsewhere = brokers.at(brokers.two, bob)
    async with alice.connected() as sender, bob.connected() as old:
        await sender.send(dm("1", bob))
        assert len(await old.deliveries(1)) == 1  # and it is not acknowledged
        async with elsewhere.connected() as new:
            assert (await old.closed())[0] == frames.CLOSE_SESSION_REPLACED
            assert [one.client_message_id for one in await new.deliveries(1)] == ["1"]
            await sender.send(dm("2", bob))
            assert [one.client_message_id for one in await new.deliveries(1)] == ["2"]


@pytest.mark.req("N4")
async def test_two_instances_meet_across_brokers_by_the_policy_of_their_mesh(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = await join(alice, "bob")
    other = Peer(brokers.two, bob.keys, bob.membership, "another-instance")
    async with alice.connected() as owner:
        async with bob.connected() as old, other.connected():
            assert (await old.closed())[0] == frames.CLOSE_REPLACED_BY_NEWER
        await until_present(owner, "alice")
        await owner.call("mesh.set", connections="prefer_oldest")
        async with bob.connected() as old, opened(brokers.two) as newcomer:
            await newcomer.say(other.hello(newcomer.nonce))
            assert (await newcomer.closed())[0] == frames.CLOSE_ALREADY_CONNECTED
            await old.call("ping")
        await until_present(owner, "alice")
        await owner.call("mesh.set", connections="allow_concurrent")
        async with bob.connected() as old:
            async with other.connected() as new:
                await owner.send(dm("1", bob))
                await new.acknowledge(await new.deliveries(1))
                await old.call("ping")
            await owner.send(dm("2", bob))
            assert [one.client_message_id for one in await old.deliveries(1)] == ["2"]


@pytest.mark.req("Q1")
async def test_what_names_a_session_at_another_broker_goes_there_and_after_its_end_to_the_member(
    brokers: Brokers,
) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = await join(alice, "bob")
    async with alice.connected() as sender, bob.connected() as member:
        async with opened(brokers.two) as session:
            session_keys = KeyPair.generate()
            vouched = attest(bob.keys, session_keys)
            await session.say(session_hello(bob, session_keys, session.nonce, vouched))
            await session.expect(frames.HelloAck)
            to_session = item("1", Kind.DM, session_keys.pubkey)
            await sender.send(to_session, dm("2", bob))
            assert [one.client_message_id for one in await session.deliveries(1)] == ["1"]
            assert [one.client_message_id for one in await member.deliveries(1)] == ["2"]
        assert [one.client_message_id for one in await member.deliveries(1)] == ["1"]


@pytest.mark.req("P5")
async def test_a_session_that_is_ended_at_one_broker_is_put_out_of_the_other(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    async with alice.connected() as member, opened(brokers.two) as session:
        keys = KeyPair.generate()
        await session.say(session_hello(alice, keys, session.nonce, attest(alice.keys, keys)))
        await session.expect(frames.HelloAck)
        await member.call("presence.end", session_pubkey=keys.pubkey)
        assert await session.closed() == (1000, "goodbye")


@pytest.mark.req("Q8")
async def test_a_member_revoked_at_one_broker_is_sent_away_from_the_other(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob, carol = [brokers.at(brokers.two, await join(alice, name)) for name in ("bob", "carol")]
    async with alice.connected() as owner, bob.connected() as revoked, carol.connected() as witness:
        await owner.call("member.revoke", member="bob")
        assert await revoked.closed() == (frames.CLOSE_UNAUTHENTICATED, frames.REASON_REVOKED)
        assert (await witness.hear("member_left"))["name"] == "bob"


async def test_who_is_there_is_told_of_all_brokers(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = brokers.at(brokers.two, await join(alice, "bob"))
    async with alice.connected() as here:
        async with bob.connected():
            assert {peer["name"] for peer in (await here.call("peers"))["peers"]} == {"alice", "bob"}
        await until_present(here, "alice")


@pytest.mark.req("B1")
async def test_a_budget_set_at_one_broker_holds_at_the_other(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = brokers.at(brokers.two, await join(alice, "bob"))
    async with alice.connected() as owner, bob.connected() as sender:
        await sender.send(dm("1", alice))
        await owner.call("mesh.set", sends_per_window=3)
        async with asyncio.timeout(BOUND_S):
            number = 1
            while (await sender.send(dm(f"m{number}", alice)))[0].status == 201:
                number += 1
                await asyncio.sleep(0.02)
        assert number < 6_000


@pytest.mark.req("Q1")
async def test_a_broker_that_lost_its_ear_hears_of_everything_when_it_has_it_again(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = brokers.at(brokers.two, await join(alice, "bob"))
    admin = await asyncpg.connect(brokers.dsn)
    async with alice.connected() as here, bob.connected() as there:
        for number in range(5):
            ended = await admin.fetchval(LISTENERS.replace("count(*)", "count(pg_terminate_backend(pid))"))
            assert ended == 2
            await here.send(dm(f"m{number}", bob))
            assert [one.client_message_id for one in await there.deliveries(1)] == [f"m{number}"]
            async with asyncio.timeout(BOUND_S):
                while await admin.fetchval(LISTENERS) < 2:  # noqa: ASYNC110  until both listen again
                    await asyncio.sleep(0.01)
    await admin.close()


async def deafen(brokers: Brokers) -> None:
    """Cut the connections by which brokers hear of each other; they come back in a moment."""
    brokers.have_missed_something = True
    admin = await asyncpg.connect(brokers.dsn)
    assert await admin.fetchval(LISTENERS.replace("count(*)", "count(pg_terminate_backend(pid))")) == 2
    await admin.close()


@pytest.mark.req("Q8")
async def test_a_revocation_that_the_other_broker_did_not_hear_ends_the_connection_there_all_the_same(
    brokers: Brokers,
) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = brokers.at(brokers.two, await join(alice, "bob"))
    async with alice.connected() as owner, bob.connected() as revoked:
        await revoked.call("deliver.pause", paused=True)
        await owner.send(dm("secret", bob))
        await deafen(brokers)
        await owner.call("member.revoke", member="bob")
        await revoked.call("deliver.pause", paused=False)
        assert (await revoked.closed())[0] in (1012, frames.CLOSE_UNAUTHENTICATED)
        assert not [one for one in revoked._passed if isinstance(one, frames.Deliver)]


@pytest.mark.req("B1")
async def test_a_budget_that_the_other_broker_did_not_hear_of_holds_there_all_the_same(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = brokers.at(brokers.two, await join(alice, "bob"))
    async with alice.connected() as owner, bob.connected() as sender:
        await owner.call("mesh.set", sends_per_window=1000)
        await deafen(brokers)
        await owner.call("mesh.set", sends_per_window=2)
        async with asyncio.timeout(BOUND_S):
            number = 1
            while (await sender.send(dm(f"m{number}", alice)))[0].status == 201:
                number += 1
                await asyncio.sleep(0.02)
        assert number < 1000
    async with bob.connected() as again:  # whose hello reads it
        assert (await again.send(dm("once-more", alice)))[0].status == 429


@pytest.mark.req("Q3")
async def test_workers_at_two_brokers_never_share_a_message(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    bob = brokers.at(brokers.two, await join(alice, "bob"))
    async with alice.connected() as one, bob.connected() as two:
        await one.call("queue.create", name="jobs")
        await one.send(*(item(f"j{number}", Kind.QUEUE, "jobs") for number in range(40)))

        async def work(wire: Wire) -> list[str]:
            done = []
            while (found := await wire.call("queue.work", name="jobs")) is not None:
                done.append(found["client_message_id"])
                await wire.call("queue.ack", name="jobs", id=found["broker_message_id"], token=found["lease_token"])
            return done

        done = await asyncio.gather(work(one), work(two))
    assert sorted(done[0] + done[1]) == sorted(f"j{number}" for number in range(40))
    assert all(done)


@pytest.mark.req("Q3")
async def test_a_lease_taken_at_one_broker_is_acked_at_another(brokers: Brokers) -> None:
    alice = await create_mesh(brokers.one, name="alice")
    async with alice.connected() as here:
        await here.call("queue.create", name="jobs")
        await here.send(item("j", Kind.QUEUE, "jobs"))
        found = await here.call("queue.work", name="jobs")
    async with brokers.at(brokers.two, alice).connected() as there:
        claim = {"name": "jobs", "id": found["broker_message_id"], "token": found["lease_token"]}
        assert (await there.call("queue.ack", **claim))["state"] == "acted"
        with pytest.raises(Refused):
            await there.call("queue.ack", **claim | {"token": found["lease_token"] + 1})


@pytest.mark.req("B4", "B8")
async def test_after_a_restore_history_goes_on_far_ahead_and_the_rows_still_agree(brokers: Brokers) -> None:
    settings = BrokerSettings(store=brokers.dsn)
    alice = await create_mesh(brokers.one, name="alice")
    async with alice.connected() as wire:
        [before] = await wire.send(dm("1", alice))
        assert (await restored(settings))["epoch"] == 1
        [after] = await wire.send(dm("2", alice))
        assert [one.history_id for one in await wire.deliveries(2)] == [before.history_id, after.history_id]
    assert after.history_id == before.history_id + EPOCH_SKIP + 1
    assert (await check(settings))["violations"] == 0
