"""Sessions and peers, on both kinds of mesh: what is asked, and what a program is given."""

import hashlib
import os
from datetime import UTC, datetime

import pytest

from claudemesh import Mesh
from claudemesh.kernel.errors import StateError
from tests.unit.cli.scripted import ScriptedDaemon, refuse, respond

REGISTERED = {"session_pubkey": "5" * 64, "presence_id": "P1", "status": "online", "unread": 2}
TOKEN, SLASHED = "t1", "t/1"
REGISTER = ("POST", "/v1/sessions/register")


def place_of(token: str) -> str:
    return f"/v1/sessions/sha256%3A{hashlib.sha256(token.encode()).hexdigest()}"


@pytest.mark.req("P10", "C2")
def test_a_session_is_there_until_its_block_ends(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on(*REGISTER, respond(201, REGISTERED)).on("DELETE", place_of(SLASHED), respond(200, {}))
    with mesh.register_session(display_name="claude", groups=["g"], token=SLASHED) as session:
        assert (session.session_pubkey, session.presence_id, session.status) == ("5" * 64, "P1", "online")
        assert session.unread == 2
        assert daemon.asked[-1].json == {
            "token": SLASHED,
            "pid": os.getpid(),
            "display_name": "claude",
            "groups": ["g"],
        }
    assert [asked.method for asked in daemon.asked] == ["POST", "DELETE"]


@pytest.mark.req("P10", "C2")
def test_a_registration_whose_answer_was_lost_is_asked_again_under_its_token(
    daemon: ScriptedDaemon, mesh: Mesh
) -> None:
    daemon.on(*REGISTER, None, respond(200, REGISTERED))
    session = mesh.register_session(pid=0)  # which is nobody's, and not ours
    first, second = (asked.json for asked in daemon.asked)
    assert first == second
    assert first["pid"] == 0
    assert len(first["token"]) >= 43
    assert first["token"] not in repr(session)


@pytest.mark.req("P10")
def test_a_session_that_has_ended_already_is_closed_all_the_same(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on(*REGISTER, respond(201, REGISTERED)).on("DELETE", place_of(TOKEN), refuse(404, "not_found"))
    session = mesh.register_session(token=TOKEN)
    session.close()
    session.close()
    assert [asked.method for asked in daemon.asked] == ["POST", "DELETE"]


@pytest.mark.req("P10")
def test_a_token_that_stands_for_another_key_is_told(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    daemon.on(*REGISTER, refuse(409, "state_refused"))
    with pytest.raises(StateError):
        mesh.register_session(token=TOKEN)


@pytest.mark.req("P11", "P13")
def test_a_peer_has_its_sessions_and_says_when_it_would_see_a_message(daemon: ScriptedDaemon, mesh: Mesh) -> None:
    at = "2026-01-31T12:00:00.000Z"
    sessions = [{"session_pubkey": "5" * 64, "display_name": "claude", "since": at}, {"session_pubkey": "6" * 64}]
    told = {"reach": "on_return", "unread": 3, "last_read_at": at, "sessions": sessions}
    daemon.on(
        "GET", "/v1/peers", respond(200, {"peers": [{"name": "bob", "pubkey": "k", "status": "online", **told}]})
    )
    (peer,) = mesh.peers(all=True)
    assert (peer.reach, peer.unread) == ("on_return", 3)
    assert peer.last_read_at == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert [(one.display_name, one.since) for one in peer.sessions] == [("claude", peer.last_read_at), ("", None)]
