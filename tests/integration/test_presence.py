"""Presence over the wire: a lease that outlives its sockets, and tokens that take it up again."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claudemesh.broker import ws
from claudemesh.broker.events import ConnectionsMet
from claudemesh.broker.settings import Presence
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.dice import roll
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World
from claudemesh.wire import frames, signing
from tests.integration.broker_client import (
    BOUND_S,
    Peer,
    Refused,
    Wire,
    broker,
    clock,
    create_mesh,
    dm,
    item,
    join,
    opened,
)
from tests.integration.test_broker_hello import attest

LONG = Presence(lease_ttl_ms=600_000)
SHORT = Presence(lease_ttl_ms=1_000, ping_interval_ms=200, stale_pong_ms=600)
DAY_MS = 86_400_000


@asynccontextmanager
async def resuming(peer: Peer, token: str | None) -> AsyncIterator[Wire]:
    async with peer.connected(resume_token=token) as wire:
        yield wire


def hello_of_session(peer: Peer, keys: KeyPair, nonce: str, **changes: Any) -> frames.Hello:  # noqa: ANN401  fields
    """Say hello with a session's key; vouched for, unless it is said otherwise."""
    said = {"attestation": attest(peer.keys, keys), "session_pubkey": keys.pubkey, "signature": ""} | changes
    hello = peer.hello(nonce, **said)
    return msgspec.structs.replace(hello, signature=keys.sign(signing.hello_bytes(nonce, hello)))


@asynccontextmanager
async def session_of(peer: Peer, keys: KeyPair, **changes: Any) -> AsyncIterator[Wire]:  # noqa: ANN401  fields
    async with opened(peer.broker) as wire:
        await wire.say(hello_of_session(peer, keys, wire.nonce, **changes))
        wire.ack = await wire.expect(frames.HelloAck)
        yield wire


async def changes(witness: Wire) -> list[tuple[str, str]]:
    """Return who came and went, from the beginning of the mesh, as the store has it."""
    told = await witness.call("presence", after=0)
    assert [event["seq"] for event in told["events"]] == [*range(1, told["seq"] + 1)]
    return [(event["what"], event["name"]) for event in told["events"]]


async def until(witness: Wire, *expected: tuple[str, str]) -> None:
    async with asyncio.timeout(BOUND_S):
        while (found := await changes(witness))[: len(expected)] != [*expected]:
            assert len(found) <= len(expected)
            await asyncio.sleep(0.01)


JOINED_A, JOINED_B, LEFT_B = ("peer_joined", "alice"), ("peer_joined", "bob"), ("peer_left", "bob")


@asynccontextmanager
async def town(
    folder: Path,
    presence: Presence,
    **settings: Any,  # noqa: ANN401  of the broker
) -> AsyncIterator[tuple[Wire, Peer, Peer]]:
    """Have alice, who watches, and bob, who is not there yet."""
    async with broker(folder, presence=presence, **settings) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with alice.connected() as witness:
            yield witness, alice, bob


# --- coming and going --------------------------------------------------------------------------------


@pytest.mark.req("P2", "P5")
async def test_whoever_comes_is_announced_once_and_whoever_goes_when_the_lease_is_over(tmp_path: Path) -> None:
    async with town(tmp_path, SHORT) as (witness, _, bob):
        async with bob.connected() as wire:
            told = await witness.hear("peer_joined")
            while told["name"] != "bob":
                told = await witness.hear("peer_joined")
            assert (told["pubkey"], told["session_pubkey"], told["seq"]) == (bob.keys.pubkey, None, 2)
            assert wire.ack.lease_ttl_ms == SHORT.lease_ttl_ms
        gone = await witness.hear("peer_left")
        assert gone == told | {"seq": 3, "at": gone["at"]}
        async with bob.connected():
            await until(witness, JOINED_A, JOINED_B, LEFT_B, JOINED_B)


@pytest.mark.req("P2", "P3", "N4")
async def test_a_second_hello_of_the_same_instance_swaps_the_socket_and_nobody_notices(tmp_path: Path) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob), bob.connected() as old, bob.connected() as new:
        assert await old.closed() == (1000, "session_replaced")
        assert (new.ack.presence_id, new.ack.resumed) == (old.ack.presence_id, False)
        await new.call("ping")
        assert await changes(witness) == [JOINED_A, JOINED_B]


