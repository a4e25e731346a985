"""Who is it? Every hello that does not prove it is refused with its word, and changes nothing."""

# ruff: noqa: ANN401 - as broker_client

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed

from claudemesh.asgi.events import ServerWarned
from claudemesh.broker.events import MemberDisconnected
from claudemesh.broker.settings import Connections, Presence
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.keys import KeyPair
from claudemesh.wire import frames, signing
from claudemesh.wire.negotiation import CONCURRENT, DEDUPE, MAX_PAYLOAD, OPTIONAL, REQUIRED, judge_offer
from tests.integration.broker_client import (
    BOUND_S,
    Peer,
    Refused,
    Wire,
    broker,
    clock,
    create_mesh,
    dm,
    ids,
    join,
    opened,
)

HOUR_MS = 3_600_000


async def refused(wire: Wire, frame: Any) -> tuple[int, str]:
    """Say this instead of a hello; return how the broker closed, after checking that it said why."""
    await wire.say(frame)
    code, reason = await wire.closed()
    [said] = [one for one in wire._passed if isinstance(one, frames.Error)]
    assert not [one for one in wire._passed if isinstance(one, frames.HelloAck)], "it was let in first"
    assert (said.close_code, said.code) == (code, reason)
    return code, reason


async def refused_hello(peer: Peer, **changes: Any) -> tuple[int, str]:
    async with opened(peer.broker) as wire:
        return await refused(wire, peer.hello(wire.nonce, **changes))


@pytest.mark.req("N3")
async def test_a_caller_that_says_nothing_is_closed(tmp_path: Path) -> None:
    async with broker(tmp_path, connections=Connections(hello_timeout_s=0.05)) as running, opened(running) as wire:
        assert await wire.closed() == (4401, "hello_timeout")


