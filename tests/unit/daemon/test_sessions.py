"""Registered sessions, each with its own connection, against a broker that a test speaks for."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claudemesh.daemon import session as sessions_of_one
from claudemesh.daemon.credentials import attest
from claudemesh.daemon.settings import Config, SessionLimits
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.keys import KeyPair, verify
from claudemesh.wire import frames
from claudemesh.wire.frames import Attestation, Hello
from claudemesh.wire.signing import attestation_bytes, hello_bytes
from tests.unit.daemon.fake_broker import FakeBroker, Visit
from tests.unit.daemon.registering import QUICK, a_session, end, ends_or_is_back, listed, register

HOUR_MS = 3_600_000


def now_ms() -> int:
    return SystemClock().wall_ms()


def as_json(value: object) -> Any:  # noqa: ANN401  JSON
    return msgspec.to_builtins(value)


@pytest.mark.req("P10", "N1", "N4")
async def test_a_session_is_shown_over_a_connection_of_its_own(tmp_path: Path) -> None:
    broker, keys = FakeBroker(), KeyPair.generate()
    async with broker.serving(), broker.daemon(tmp_path / "demo", keys=keys) as daemon:
        main = await broker.visit(0)
        said = {"display_name": "claude-1", "cwd": "/srv", "role": "builder", "groups": ["g"], "topics": ["t"]}
        answer = await register(daemon, "s3cret", **said, mcp_servers=["files"])
        visit = await broker.visit(0, is_session=True)
        assert answer.status == 201
        assert answer.body == {
            "session_pubkey": visit.hello["sessionPubkey"],
            "presence_id": "P2",
            "status": "online",
            "unread": 0,
        }
        assert visit.hello["presenceOnly"] is True
        assert visit.hello["session"] == {**said, "mcp_servers": ["files"]}
        instance = f"{main.hello['instanceId']}.{visit.hello['sessionPubkey'][:16]}"
        assert visit.hello["instanceId"] == instance, "of this daemon, and of no other session"
        assert visit.types == ["hello"], "there are no terms to it"
        hello = msgspec.convert(visit.hello, Hello)
        assert hello.attestation is not None
        assert verify(hello.session_pubkey or "", hello_bytes(visit.nonce, hello), hello.signature)
        assert verify(keys.pubkey, attestation_bytes(hello.attestation), hello.attestation.signature)
        (shown,) = await listed(daemon)
        assert (shown["pubkey"], shown["pid"]) == (hello.session_pubkey, os.getpid())
        assert (shown["display_name"], shown["status"]) == ("claude-1", "online")
        assert "s3cret" not in json.dumps(shown)
    written = b"".join(path.read_bytes() for path in (tmp_path / "demo").iterdir() if path.is_file())
    assert b"s3cret" not in written, "a token reaches no file and no log"


@pytest.mark.req("P10")
async def test_a_session_brings_its_own_key_and_its_own_attestation(tmp_path: Path) -> None:
    broker, member, keys = FakeBroker(), KeyPair.generate(), KeyPair.generate()
    vouched = attest(member, keys.pubkey, now_ms() + HOUR_MS)
    pair = {"pubkey": keys.pubkey, "seed": keys.seed.hex()}
    async with broker.serving(), broker.daemon(tmp_path / "demo", keys=member) as daemon:
        answer = await register(daemon, session_keypair=pair, parent_attestation=as_json(vouched))
        visit = await broker.visit(0, is_session=True)
        assert answer.body["session_pubkey"] == keys.pubkey
        assert msgspec.convert(visit.hello["attestation"], Attestation) == vouched
    written = b"".join(path.read_bytes() for path in (tmp_path / "demo").iterdir() if path.is_file())
    assert keys.seed not in written
    assert keys.seed.hex().encode() not in written


@pytest.mark.req("P10")
async def test_what_the_broker_would_refuse_is_refused_at_once(tmp_path: Path) -> None:
    broker, member, keys, other = FakeBroker(), KeyPair.generate(), KeyPair.generate(), KeyPair.generate()
    now = now_ms()
    pair = {"pubkey": keys.pubkey, "seed": keys.seed.hex()}
    good = attest(member, keys.pubkey, now + HOUR_MS)
    bad: list[dict[str, Any]] = [
        {"pid": 2**22 + 1},
        {"token": ""},
        {"token": "x" * 129},
        {"token": "a b"},
        {"token": "line\n"},
        {"token": "ü"},
        {"session_keypair": {"pubkey": other.pubkey, "seed": keys.seed.hex()}},
        {"session_keypair": {"pubkey": member.pubkey, "seed": member.seed.hex()}},
        {"session_keypair": pair, "parent_attestation": as_json(attest(other, keys.pubkey, now + HOUR_MS))},
        {"session_keypair": pair, "parent_attestation": as_json(attest(member, other.pubkey, now + HOUR_MS))},
        {"session_keypair": pair, "parent_attestation": as_json(attest(member, keys.pubkey, now - 1))},
        {"session_keypair": pair, "parent_attestation": as_json(attest(member, keys.pubkey, now + 26 * HOUR_MS))},
        {"session_keypair": pair, "parent_attestation": as_json(good) | {"signature": "0" * 128}},
        {"session_keypair": pair, "parent_attestation": as_json(good) | {"expires_at": now + 2 * HOUR_MS}},
        {"parent_attestation": as_json(good)},
        {"display_name": "x" * 129},
        {"topics": ["\u0001" * 128] * 32},
    ]
    async with broker.serving(), broker.daemon(tmp_path / "demo", keys=member) as daemon:
        for said in bad:
            answer = await register(daemon, **{"token": "t1", **said})
            assert answer.status == 400, said
            assert keys.seed.hex() not in json.dumps(answer.body)
        assert await listed(daemon) == []


@pytest.mark.req("P10")
async def test_a_registration_that_is_said_again_is_the_same_session(tmp_path: Path) -> None:
    broker, keys, other = FakeBroker(), KeyPair.generate(), KeyPair.generate()
    pair = {"pubkey": keys.pubkey, "seed": keys.seed.hex()}
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        first = await register(daemon, session_keypair=pair, display_name="one")
        again = await register(daemon, display_name="one")
        assert (first.status, again.status) == (201, 200)
        assert again.body == first.body
        refused = await register(daemon, session_keypair={"pubkey": other.pubkey, "seed": other.seed.hex()})
        assert refused.status == 409
        stolen = await register(daemon, "t2", session_keypair=pair)
        assert stolen.status == 409
        assert len([one for one in broker.visits if one.hello.get("presenceOnly")]) == 1


@pytest.mark.req("P10")
async def test_what_a_session_says_of_itself_anew_takes_its_connection_over(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        first = await register(daemon, display_name="one")
        await register(daemon, display_name="two")
        before, after = await broker.visit(0, is_session=True), await broker.visit(1, is_session=True)
        assert after.hello["session"] == {"display_name": "two"}
        assert after.hello["instanceId"] == before.hello["instanceId"]
        assert after.hello["sessionPubkey"] == first.body["session_pubkey"]
        assert after.hello["resumeToken"] == "token-2"


@pytest.mark.req("P10", "P4")
async def test_a_session_whose_connection_ends_comes_back_and_resumes(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await daemon.until(lambda health: health["connected"])
        await register(daemon)
        visit = await broker.visit(0, is_session=True)
        await visit.say(type="lease_renewed", leaseTtlMs=90_000, resumeToken="in-band")
        await visit.socket.close(1011)
        again = await broker.visit(1, is_session=True)
        assert again.hello["resumeToken"] == "in-band"
        assert (await daemon.get("/v1/health"))["connected"], "it is not the daemon's own connection"
        await daemon.until(lambda found: found["sessions"][0]["status"] == "online", "/v1/sessions")


TO_STAY_AWAY = [
    (frames.CLOSE_REPLACED_BY_NEWER, "replaced_by_newer_connection", "replaced"),
    (frames.CLOSE_UNAUTHENTICATED, "revoked", "revoked"),
]


@pytest.mark.req("N3", "N4", "P10")
@pytest.mark.parametrize(("code", "reason", "status"), TO_STAY_AWAY)
async def test_a_session_that_is_to_stay_away_does(code: int, reason: str, status: str) -> None:
    broker = FakeBroker()
    async with broker.serving():
        session = a_session(broker)
        living = asyncio.create_task(session.run())
        await (await broker.visit(0, is_session=True)).socket.close(code, reason)
        assert await ends_or_is_back(living, broker, 1)
        assert session.status == status


@pytest.mark.req("N4", "P10")
@pytest.mark.parametrize(("code", "reason", "status"), TO_STAY_AWAY)
async def test_a_session_that_was_to_stay_away_is_back_when_it_is_registered_again(
    tmp_path: Path, code: int, reason: str, status: str
) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        first = await register(daemon)
        await (await broker.visit(0, is_session=True)).socket.close(code, reason)
        await daemon.until(lambda found: found["sessions"][0]["status"] == status, "/v1/sessions")
        again = await register(daemon)
        assert (again.status, again.body["status"]) == (200, "online")
        back = await broker.visit(1, is_session=True)
        assert back.hello["sessionPubkey"] == first.body["session_pubkey"]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how long is waited at the cap, and have it waited a moment."""
    noted: list[int] = []
    usual = sessions_of_one.Backoff.at_the_cap_ms

    def shortened(backoff: sessions_of_one.Backoff) -> int:
        noted.append(usual(backoff))
        return 10

    monkeypatch.setattr(sessions_of_one.Backoff, "at_the_cap_ms", shortened)
    return noted


