"""Making and joining a mesh over HTTP, and what operators ask."""

import asyncio
from pathlib import Path

import pytest

from claudemesh.broker.settings import Retention
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.keys import KeyPair
from tests.integration.broker_client import (
    Peer,
    broker,
    clock,
    create_mesh,
    create_request,
    dm,
    join,
    make_invite,
    redeem_request,
    request,
)


@pytest.mark.req("I3")
async def test_a_mesh_is_made_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        keys = KeyPair.generate()
        answers = [
            await request("POST", f"{running.url}/v1/meshes", create_request(keys, "demo", "alice"))
            for _ in range(3)
        ]
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 1
        made = answers[0].json
        assert (made["slug"], made["name"], made["role"]) == ("demo", "alice", "owner")
        health = (await request("GET", f"{running.url}/v1/health")).json
        assert health["broker_key"] == made["broker_key"]


@pytest.mark.req("I3")
async def test_a_mesh_is_not_made_without_proof_of_the_key(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        keys, url = KeyPair.generate(), f"{running.url}/v1/meshes"
        other = create_request(keys, "demo", "alice").signature
        wrong = {
            "signed for another slug": create_request(keys, "other", "alice", signature=other),
            "another's key": create_request(keys, "demo", "alice", member_pubkey=KeyPair.generate().pubkey),
            "no key": create_request(keys, "demo", "alice", member_pubkey="zz", signature=other),
            "an old request": create_request(keys, "demo", "alice", timestamp_ms=clock.wall_ms() - 61_000),
            "a slug that is none": create_request(keys, "Demo!", "alice"),
            "a name that is none": create_request(keys, "demo", " "),
        }
        statuses = {name: (await request("POST", url, asked)).status for name, asked in wrong.items()}
        assert statuses == {
            "signed for another slug": 401,
            "another's key": 401,
            "no key": 401,
            "an old request": 401,
            "a slug that is none": 400,
            "a name that is none": 400,
        }


@pytest.mark.req("I3", "Q8")
async def test_an_invite_lets_its_newcomers_in_and_nobody_else(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running, name="alice")
        bob = await join(alice, "bob")
        stranger = Peer(running, KeyPair.generate(), alice.membership)
        url, keys = f"{running.url}/v1/invites/redeem", KeyPair.generate()

        async def ask(invite: object, name: str = "carol") -> tuple[int, str, str]:
            answer = await request("POST", url, redeem_request(keys, invite, name))  # type: ignore[arg-type]
            return answer.status, answer.json.get("code", ""), answer.json.get("reason", "")

        good = make_invite(alice, uses=1)
        assert await ask(make_invite(alice, expires_at=clock.wall_ms() - 1)) == (403, "invite_refused", "expired")
        assert await ask(make_invite(alice, signature="00" * 64)) == (403, "invite_refused", "bad_signature")
        assert await ask(make_invite(bob)) == (403, "invite_refused", "not_allowed")
        assert await ask(make_invite(stranger)) == (403, "invite_refused", "not_allowed")
        assert await ask(make_invite(alice, mesh_id="nowhere")) == (403, "invite_refused", "unknown_mesh")
        assert await ask(good, "ALICE") == (409, "name_taken", "")
        assert await ask(good) == (200, "", "")
        assert await ask(good) == (200, "", "")  # the same key again
        other = redeem_request(KeyPair.generate(), good, "dave")
        assert (await request("POST", url, other)).json["reason"] == "used_up"
        stolen = redeem_request(keys, make_invite(alice), "eve", member_pubkey=KeyPair.generate().pubkey)
        assert (await request("POST", url, stolen)).status == 401


@pytest.mark.req("I3")
async def test_with_an_admin_token_only_its_holder_makes_meshes(tmp_path: Path) -> None:
    token_file = tmp_path / "admin_token"
    async with broker(tmp_path, admin_token_file=str(token_file)) as running:
        token = token_file.read_text().strip()
        assert token_file.stat().st_mode & 0o777 == 0o600
        asked, url = create_request(KeyPair.generate(), "demo", "alice"), f"{running.url}/v1/meshes"
        codes = [
            (await request("POST", url, asked, headers)).json.get("code")
            for headers in ({}, {"Authorization": "Bearer " + "x" * 43}, {"Authorization": f"Bearer {token}"})
        ]
        assert codes == ["missing_token", "bad_token", None]


@pytest.mark.req("I3")
async def test_beyond_this_machine_a_broker_needs_an_admin_token(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        async with broker(tmp_path, listen="0.0.0.0:0"):
            pass


@pytest.mark.req("B7")
def test_a_retention_that_forgets_ids_before_their_messages_is_refused() -> None:
    with pytest.raises(ValueError, match="accepted twice"):
        Retention(message_days=100, dedupe_days=99)
    assert Retention(message_days=100, dedupe_days=7, mode="permanent").ids_days is None


async def test_a_web_page_cannot_reach_the_broker_through_the_browser(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        asked, url = create_request(KeyPair.generate(), "demo", "alice"), f"{running.url}/v1/meshes"
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            assert (await request("POST", url, asked, headers)).status == 403
        plain = await request("POST", url, asked, {"Content-Type": "text/plain"})
        assert (plain.status, plain.json["code"]) == (415, "json_only")


@pytest.mark.req("D15")
async def test_behind_a_proxy_the_public_name_is_answered_and_no_other(tmp_path: Path) -> None:
    public, token = ["Mesh.example.org"], str(tmp_path / "admin_token")
    with pytest.raises(ConfigError, match="admin token"):
        async with broker(tmp_path, public_hosts=public):
            pass
    async with broker(tmp_path, public_hosts=public, admin_token_file=token) as running:
        for host, status in (
            ("mesh.example.org", 200),
            ("mesh.example.org:443", 403),
            ("other.example.org", 403),
            (running.url.removeprefix("http://"), 200),
        ):
            assert (await request("GET", f"{running.url}/v1/health", None, {"Host": host})).status == status, host
        page = {"Host": "mesh.example.org", "Origin": "https://mesh.example.org"}
        assert (await request("GET", f"{running.url}/v1/health", None, page)).json["code"] == "bad_origin"
        asked = create_request(KeyPair.generate(), "demo", "alice")
        made = await request("POST", f"{running.url}/v1/meshes", asked, {"Host": "mesh.example.org"})
        assert made.json["code"] == "missing_token"


@pytest.mark.req("O1")
async def test_what_happened_is_counted_under_the_names_of_the_contract(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            await wire.send(dm("1", alice), dm("2", alice), dm("1", alice), dm("1", alice, "other"))
            metrics = (await request("GET", f"{running.url}/v1/metrics")).body.decode()
        values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
        assert values['cm_broker_accept_total{outcome="accepted"}'] == "2.0"
        assert values['cm_broker_accept_total{outcome="duplicate"}'] == "1.0"
        assert values["cm_broker_dedupe_fingerprint_mismatch_total"] == "1.0"
        names = {name.partition("{")[0].removeprefix("cm_broker_") for name in values}
        assert names >= {
            "dedupe_orphan_check_total",
            "atomicity_violation_found",
            "dedupe_fingerprint_mismatch_total",
            "dedupe_misconfig_total",
            "rate_limit_rejection_total",
            "rate_limit_consumed_then_b2_rejected_total",
            "accept_total",
            "delivery_depth",
        }


async def test_the_document_describes_what_is_served(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        document = (await request("GET", f"{running.url}/openapi.json")).json
        assert set(document["paths"]) == {
            "/v1/meshes",
            "/v1/invites/redeem",
            "/v1/health",
            "/v1/metrics",
            "/openapi.json",
        }


async def test_names_and_keys_outlive_a_restart(tmp_path: Path) -> None:
    async with broker(tmp_path) as running:
        alice = await create_mesh(running)
        async with alice.connected() as wire:
            await wire.send(dm("1", alice, "kept"))
            async with asyncio.timeout(5):
                await wire.deliveries(1)  # pushed, and never acknowledged
    async with broker(tmp_path) as again:
        back = Peer(again, alice.keys, alice.membership)
        health = (await request("GET", f"{again.url}/v1/health")).json
        assert health["broker_key"] == alice.membership.broker_key
        async with back.connected() as wire:
            assert [one.body for one in await wire.deliveries(1)] == ["kept"]
            [outcome] = await wire.send(dm("1", alice, "kept"))
            assert (outcome.status, outcome.duplicate) == (200, True)