@pytest.mark.req("P3", "P4", "P8")
async def test_a_blip_is_invisible_and_what_was_sent_meanwhile_arrives_once_in_order(tmp_path: Path) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob):
        async with bob.connected() as first:
            pass
        for number, priority in enumerate(["now", "next", "low"]):
            [outcome] = await witness.send(dm(f"{number}", bob, priority=priority))
            assert outcome.status == 201
        [peer] = [one for one in (await witness.call("peers"))["peers"] if one["name"] == "bob"]
        assert peer["status"] == "online"
        async with resuming(bob, first.ack.resume_token) as again:
            assert (again.ack.presence_id, again.ack.resumed) == (first.ack.presence_id, True)
            assert again.ack.terms == first.ack.terms
            assert again.ack.resume_token not in (None, first.ack.resume_token)
            got = await again.deliveries(3)
            assert [one.client_message_id for one in got] == ["0", "1", "2"]
            await again.acknowledge(got)
            await again.call("ping")
        assert await changes(witness) == [JOINED_A, JOINED_B]


@pytest.mark.req("P1", "P7")
async def test_who_falls_silent_is_cut_and_leaves_a_leases_time_after_the_last_sign(tmp_path: Path) -> None:
    async with town(tmp_path, SHORT) as (witness, _, bob), bob.connected() as wire:
        wire.socket.transport.pause_reading()  # it hears no ping, and answers none
        began = clock.monotonic_ms()
        await until(witness, JOINED_A, JOINED_B, LEFT_B)
        took_ms = clock.monotonic_ms() - began
        assert took_ms >= SHORT.lease_ttl_ms - SHORT.ping_interval_ms
        assert (await witness.call("peers", all=True))["peers"][1]["reach"] == "waits"


@pytest.mark.req("P1")
async def test_to_be_cut_for_silence_is_no_sign_of_life(tmp_path: Path) -> None:
    patient = Presence(lease_ttl_ms=20_000, ping_interval_ms=300, stale_pong_ms=1_000)
    async with town(tmp_path, patient) as (witness, _, bob), bob.connected() as wire:
        wire.socket.transport.pause_reading()
        async with asyncio.timeout(BOUND_S):
            while (entry := (await witness.call("peers", all=True))["peers"][1])["transport"] == "online":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert entry["lease_left_ms"] <= patient.lease_ttl_ms - patient.stale_pong_ms


@pytest.mark.req("P1")
async def test_who_answers_pings_stays_for_as_long_as_it_likes(tmp_path: Path) -> None:
    async with town(tmp_path, SHORT) as (witness, _, bob), bob.connected() as wire:
        for _ in range(3 * SHORT.lease_ttl_ms // SHORT.ping_interval_ms):
            await wire.expect(frames.LeaseRenewed)
        assert await changes(witness) == [JOINED_A, JOINED_B]


@pytest.mark.req("P2")
async def test_the_token_of_a_long_lived_socket_is_renewed_in_band(tmp_path: Path) -> None:
    async with town(tmp_path, SHORT) as (witness, _, bob):
        async with bob.connected() as wire:
            ends_at = clock.monotonic_ms() + 3 * SHORT.lease_ttl_ms
            while clock.monotonic_ms() < ends_at:
                renewed = await wire.expect(frames.LeaseRenewed)
                assert renewed.lease_ttl_ms == SHORT.lease_ttl_ms
        async with resuming(bob, renewed.resume_token) as again:
            assert again.ack.resumed
        assert await changes(witness) == [JOINED_A, JOINED_B]


@pytest.mark.req("P5")
async def test_who_says_goodbye_or_is_revoked_is_gone_at_once(tmp_path: Path) -> None:
    async with town(tmp_path, LONG) as (witness, alice, bob):
        async with bob.connected() as wire:
            assert await wire.call("presence.end") == {"left": True}
            assert await wire.closed() == (1000, "goodbye")
        assert await changes(witness) == [JOINED_A, JOINED_B, LEFT_B]
        async with bob.connected() as wire:
            await witness.call("member.revoke", member="bob")
            assert await wire.closed() == (4401, "revoked")
        assert await changes(witness) == [JOINED_A, JOINED_B, LEFT_B, JOINED_B, LEFT_B]
        assert alice.keys.pubkey


@pytest.mark.req("P5")
async def test_whoever_goes_at_once_is_told_at_once(tmp_path: Path) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob), bob.connected() as wire:
        await wire.call("presence.end")
        assert (await witness.hear("peer_left"))["name"] == "bob"


# --- sessions ------------------------------------------------------------------------------------------