@pytest.mark.req("N3")
async def test_a_hello_that_another_key_signed_is_refused(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        bob = await join(alice, "bob")
        thief = Peer(running, KeyPair.generate(), alice.membership)
        bad = (4401, "bad_signature")
        assert await refused_hello(alice, signature="00" * 64) == bad
        assert await refused_hello(alice, signature="not hex") == bad
        # Signed as it should be, but not by the key of the member that it names.
        assert await refused_hello(thief, member_pubkey=alice.keys.pubkey) == bad
        assert await refused_hello(bob, member_pubkey=alice.keys.pubkey) == bad
        assert await refused_hello(thief) == (4401, "unknown_member")
        assert await refused_hello(alice, mesh_id=ids.ulid()) == (4401, "unknown_member")


@pytest.mark.req("N1", "N3")
async def test_a_hello_is_good_once_and_on_its_own_connection(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with opened(running) as first, opened(running) as second:
            hello = alice.hello(first.nonce)
            assert first.nonce != second.nonce
            assert await refused(second, hello) == (4401, "bad_signature")
            await first.say(hello)
            await first.expect(frames.HelloAck)
        async with opened(running) as third:
            assert await refused(third, hello) == (4401, "bad_signature")


@pytest.mark.req("N3")
async def test_a_signature_for_another_purpose_or_mesh_is_refused(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        other = await create_mesh(running, slug="other")
        async with opened(running) as wire:
            hello = alice.hello(wire.nonce, signature="")
            foreign = signing.hello_bytes(wire.nonce, hello).replace(b"claudemesh-hello", b"claudemesh-invite")
            signed = msgspec.structs.replace(hello, signature=alice.keys.sign(foreign))
            assert await refused(wire, signed) == (4401, "bad_signature")
        async with opened(running) as wire:
            elsewhere = alice.hello(wire.nonce)
            moved = msgspec.structs.replace(elsewhere, mesh_id=other.membership.mesh_id)
            assert await refused(wire, moved) == (4401, "bad_signature")
        assert await refused_hello(alice, protocol=2) == (4401, "unsupported_protocol")


# A key of small order, and a signature that libsodium's strict check refuses: s is not below the group's order.
SMALL_ORDER_KEY = "01" + "00" * 31
GROUP_ORDER = bytes.fromhex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010")


@pytest.mark.req("N3")
async def test_keys_and_signatures_that_are_not_canonical_are_refused(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        bad = (4401, "bad_signature")
        async with opened(running) as wire:
            hello = alice.hello(wire.nonce)
            raw = bytes.fromhex(hello.signature)
            grown = (int.from_bytes(raw[32:], "little") + int.from_bytes(GROUP_ORDER, "little")).to_bytes(
                32, "little"
            )
            malleable = msgspec.structs.replace(hello, signature=(raw[:32] + grown).hex())
            assert await refused(wire, malleable) == bad
        zero = "00" * 64
        assert (
            await refused_hello(alice, member_pubkey=SMALL_ORDER_KEY, signature=SMALL_ORDER_KEY + zero[:64]) == bad
        )
        assert await refused_hello(alice, member_pubkey=alice.keys.pubkey.upper()) == bad
        assert await refused_hello(alice, session_pubkey="\0", signature=zero) == bad


@pytest.mark.req("N3", "P10")
@pytest.mark.parametrize("off_ms", [-61_000, 61_000, -10 * HOUR_MS, 10 * HOUR_MS])
async def test_a_clock_that_is_too_far_off_is_told_the_right_time(tmp_path: Path, off_ms: int) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with opened(running) as wire:
            before = clock.wall_ms()
            await wire.say(alice.hello(wire.nonce, timestamp_ms=before + off_ms))
            said = await wire.expect(frames.Error)
            assert said.code == "clock_skew"
            assert before <= said.data["server_time_ms"] <= clock.wall_ms()
            assert await wire.closed() == (4401, "clock_skew")
        near = 55_000 if off_ms > 0 else -55_000
        async with alice.connected(timestamp_ms=clock.wall_ms() + near):
            pass


@pytest.mark.req("N1", "N3")
async def test_nothing_is_understood_before_the_hello(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        early: list[Any] = [
            frames.Send(1, [dm("1", alice)]),
            frames.Ack([1]),
            frames.Call(1, "directory"),
            frames.FeatureNegotiationRequest([*REQUIRED]),
        ]
        for frame in early:
            async with opened(running) as wire:
                assert await refused(wire, frame) == (4401, "hello_required")
        async with alice.connected() as wire:
            assert (await wire.send(dm("1", alice)))[0].status == 201  # the early one was not taken


BAD_TEXTS = {
    "not json": "hello",
    "no object": "[]",
    "no type": "{}",
    "unknown type": '{"type":"greetings"}',
    "a field is missing": '{"type":"hello"}',
    "other algorithm": '{"type":"hello","meshId":"m","memberPubkey":"k","instanceId":"i","timestampMs":1,'
    '"signature":"s","alg":"none"}',
    "nested deeply": '{"type":"call","n":1,"op":"x","args":{"a":' + "[" * 8_000 + "]" * 8_000 + "}}",
}


@pytest.mark.req("N3")
@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
async def test_what_is_no_frame_ends_the_connection_before_and_after_the_hello(tmp_path: Path, text: str) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with opened(running) as wire:
            await wire.socket.send(text)
            assert await wire.closed() == (4400, "bad_frame")
        async with alice.connected() as wire:
            await wire.socket.send(text)
            assert await wire.closed() == (4400, "bad_frame")


@pytest.mark.req("N3")
async def test_frames_that_are_not_text_or_too_large_are_refused_by_their_code(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            await wire.socket.send(b"\x00\x01")
            assert (await wire.closed())[0] == 1003
        async with alice.connected() as wire:
            with suppress(ConnectionClosed):  # it may end while this is still being sent
                await wire.socket.send('"' + "x" * (5 << 20) + '"')
            assert (await wire.closed())[0] == 1009
        async with alice.connected() as wire:
            await wire.socket.send([b"\xff\xfe"], text=True)
            assert (await wire.closed())[0] == 1007
        async with alice.connected() as wire:
            await wire.say(alice.hello(wire.nonce))
            assert await wire.closed() == (4400, "bad_frame")
        async with alice.connected() as wire:
            await wire.say(frames.Send(1, [dm(f"{n}", alice) for n in range(257)]))
            assert await wire.closed() == (4400, "bad_frame")


# --- sessions ----------------------------------------------------------------------------------------


def attest(member: KeyPair, session: KeyPair, **changes: Any) -> frames.Attestation:
    said = frames.Attestation(
        session_pubkey=session.pubkey,
        parent_member_pubkey=member.pubkey,
        expires_at=clock.wall_ms() + HOUR_MS,
        signature="",
    )
    said = msgspec.structs.replace(said, **changes)
    return msgspec.structs.replace(said, signature=member.sign(signing.attestation_bytes(said)))


def session_hello(peer: Peer, session: KeyPair, nonce: str, attestation: frames.Attestation | None) -> frames.Hello:
    said = peer.hello(nonce, signature="", session_pubkey=session.pubkey, attestation=attestation)
    return msgspec.structs.replace(said, signature=session.sign(signing.hello_bytes(nonce, said)))


@pytest.mark.req("Q8", "P10")
async def test_a_session_governs_nothing_and_is_closed_when_its_member_vouches_for_it_no_longer(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        await join(alice, "bob")
        session = KeyPair.generate()
        async with opened(running) as wire:
            vouched = attest(alice.keys, session, expires_at=clock.wall_ms() + 2_000)
            await wire.say(session_hello(alice, session, wire.nonce, vouched))
            await wire.expect(frames.HelloAck)
            for op, args in (
                ("member.role", {"member": "bob", "role": "owner"}),
                ("member.revoke", {"member": "bob"}),
                ("mesh.set", {"sends_per_window": 1}),
            ):
                with pytest.raises(Refused) as refusal:
                    await wire.call(op, **args)
                assert refusal.value.code == "forbidden"
            assert await wire.closed() == (4401, "attestation_expired")


@pytest.mark.req("P10")
async def test_a_session_speaks_with_its_members_word_and_not_without(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        bob = await join(alice, "bob")
        session = KeyPair.generate()
        async with opened(running) as wire:
            await wire.say(session_hello(alice, session, wire.nonce, attest(alice.keys, session)))
            ack = await wire.expect(frames.HelloAck)
            assert ack.member_id == alice.membership.member_id
        wrong = {
            "none": None,
            "of another member": attest(bob.keys, session),
            "of another session": attest(alice.keys, KeyPair.generate()),
            "expired": attest(alice.keys, session, expires_at=clock.wall_ms() - 1),
            "for too long": attest(alice.keys, session, expires_at=clock.wall_ms() + 25 * HOUR_MS),
        }
        words = {}
        for name, attestation in wrong.items():
            async with opened(running) as wire:
                hello = session_hello(alice, session, wire.nonce, attestation)
                words[name] = (await refused(wire, hello))[1]
        assert words == {
            "none": "bad_attestation",
            "of another member": "bad_attestation",
            "of another session": "bad_attestation",
            "expired": "attestation_expired",
            "for too long": "attestation_expired",
        }
        async with opened(running) as wire:  # attested by the member, but signed by the member too
            hello = alice.hello(wire.nonce, session_pubkey=session.pubkey, attestation=attest(alice.keys, session))
            assert await refused(wire, hello) == (4401, "bad_signature")


# --- negotiation -------------------------------------------------------------------------------------


@pytest.mark.req("N2")
async def test_the_brokers_offer_is_one_that_a_daemon_takes(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            await wire.say(frames.FeatureNegotiationRequest([*REQUIRED], [*OPTIONAL, "unheard_of"]))
            offer = await wire.expect(frames.FeatureNegotiationResponse)
            agreed = judge_offer(offer.supported, offer.missing_required)
            assert (agreed.dedupe.window_days, agreed.policy) == (365, "prefer_newest")
            assert (agreed.inline_bytes, agreed.warnings) == (512 * 1024, ())
            assert set(offer.supported) == {DEDUPE, CONCURRENT, MAX_PAYLOAD}
            [outcome] = await wire.send(dm("big", alice, "\x01" * agreed.inline_bytes))
            assert outcome.status == 201  # a frame of the largest message always fits, however it is escaped
            [refusal] = await wire.send(dm("bigger", alice, "x" * (agreed.inline_bytes + 1)))
            assert (refusal.status, refusal.code) == (413, "payload_too_large")


@pytest.mark.req("N2", "N3")
async def test_a_daemon_that_requires_what_there_is_not_is_told_and_closed(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            await wire.say(frames.FeatureNegotiationRequest([*REQUIRED, "time_travel"]))
            offer = await wire.expect(frames.FeatureNegotiationResponse)
            assert offer.missing_required == ["time_travel"]
            assert await wire.closed() == (4010, "feature_unavailable")


# --- two connections ---------------------------------------------------------------------------------


@pytest.mark.req("N4")
async def test_the_same_instance_takes_its_own_place(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as first, alice.connected() as second:
            assert await first.closed() == (1000, "session_replaced")
            assert (await second.send(dm("1", alice)))[0].status == 201
            assert len(await second.deliveries(1)) == 1


@pytest.mark.req("N4")
async def test_another_instance_takes_over_and_only_it_gets_the_deliveries(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as first:
            async with alice.connected(instance_id="another") as second:
                assert await first.closed() == (4003, "replaced_by_newer_connection")
                await second.send(dm("1", alice))
                assert [one.client_message_id for one in await second.deliveries(1)] == ["1"]
            assert not [one for one in first._passed if isinstance(one, frames.Deliver)]


@pytest.mark.req("N4", "Q1")
@pytest.mark.parametrize("policy", ["prefer_oldest", "allow_concurrent"])
async def test_a_mesh_may_prefer_the_oldest_or_allow_both(tmp_path: Path, policy: str) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as first:
            await first.call("mesh.set", connections=policy)
            if policy == "prefer_oldest":
                async with opened(running) as late:
                    await late.say(alice.hello(late.nonce, instance_id="another"))
                    assert await late.closed() == (4004, "member_already_connected")
                assert (await first.send(dm("1", alice)))[0].status == 201
                assert len(await first.deliveries(1)) == 1
                return
            async with alice.connected(instance_id="another") as second:
                await first.send(dm("1", alice))
                assert len(await second.deliveries(1)) == 1  # the newest
                assert not [one for one in first._passed if isinstance(one, frames.Deliver)]
            # It went without an acknowledgement, so the next newest gets what is open.
            assert [one.client_message_id for one in await first.deliveries(1)] == ["1"]


async def test_a_connection_that_is_gone_is_away_when_its_lease_ends(tmp_path: Path) -> None:
    async with broker(tmp_path, presence=Presence(lease_ttl_ms=500)) as running:
        alice = await create_mesh(running)
        bob = await join(alice, "bob")
        async with alice.connected() as a:
            async with bob.connected():
                online = {peer["name"] for peer in (await a.call("peers"))["peers"]}
                assert online == {"owner", "bob"}
            async with asyncio.timeout(BOUND_S):
                while len((await a.call("peers"))["peers"]) > 1:
                    pass
            everybody = (await a.call("peers", all=True))["peers"]
            assert {peer["name"]: peer["status"] for peer in everybody} == {"owner": "online", "bob": "offline"}
        await a.closed()  # after whatever was still on its way


async def test_a_member_that_goes_is_written_down_as_gone_and_not_as_a_crash(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        seen: asyncio.Queue[object] = asyncio.Queue()
        running.world.observer.subscribe(MemberDisconnected, seen.put_nowait)
        running.world.observer.subscribe(ServerWarned, seen.put_nowait)
        alice = await create_mesh(running)
        async with alice.connected():
            pass
        async with asyncio.timeout(BOUND_S):
            told = await seen.get()
    assert isinstance(told, MemberDisconnected)
    assert told.code == 1000
    assert seen.empty()


async def test_an_address_that_cannot_be_had_is_refused_with_its_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot listen at {listen}"):
            async with broker(tmp_path, listen=listen):
                pass