@pytest.mark.req("N4")
async def test_a_session_whose_place_was_taken_under_its_own_instance_is_back_after_a_while(
    tmp_path: Path, waits: list[int]
) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await register(daemon)
        await (await broker.visit(0, is_session=True)).socket.close(1000, "session_replaced")
        await broker.visit(1, is_session=True)
        assert 30_000 <= waits[0] <= 60_000
        await daemon.until(lambda found: found["sessions"][0]["status"] == "online", "/v1/sessions")


@pytest.mark.req("N4")
async def test_a_session_whose_key_is_taken_asks_again_rarely(tmp_path: Path, waits: list[int]) -> None:
    def refuse(visit: Visit) -> tuple[int, str] | None:
        return (4004, "member_already_connected") if visit.hello.get("presenceOnly") and not waits else None

    broker = FakeBroker(on_hello=refuse)
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await register(daemon)
        await broker.visit(1, is_session=True)
        assert 30_000 <= waits[0] <= 60_000
        await daemon.until(lambda found: found["sessions"][0]["status"] == "online", "/v1/sessions")


@pytest.mark.req("P10")
async def test_an_attestation_is_made_anew_before_it_expires(tmp_path: Path) -> None:
    broker, member, keys = FakeBroker(), KeyPair.generate(), KeyPair.generate()
    vouched = attest(member, keys.pubkey, now_ms() + 1_500)
    pair = {"pubkey": keys.pubkey, "seed": keys.seed.hex()}
    async with broker.serving(), broker.daemon(tmp_path / "demo", QUICK, member) as daemon:
        await register(daemon, session_keypair=pair, parent_attestation=as_json(vouched))
        again = await broker.visit(1, is_session=True)
        assert now_ms() < vouched.expires_at + 500
        renewed = msgspec.convert(again.hello["attestation"], Attestation)
        assert renewed.expires_at > now_ms() + 23 * HOUR_MS
        assert verify(member.pubkey, attestation_bytes(renewed), renewed.signature)