@pytest.mark.req("P10", "P11")
async def test_sessions_of_a_member_are_shown_as_such_and_what_is_for_them_goes_to_its_daemon(
    tmp_path: Path,
) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob), bob.connected() as daemon:
        one, two = KeyPair.generate(), KeyPair.generate()
        info = frames.SessionInfo(display_name="builder", role="dev", groups=["ci"], mcp_servers=["files"])
        async with (
            session_of(bob, one, presence_only=True, session=info, instance_id="s1") as first,
            session_of(bob, two, presence_only=True, instance_id="s2"),
        ):
            [peer] = [found for found in (await witness.call("peers"))["peers"] if found["name"] == "bob"]
            shown = {session["session_pubkey"]: session.get("display_name") for session in peer["sessions"]}
            assert shown == {one.pubkey: "builder", two.pubkey: None}
            assert peer["sessions"][0]["mcp_servers"] == ["files"]
            await witness.send(item("1", Kind.DM, one.pubkey))
            [got] = await daemon.deliveries(1)
            assert (got.client_message_id, got.to_session) == ("1", one.pubkey)
            with pytest.raises(Refused):
                await first.call("presence.end", session_pubkey=two.pubkey)
            await first.say(frames.Send(1, [dm("x", bob)]))
            assert await first.closed() == (4400, "bad_frame")
        told = await changes(witness)
        assert told == [JOINED_A, JOINED_B, JOINED_B, JOINED_B]


@pytest.mark.req("P5", "P8")
async def test_a_session_that_was_ended_is_put_out_and_gets_nothing_more(tmp_path: Path) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob), bob.connected() as member:
        keys = KeyPair.generate()
        async with session_of(bob, keys) as session:
            await member.call("presence.end", session_pubkey=keys.pubkey)
            assert await session.closed() == (1000, "goodbye")
            await witness.send(item("1", Kind.DM, keys.pubkey))
            assert [one.client_message_id for one in await member.deliveries(1)] == ["1"]


@pytest.mark.req("P8", "P10")
async def test_what_a_session_did_not_take_is_its_members_when_it_only_shows_itself_from_then_on(
    tmp_path: Path,
) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob), bob.connected() as member:
        keys = KeyPair.generate()
        async with session_of(bob, keys) as session:
            await witness.send(item("1", Kind.DM, keys.pubkey))
            assert len(await session.deliveries(1)) == 1  # and it is not acknowledged
            await witness.send(dm("2", bob))
            assert [one.client_message_id for one in await member.deliveries(1)] == ["2"]
            async with session_of(bob, keys, presence_only=True):
                assert [one.client_message_id for one in await member.deliveries(1)] == ["1"]


@pytest.mark.req("P8")
async def test_what_names_a_session_in_grace_waits_for_it_and_after_its_end_is_its_members(tmp_path: Path) -> None:
    async with town(tmp_path, SHORT) as (witness, _, bob), bob.connected() as member:
        keys = KeyPair.generate()
        async with session_of(bob, keys) as session:
            pass
        await witness.send(item("1", Kind.DM, keys.pubkey))
        async with session_of(bob, keys, resume_token=session.ack.resume_token) as session:
            assert [one.client_message_id for one in await session.deliveries(1)] == ["1"]
        await witness.send(dm("2", bob), item("3", Kind.DM, keys.pubkey))
        got = [one.client_message_id for one in await member.deliveries(3)]
        assert got == ["2", "1", "3"], "its own at once, the session's when that was gone for good"


# --- restarts and clocks -------------------------------------------------------------------------------


@pytest.mark.req("P9")
async def test_a_restarted_broker_keeps_the_leases_and_announces_who_does_not_come_back_once(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path, presence=SHORT) as running:
        alice = await create_mesh(running, name="alice")
        bob, carol = await join(alice, "bob"), await join(alice, "carol")
        async with alice.connected(), bob.connected() as before, carol.connected():
            running.stop.set()
            await before.closed()
    async with broker(tmp_path, presence=SHORT) as running:
        alice.broker = bob.broker = running
        async with alice.connected() as witness, resuming(bob, before.ack.resume_token) as again:
            assert again.ack.presence_id == before.ack.presence_id
            joined = [JOINED_A, JOINED_B, ("peer_joined", "carol")]
            assert sorted((await changes(witness))[:3]) == sorted(joined)
            async with asyncio.timeout(BOUND_S):
                while len(told := await changes(witness)) < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert told[3:] == [("peer_left", "carol")]


@pytest.mark.req("P9")
async def test_a_broker_that_was_killed_leaves_its_leases_to_the_next(tmp_path: Path) -> None:
    async with broker(tmp_path / "first", presence=SHORT) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        async with bob.connected():  # a copy of its files is what a crash would leave
            await asyncio.to_thread(shutil.copytree, tmp_path / "first", tmp_path / "killed")
    async with broker(tmp_path / "killed", presence=SHORT) as running:
        alice.broker = running
        async with alice.connected() as witness:
            assert await changes(witness) == [JOINED_B, JOINED_A]
            await until(witness, JOINED_B, JOINED_A, LEFT_B)


