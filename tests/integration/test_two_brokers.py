"""Two brokers on one store, over real sockets: whichever one somebody is connected to, it makes no difference.

The store is the oracle, of which each broker has a view of its own. What is between the brokers is lost when a test
says so.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from claudemesh.broker import switchboard, upkeep
from claudemesh.broker.events import SeatsLost
from claudemesh.broker.settings import BrokerSettings
from claudemesh.broker.stores import opening
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World as Surroundings
from claudemesh.wire import frames
from tests.contract.broker.oracle import OracleStores, open_oracle
from tests.doubles import ManualClock
from tests.integration.broker_client import (
    Peer,
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


@dataclass
class Pair:
    """Two running brokers, and the store of each."""

    one: RunningBroker
    other: RunningBroker
    stores: list[OracleStores]

    def cut(self) -> None:
        """Have nothing that either tells reach the other."""
        self.stores[0].world.listeners.clear()


@asynccontextmanager
async def pair(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    views: list[OracleStores] = []
    time = ManualClock()

    async def open_view(_settings: BrokerSettings, _world: Surroundings) -> OracleStores:
        views.append(await open_oracle(folder, time))
        return views[-1]

    monkeypatch.setattr(opening, "open_stores", open_view)
    shared = "postgresql://shared"
    async with broker(folder, store=shared) as one, broker(folder, store=shared) as other:
        yield Pair(one, other, views)


def at(running: RunningBroker, peer: Peer) -> Peer:
    return replace(peer, broker=running)


@asynccontextmanager
async def session_of(peer: Peer, keys: KeyPair) -> AsyncIterator[Wire]:
    """Connect under a session's key that the peer vouches for."""
    async with opened(peer.broker) as wire:
        await wire.say(session_hello(peer, keys, wire.nonce, attest(peer.keys, keys)))
        wire.ack = await wire.expect(frames.HelloAck)
        yield wire


@pytest.mark.req("Q1", "Q6")
async def test_what_is_sent_at_one_broker_arrives_at_the_other_and_its_receipt_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        bob = at(brokers.other, await join(alice, "bob"))
        async with alice.connected() as a, bob.connected() as b:
            for number in range(5):
                await a.send(dm(f"{number}", bob))
                [got] = await b.deliveries(1)
                assert got.client_message_id == f"{number}"
                await b.acknowledge([got])
                hint = await a.expect(frames.Receipt)
                assert (hint.items[0].client_message_id, hint.items[0].state) == (f"{number}", "delivered")


@pytest.mark.req("Q1")
async def test_what_nobody_was_told_of_is_found_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switchboard, "LOOK_AGAIN_S", 0.02)
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        bob = at(brokers.other, await join(alice, "bob"))
        async with alice.connected() as a, bob.connected() as b:
            brokers.cut()
            await a.send(*(dm(f"{number}", bob) for number in range(3)))
            assert [one.client_message_id for one in await b.deliveries(3)] == ["0", "1", "2"]


@pytest.mark.req("Q1")
async def test_after_a_gap_in_what_is_told_everybody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        bob = at(brokers.other, await join(alice, "bob"))
        async with alice.connected() as a, bob.connected() as b:
            world = brokers.stores[0].world
            _, missed = world.listeners[brokers.stores[1].broker]
            brokers.cut()
            await a.send(dm("1", bob))
            missed()
            assert [one.client_message_id for one in await b.deliveries(1)] == ["1"]


@pytest.mark.req("Q1")
@pytest.mark.parametrize("instance", ["same", "another"])
async def test_a_newer_connection_at_another_broker_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instance: str
) -> None:
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        bob = await join(alice, "bob")
        moved = at(brokers.other, bob) if instance == "same" else Peer(brokers.other, bob.keys, bob.membership)
        async with alice.connected() as a, bob.connected() as old, moved.connected() as new:
            code = {"same": frames.CLOSE_SESSION_REPLACED, "another": frames.CLOSE_REPLACED_BY_NEWER}[instance]
            assert await old.closed() == (code, frames.CLOSE_WORDS[code])
            await a.send(dm("1", bob))
            assert [one.client_message_id for one in await new.deliveries(1)] == ["1"]


@pytest.mark.req("Q1")
async def test_who_was_taken_over_from_gets_nothing_more_also_if_it_never_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a, bob.connected() as old:
            brokers.cut()
            async with Peer(brokers.other, bob.keys, bob.membership).connected():
                await a.send(dm("1", bob))  # at the broker of the old one, which is woken by it
            async with Peer(brokers.other, bob.keys, bob.membership).connected() as new:
                assert [one.client_message_id for one in await new.deliveries(1)] == ["1"]
                await old.call("ping")
                assert not any(isinstance(frame, frames.Deliver) for frame in old._passed)