@pytest.mark.req("P10")
async def test_an_attestation_that_the_broker_does_not_take_is_replaced_by_the_daemons(tmp_path: Path) -> None:
    member, keys = KeyPair.generate(), KeyPair.generate()
    vouched = attest(member, keys.pubkey, now_ms() + HOUR_MS)

    def refuse(visit: Visit) -> tuple[int, str] | None:
        said = visit.hello.get("attestation") or {}
        return (4401, "bad_attestation") if said.get("signature") == vouched.signature else None

    broker = FakeBroker(on_hello=refuse)
    pair = {"pubkey": keys.pubkey, "seed": keys.seed.hex()}
    async with broker.serving(), broker.daemon(tmp_path / "demo", keys=member) as daemon:
        await register(daemon, session_keypair=pair, parent_attestation=as_json(vouched))
        await broker.visit(1, is_session=True)
        await daemon.until(lambda found: found["sessions"][0]["status"] == "online", "/v1/sessions")


@pytest.mark.req("P10")
async def test_no_more_sessions_are_taken_than_are_allowed(tmp_path: Path) -> None:
    broker = FakeBroker()
    config = Config(sessions=SessionLimits(max=1))
    async with broker.serving(), broker.daemon(tmp_path / "demo", config) as daemon:
        assert (await register(daemon, "t1")).status == 201
        refused = await register(daemon, "t2")
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
        assert (await register(daemon, "t1")).status == 200
        await end(daemon, "t1")
        assert (await register(daemon, "t2")).status == 201


@pytest.mark.req("N4")
async def test_a_session_has_its_key_and_instance_again_after_a_restart_by_its_token_alone(
    tmp_path: Path,
) -> None:
    broker, keys = FakeBroker(), KeyPair.generate()
    pair = {"pubkey": keys.pubkey, "seed": keys.seed.hex()}
    async with broker.serving():
        for _ in range(2):
            async with broker.daemon(tmp_path / "demo") as daemon:
                await register(daemon, session_keypair=pair)
                await register(daemon, "another")
        hellos = [(await broker.visit(number, is_session=True)).hello for number in range(4)]
        known = [(hello["sessionPubkey"], hello["instanceId"]) for hello in hellos]
        assert known[:2] == known[2:]
        assert len({pubkey for pubkey, _ in known}) == len({instance for _, instance in known}) == 2


@pytest.mark.req("P10")
async def test_a_token_leads_to_one_key_for_each_member(tmp_path: Path) -> None:
    broker = FakeBroker()
    pubkeys = []
    async with broker.serving():
        for place in ("one", "two"):
            async with broker.daemon(tmp_path / place, QUICK, KeyPair.generate()) as daemon:
                pubkeys.append((await register(daemon)).body["session_pubkey"])
                await end(daemon)
                pubkeys.append((await register(daemon)).body["session_pubkey"])
    assert pubkeys[0] == pubkeys[1] != pubkeys[2] == pubkeys[3]


@pytest.mark.req("P10")
async def test_what_is_said_anew_of_a_session_is_answered_when_the_others_see_it(tmp_path: Path) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await register(daemon)
        again = await register(daemon, display_name="another name")
        assert again.body["status"] == "online"
        said = [visit.hello["session"] for visit in broker.visits if visit.hello.get("presenceOnly")]
        assert said[-1] == {"display_name": "another name"}


@pytest.mark.parametrize("info", [{"cwd": "é" * 1_024, "groups": ["ü" * 128] * 16}, {"topics": ["x" * 128] * 32}])
async def test_what_no_broker_would_take_is_refused_at_once(tmp_path: Path, info: dict[str, object]) -> None:
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        refused = await register(daemon, **info)
        assert (refused.status, refused.body["code"]) == (400, "invalid_request")
        assert await listed(daemon) == []
