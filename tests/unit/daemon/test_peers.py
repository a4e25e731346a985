"""Peers as the daemon passes them on, and messages that were meant for a session."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.daemon.fake_broker import FakeBroker

AT, SHOWN = 1_000, "1970-01-01T00:00:01.000Z"
SESSION = {"session_pubkey": "5" * 64, "display_name": "claude", "since": AT, "groups": ["g"]}
BOB = {"name": "bob", "pubkey": "b" * 64, "role": "member", "about": "", "status": "online", "member_id": "M2"}


@pytest.mark.req("P11", "P13")
async def test_peers_come_with_their_sessions_and_readable_instants(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def peers(args: dict[str, Any]) -> dict[str, Any]:
        asked.append(args)
        more = {"reach": "now", "last_read_at": AT, "newer": {"since": AT}}
        return {"peers": [BOB | {"sessions": [SESSION]} | (more if args["all"] else {})]}

    broker = FakeBroker(answers={"peers": peers})
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await daemon.until(lambda health: health["connected"])
        (few,) = (await daemon.get("/v1/peers"))["peers"]
        (all_,) = (await daemon.get("/v1/peers?all=1"))["peers"]
    assert asked == [{"all": False}, {"all": True}]
    assert few == BOB | {"sessions": [SESSION | {"since": SHOWN}]}
    assert (all_["reach"], all_["last_read_at"]) == ("now", SHOWN)
    assert all_["newer"] == {"since": AT}, "what a newer broker says more is passed on as it is"


@pytest.mark.req("P11")
async def test_without_a_broker_members_are_shown_as_unknown_and_without_sessions(tmp_path: Path) -> None:
    members = [{"member_id": "M2", "name": "bob", "pubkey": "b" * 64, "role": "member"}]
    broker = FakeBroker(answers={"directory": lambda _: {"members": members}})
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        await daemon.until(lambda health: health["connected"])
    async with broker.daemon(tmp_path / "demo") as daemon:
        (bob,) = (await daemon.get("/v1/peers"))["peers"]
        assert (bob["status"], bob["sessions"]) == ("unknown", [])


@pytest.mark.req("P8")
async def test_a_message_that_was_meant_for_a_session_says_so(tmp_path: Path) -> None:
    item = {
        "history_id": 1,
        "broker_message_id": "B1",
        "client_message_id": "m1",
        "sender_id": "S",
        "sender_pubkey": "a" * 64,
        "sender_name": "ann",
        "kind": "dm",
        "ref": "5" * 64,
        "body": "hello",
        "accepted_at": 1,
    }
    others = item | {"history_id": 2, "client_message_id": "m2", "broker_message_id": "B2", "body": "hello all"}
    broker = FakeBroker()
    async with broker.serving(), broker.daemon(tmp_path / "demo") as daemon:
        visit = await broker.visit(0)
        await visit.say(type="deliver", items=[item | {"to_session": "5" * 64}, others])
        messages = await daemon.receives(2)
        assert [message["to_session"] for message in messages] == ["5" * 64, None]
        found = (await daemon.get("/v1/inbox/search?q=hello"))["messages"]
        assert [message["to_session"] for message in found] == ["5" * 64, None]
