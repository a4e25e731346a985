"""How a connection begins, and how the next one takes it up: against a broker that a test speaks for."""

import json
from pathlib import Path

import msgspec
import pytest

from claudemesh.daemon.handshake import LinkSettings, choose_now_ms
from claudemesh.daemon.link import Remembered
from claudemesh.kernel.rhythm import LEASE_TTL_MS_MIN
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.keys import KeyPair, verify
from claudemesh.runtime.world import World
from claudemesh.wire.frames import Hello
from claudemesh.wire.signing import hello_bytes
from tests.doubles import ManualClock
from tests.unit.daemon.fake_broker import FakeBroker

ASKS = "feature_negotiation_request"


@pytest.mark.req("P4", "N1")
async def test_a_daemon_that_comes_back_with_a_token_says_one_thing_and_hears_one(tmp_path: Path) -> None:
    broker = FakeBroker()
    keys = KeyPair.generate()
    async with broker.serving(), broker.daemon(tmp_path / "demo", keys=keys) as daemon:
        first = await broker.visit(0)
        await daemon.until(lambda health: health["connected"])
        assert first.types[:2] == ["hello", ASKS]
        assert "resumeToken" not in first.hello
        await first.socket.close()
        second = await broker.visit(1)
        await daemon.until(lambda health: health["connected"])
        assert second.hello["resumeToken"] == "token-1"
        assert ASKS not in second.types
        said = msgspec.convert(second.hello, Hello)
        assert verify(keys.pubkey, hello_bytes(second.nonce, said), said.signature), (
            "the full proof, token included"
        )


@pytest.mark.req("P2", "P4")
async def test_the_newest_token_counts_and_only_once(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        first = await broker.visit(0)
        await daemon.until(lambda health: health["connected"])
        await first.say(type="lease_renewed", leaseTtlMs=90_000, resumeToken="renewed-1")
        await first.say(type="lease_renewed", leaseTtlMs=90_000, resumeToken="renewed-2")
        broker.gives_tokens = False
        await first.socket.close()
        second = await broker.visit(1)
        assert second.hello["resumeToken"] == "renewed-2"
        await daemon.until(lambda health: health["connected"])
        await second.socket.close()
        third = await broker.visit(2)
        assert "resumeToken" not in third.hello
        await broker.until(lambda: ASKS in third.types)


@pytest.mark.req("P6")
async def test_a_token_whose_hello_failed_is_not_shown_again(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        first = await broker.visit(0)
        await daemon.until(lambda health: health["connected"])
        broker.on_hello = lambda visit: (1011, "internal_error") if visit.hello.get("resumeToken") else None
        await first.socket.close()
        assert (await broker.visit(1)).hello["resumeToken"] == "token-1"
        assert "resumeToken" not in (await broker.visit(2)).hello
        await daemon.until(lambda health: health["connected"])


@pytest.mark.req("N2", "P4")
async def test_a_broker_whose_offer_has_changed_is_asked_for_it_again(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        first = await broker.visit(0)
        await daemon.until(lambda health: health["connected"])
        broker.terms = "T2"
        await first.socket.close()
        second = await broker.visit(1)
        await broker.until(lambda: ASKS in second.types)
        assert second.types[:2] == ["hello", ASKS]
        await daemon.until(lambda health: health["connected"])
        await second.socket.close()
        third = await broker.visit(2)
        await daemon.until(lambda health: health["connected"])
        assert ASKS not in third.types


@pytest.mark.req("P6")
async def test_a_token_is_never_written_down(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        first = await broker.visit(0)
        await daemon.until(lambda health: health["connected"])
        await first.say(type="lease_renewed", leaseTtlMs=90_000, resumeToken="renewed-secret")
        await first.socket.close()
        await broker.visit(1)
        await daemon.until(lambda health: health["connected"])
        assert "token-1" not in json.dumps(await daemon.get("/v1/health"))
    written = b"".join(path.read_bytes() for path in (tmp_path / "demo").iterdir() if path.is_file())
    assert b"token-1" not in written
    assert b"renewed-secret" not in written
    assert "secret" not in repr(Remembered("secret"))


@pytest.mark.req("F6", "P10")
@pytest.mark.parametrize(("jump_ms", "expected"), [(3_600_000, "steady"), (-3_600_000, "steady"), (0, "wall")])
def test_a_hello_bears_the_time_that_is_nearer_to_the_brokers(jump_ms: int, expected: str) -> None:
    clock = ManualClock()
    world = World(clock, UlidSource(clock), lambda: 0.5)
    clock.advance(10_000)
    server_time_ms = clock.wall
    clock.wall += jump_ms
    assert choose_now_ms(world, server_time_ms) == {"steady": world.steady_ms(), "wall": clock.wall}[expected]


@pytest.mark.req("F6")
def test_a_clock_that_was_wrong_at_the_start_and_set_right_since_does_not_keep_the_daemon_out() -> None:
    clock = ManualClock()
    world = World(clock, UlidSource(clock), lambda: 0.5)
    clock.wall += 86_400_000
    assert choose_now_ms(world, clock.wall + 5) == clock.wall


def settings(**times: int) -> LinkSettings:
    return LinkSettings(broker_url="", socket_url="", broker_key="", mesh_id="", instance_id="", **times)


@pytest.mark.req("P7", "P12")
def test_a_connection_is_given_up_before_its_lease_is() -> None:
    rhythm = settings().rhythm(lease_ttl_ms=4_000)
    assert (rhythm.stale_pong_ms, rhythm.ping_interval_ms) == (4_000, 2_000)
    assert settings().rhythm(90_000).stale_pong_ms == 75_000
    assert settings(lease_ttl_ms=5_000).rhythm(90_000).stale_pong_ms == 5_000
    assert settings().rhythm(lease_ttl_ms=0).stale_pong_ms == LEASE_TTL_MS_MIN, "nonsense is not gone by"