@pytest.mark.req("Q1")
async def test_who_never_hears_that_its_seat_is_gone_is_sent_away_to_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LOOK_OVER_EVERY_S", 0.02)
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        async with alice.connected() as old:
            brokers.cut()
            async with Peer(brokers.other, alice.keys, alice.membership).connected():
                assert await old.closed() == (1012, "seat_lost")


@pytest.mark.req("Q8")
async def test_where_the_oldest_stays_a_second_one_at_another_broker_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        async with alice.connected() as first:
            await first.call("mesh.set", connections="prefer_oldest")
            second = Peer(brokers.other, alice.keys, alice.membership)
            async with opened(brokers.other) as wire:
                await wire.say(second.hello(wire.nonce))
                assert await wire.closed() == (4004, "member_already_connected")
            await first.send(dm("1", alice))
            assert [one.client_message_id for one in await first.deliveries(1)] == ["1"]


@pytest.mark.req("Q1")
async def test_of_two_that_both_stay_the_older_one_gets_the_messages_once_the_newer_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as a:
            await a.call("mesh.set", connections="allow_concurrent")
            async with bob.connected() as older:
                async with Peer(brokers.other, bob.keys, bob.membership).connected() as newer:
                    await a.send(dm("1", bob))
                    assert [one.client_message_id for one in await newer.deliveries(1)] == ["1"]
                assert [one.client_message_id for one in await older.deliveries(1)] == ["1"]


@pytest.mark.req("Q1")
async def test_a_session_at_another_broker_gets_what_names_it_and_leaves_it_to_its_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        bob = await join(alice, "bob")
        keys = KeyPair.generate()
        async with alice.connected() as a, bob.connected() as b:
            async with session_of(at(brokers.other, bob), keys) as session:
                sent = [item("for-it", Kind.DM, keys.pubkey), dm("for-bob", bob)]
                await a.send(*sent)
                assert [one.client_message_id for one in await session.deliveries(1)] == ["for-it"]
                assert [one.client_message_id for one in await b.deliveries(1)] == ["for-bob"]
                await session.call("presence.end")
            assert [one.client_message_id for one in await b.deliveries(1)] == ["for-it"]


@pytest.mark.req("Q8")
async def test_who_is_revoked_is_put_out_everywhere_and_all_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        bob, carol = at(brokers.other, await join(alice, "bob")), at(brokers.other, await join(alice, "carol"))
        async with alice.connected() as a, bob.connected() as b, carol.connected() as c:
            await a.call("member.revoke", member="bob")
            assert await b.closed() == (frames.CLOSE_UNAUTHENTICATED, frames.REASON_REVOKED)
            assert (await c.hear("member_left"))["name"] == "bob"


@pytest.mark.req("B1", "Q8")
async def test_a_new_budget_holds_at_every_broker_and_whoever_is_anywhere_is_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, monkeypatch) as brokers:
        alice = await create_mesh(brokers.one, name="alice")
        bob = at(brokers.other, await join(alice, "bob"))
        async with alice.connected() as a, bob.connected() as b:
            assert sorted(peer["name"] for peer in (await a.call("peers"))["peers"]) == ["alice", "bob"]
            await a.call("mesh.set", sends_per_window=2)
            outcomes = await b.send(*(dm(f"{number}", alice) for number in range(4)))
            assert [outcome.status for outcome in outcomes] == [201, 201, 429, 429]


@pytest.mark.req("Q1")
async def test_a_broker_that_was_taken_for_dead_sends_its_connections_away_to_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "BEAT_EVERY_S", 0.02)
    async with pair(tmp_path, monkeypatch) as brokers:
        lost: list[SeatsLost] = []
        brokers.other.world.observer.subscribe(SeatsLost, lost.append)
        alice = await create_mesh(brokers.one, name="alice")
        bob = at(brokers.other, await join(alice, "bob"))
        async with alice.connected() as a, bob.connected() as b:
            await brokers.stores[1].aclose()  # as another broker does it, when this one's beats did not come
            assert (await b.closed())[0] == 1012
            assert lost == [SeatsLost(1)]
            await a.send(dm("1", bob))
            async with bob.connected() as again:
                assert [one.client_message_id for one in await again.deliveries(1)] == ["1"]