class JumpingClock(SystemClock):
    """A wall clock that somebody sets while the process runs."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


@pytest.mark.req("P6", "F6")
@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000, DAY_MS, -DAY_MS])
async def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path, jump_ms: int) -> None:
    jumping = JumpingClock()
    world = World(jumping, UlidSource(jumping), roll)
    async with town(tmp_path, LONG, surroundings=world) as (witness, _, bob):
        keys = KeyPair.generate()
        async with bob.connected() as wire, session_of(bob, keys) as session:
            jumping.ahead_ms = jump_ms
            await wire.call("ping")
        async with (
            resuming(bob, wire.ack.resume_token) as again,
            session_of(bob, keys, resume_token=session.ack.resume_token) as other,
        ):
            assert (again.ack.resumed, other.ack.resumed) == (True, True)
        async with session_of(bob, keys), bob.connected():
            assert await changes(witness) == [JOINED_A, JOINED_B, JOINED_B]


# --- two instances of a key ------------------------------------------------------------------------------


@pytest.mark.req("N4")
@pytest.mark.parametrize("is_away", [False, True])
async def test_another_instance_meets_the_policy_of_its_mesh_also_when_the_first_is_in_grace(
    tmp_path: Path,
    is_away: bool,  # noqa: FBT001  a parameter
) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob):
        met: list[str] = []
        bob.broker.world.observer.subscribe(ConnectionsMet, lambda event: met.append(event.outcome))
        other = Peer(bob.broker, bob.keys, bob.membership)
        await witness.call("mesh.set", connections="prefer_oldest")
        async with bob.connected() as first:
            if is_away:
                await first.socket.close()
            async with opened(bob.broker) as wire:
                await wire.say(other.hello(wire.nonce))
                assert await wire.closed() == (4004, "member_already_connected")
            assert met == ["refused"]
            await witness.call("mesh.set", connections="allow_concurrent")
            async with other.connected() as second:
                assert second.ack.presence_id != first.ack.presence_id
                assert met[-1] == "shared"
                await second.call("presence.end")  # of its own, and not of the other one
            await witness.call("mesh.set", connections="prefer_newest")
            async with bob.connected(instance_id="third"):
                if not is_away:
                    assert await first.closed() == (4003, "replaced_by_newer_connection")
                assert met[-1] == "superseded"
                assert await changes(witness) == [JOINED_A, JOINED_B]


# --- will it be seen -------------------------------------------------------------------------------------


@pytest.mark.req("P11", "P13")
async def test_a_peer_entry_says_whether_what_is_sent_now_would_be_seen(tmp_path: Path) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob):

        async def entry() -> dict[str, Any]:
            return (await witness.call("peers", all=True))["peers"][1]

        async def until_reach(reach: str) -> dict[str, Any]:
            async with asyncio.timeout(BOUND_S):
                while (found := await entry())["reach"] != reach:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                return found

        assert [one["name"] for one in (await witness.call("peers"))["peers"]] == ["alice"]
        found = await until_reach("waits")
        assert (found["status"], found["transport"], found["lease_left_ms"]) == ("offline", "away", None)
        async with bob.connected() as wire:
            found = await until_reach("now")
            assert (found["status"], found["transport"], found["unread"]) == ("online", "online", 0)
            await witness.send(dm("1", bob), dm("2", bob))
            got = await wire.deliveries(2)
            assert (await entry())["waiting"] == 2
            await wire.acknowledge(got)
            async with asyncio.timeout(BOUND_S):
                while (found := await entry())["waiting"]:
                    pass
            assert (found["unread"], found["last_read_at"]) == (2, None)
            await wire.call("read", broker_message_ids=[got[0].broker_message_id])
            found = await entry()
            assert (found["unread"], found["last_read_at"] is not None) == (1, True)
        found = await until_reach("on_return")
        assert (found["status"], found["transport"]) == ("online", "offline")
        assert 0 < found["lease_left_ms"] <= LONG.lease_ttl_ms


@pytest.mark.req("Q4")
async def test_who_does_not_read_what_happens_is_closed_and_asks_for_it_on_its_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ws, "TELLING_MAX", 2)
    async with town(tmp_path, LONG) as (witness, alice, bob):
        keys = [KeyPair.generate() for _ in range(2)]
        async with bob.connected(), session_of(bob, keys[0]), session_of(bob, keys[1]):
            await witness.say(frames.Call(9, "member.revoke", {"member": "bob"}))  # three departures at once
            assert await witness.closed() == (4408, "slow_consumer")
        async with alice.connected() as back:
            assert await changes(back) == [JOINED_A, *[JOINED_B] * 3, *[LEFT_B] * 3]
