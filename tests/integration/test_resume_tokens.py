"""Resume tokens over the wire: what takes a lease up again, and all that does not."""

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claudemesh.broker.presence.tokens import PREFIX
from claudemesh.runtime.keys import KeyPair
from claudemesh.wire import frames, signing
from tests.integration.broker_client import Peer, broker, create_mesh, opened
from tests.integration.test_presence import (
    JOINED_A,
    JOINED_B,
    LONG,
    changes,
    hello_of_session,
    resuming,
    session_of,
    town,
)


def payload_of(token: str) -> dict[str, Any]:
    text = token.removeprefix(PREFIX).partition(".")[0]
    return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def signed(keys: KeyPair, payload: dict[str, Any]) -> str:
    def encode(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    text = encode(msgspec.json.encode(payload))
    return f"{PREFIX}{text}.{encode(bytes.fromhex(keys.sign(signing.resume_bytes(text))))}"


BROKERS_KEY = KeyPair.generate()


@pytest.mark.req("P6")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: token[:-2] + ("A" if token[-2] != "A" else "B") + token[-1],
        lambda token: token[:-5],
        lambda token: token + token,
        lambda _: "mesh-resume.v1..",
        lambda _: "x" * 4_000,
        lambda token: signed(KeyPair.generate(), payload_of(token)),
        lambda token: signed(BROKERS_KEY, payload_of(token) | {"exp": payload_of(token)["iat"]}),
        lambda token: signed(BROKERS_KEY, payload_of(token) | {"iat": 9_999_999_999_999, "exp": 9_999_999_999_999}),
        lambda token: signed(BROKERS_KEY, payload_of(token) | {"mid": "another-mesh"}),
        lambda token: signed(BROKERS_KEY, payload_of(token) | {"sub": KeyPair.generate().pubkey}),
        lambda token: signed(BROKERS_KEY, payload_of(token) | {"jti": "nobody.1"}),
    ],
    ids=[
        "forged",
        "truncated",
        "doubled",
        "empty",
        "long",
        "of another key",
        "expired",
        "from the future",
        "of another mesh",
        "of another session",
        "of another lease",
    ],
)
async def test_a_token_that_is_no_good_is_as_none_and_the_hello_has_to_prove_itself_in_full(
    tmp_path: Path, spoil: Callable[[str], str]
) -> None:
    async with town(tmp_path, LONG, resume_token_key=BROKERS_KEY.seed.hex()) as (witness, _, bob):
        keys = KeyPair.generate()
        async with session_of(bob, keys) as session:
            token = spoil(session.ack.resume_token)
        async with opened(bob.broker) as wire:  # without its member's word
            await wire.say(hello_of_session(bob, keys, wire.nonce, attestation=None, resume_token=token))
            assert await wire.closed() == (4401, "bad_attestation")
        async with session_of(bob, keys, resume_token=token) as again:
            assert (again.ack.presence_id, again.ack.resumed) == (session.ack.presence_id, False)
        assert await changes(witness) == [JOINED_A, JOINED_B]


@pytest.mark.req("P6")
async def test_a_hello_with_a_token_of_a_megabyte_is_not_even_read(tmp_path: Path) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob):
        async with opened(bob.broker) as wire:
            await wire.say(bob.hello(wire.nonce, resume_token="x" * (1 << 20)))
            assert (await wire.closed())[0] == 4401
        assert await changes(witness) == [JOINED_A]


@pytest.mark.req("P6")
async def test_a_token_is_good_once_also_for_two_at_the_same_instant(tmp_path: Path) -> None:
    async with town(tmp_path, LONG) as (witness, _, bob):
        keys = KeyPair.generate()
        async with session_of(bob, keys) as session:
            token = session.ack.resume_token

        async def resume() -> bool:
            async with opened(bob.broker) as wire:
                await wire.say(hello_of_session(bob, keys, wire.nonce, attestation=None, resume_token=token))
                frame = await wire.expect(frames.HelloAck | frames.Error)  # type: ignore[arg-type]
                return isinstance(frame, frames.HelloAck)

        for expected in ([False] * 4 + [True], [False] * 5):
            assert sorted(await asyncio.gather(*(resume() for _ in range(5)))) == expected
        assert await changes(witness) == [JOINED_A, JOINED_B]


@pytest.mark.req("P6")
async def test_a_captured_token_opens_nothing_and_the_original_stays(tmp_path: Path) -> None:
    async with town(tmp_path, LONG) as (witness, alice, bob), bob.connected() as original:
        thief = KeyPair.generate()
        for attempt in (
            lambda nonce: alice.hello(nonce, resume_token=original.ack.resume_token, instance_id="thief"),
            lambda nonce: msgspec.structs.replace(
                bob.hello(nonce, resume_token=original.ack.resume_token),
                signature=thief.sign(b"whatever"),
            ),
        ):
            async with opened(bob.broker) as wire:
                await wire.say(attempt(wire.nonce))
                frame = await wire.expect(frames.HelloAck | frames.Error)  # type: ignore[arg-type]
                assert isinstance(frame, frames.Error) or not frame.resumed
        await original.call("ping")
        assert original.socket.close_code is None
        assert JOINED_B in await changes_of(bob)
        assert witness is not None


async def changes_of(peer: Peer) -> list[tuple[str, str]]:
    async with peer.connected() as wire:
        return await changes(wire)


@pytest.mark.req("P6")
async def test_keys_are_kept_over_a_restart_and_rotated_with_an_overlap(tmp_path: Path) -> None:
    kept: dict[str, Any] = {}
    async with broker(tmp_path, presence=LONG) as running:
        alice = await create_mesh(running, name="alice")
        async with alice.connected() as wire:
            kept["token"] = wire.ack.resume_token
    seeds = [KeyPair.generate().seed.hex() for _ in range(2)]
    for resume_token_key, resumed in (
        (None, True),
        (seeds[0], False),
        (f"{seeds[1]},{seeds[0]}", True),
        (seeds[1], True),
        (seeds[0], False),
    ):
        async with broker(tmp_path, presence=LONG, resume_token_key=resume_token_key) as running:
            alice.broker = running
            async with resuming(alice, kept["token"]) as wire:
                assert wire.ack.resumed is resumed
                kept["token"] = wire.ack.resume_token
