"""The list of peers: who is there, and whether what is sent now would be seen."""

import pytest

from claudemesh.broker.model import Backlog
from claudemesh.broker.policy import SESSIONS_SHOWN
from claudemesh.broker.presence.model import Present
from claudemesh.broker.presence.peers import render_peers
from tests.unit.broker.people import identity

ANN, BEN = identity(1).member, identity(2).member
TTL = 90_000


def present(
    member: int = 1,
    session: str | None = None,
    *,
    online: bool = True,
    only: bool = False,
    left_ms: int = TTL,
    **info: str,
) -> Present:
    return Present(
        member_id=member,
        session_pubkey=session,
        presence_uid=f"p-{session}",
        instance_id=f"i-{session}",
        is_online=online,
        is_presence_only=only,
        lease_left_ms=left_ms,
        since=7,
        info=info,
    )


@pytest.mark.req("P11")
def test_there_is_one_entry_for_each_member_with_a_lease_and_its_sessions_are_inside() -> None:
    leases = [present(1), present(1, "s1", display_name="laptop"), present(1, "s2", online=False)]
    assert render_peers([ANN, BEN], leases, None) == [
        {
            "name": "n1",
            "pubkey": "k1",
            "member_id": "u1",
            "role": "member",
            "about": "",
            "status": "online",
            "sessions": [
                {"session_pubkey": "s1", "since": 7, "display_name": "laptop"},
                {"session_pubkey": "s2", "since": 7},
            ],
            "session_count": 2,
        }
    ]
    assert render_peers([ANN, BEN], [], None) == []


def test_of_a_member_with_very_many_sessions_the_newest_are_shown_and_all_are_counted() -> None:
    leases = [present(1, f"s{number}") for number in range(SESSIONS_SHOWN + 5)]
    [entry] = render_peers([ANN], leases, None)
    assert entry["session_count"] == SESSIONS_SHOWN + 5
    assert [one["session_pubkey"] for one in entry["sessions"]] == [one.session_pubkey for one in leases[5:]]


@pytest.mark.req("P3", "P11")
@pytest.mark.parametrize(
    "lease", [present(online=False), present(1, "s", only=True), present(1, "s", online=False)]
)
def test_whoever_has_a_lease_of_any_kind_is_online(lease: Present) -> None:
    [entry] = render_peers([ANN, BEN], [lease], None)
    assert (entry["pubkey"], entry["status"]) == ("k1", "online")


@pytest.mark.req("P11", "P13")
def test_asked_for_everybody_those_who_are_away_are_listed_too_with_what_waits_for_them() -> None:
    backlogs = {1: Backlog(waiting=3, unread=2, last_read_at=5)}
    ann, ben = render_peers([ANN, BEN], [present(1)], backlogs)
    assert (ann["status"], ann["waiting"], ann["unread"], ann["last_read_at"]) == ("online", 3, 2, 5)
    assert (ben["status"], ben["waiting"], ben["unread"], ben["last_read_at"]) == ("offline", 0, 0, None)
    assert (ben["transport"], ben["reach"], ben["lease_left_ms"]) == ("away", "waits", None)


ONLINE, GRACE = present(left_ms=TTL), present(online=False, left_ms=500)


@pytest.mark.req("P13")
@pytest.mark.parametrize(
    ("leases", "transport", "reach", "left_ms"),
    [
        ([ONLINE], "online", "now", TTL),
        ([GRACE], "offline", "on_return", 500),
        ([GRACE, present(online=False, left_ms=900)], "offline", "on_return", 900),
        ([GRACE, ONLINE], "online", "now", TTL),
        ([present(1, "s")], "away", "waits", None),
        ([present(1, "s", only=True), present(1, "t", only=True)], "away", "waits", None),
        ([present(1, "s", only=True), GRACE], "offline", "on_return", 500),
        ([present(1, "s", online=False), ONLINE], "online", "now", TTL),
        ([], "away", "waits", None),
    ],
    ids=[
        "its daemon is connected",
        "its daemon is in grace",
        "two of its instances are",
        "one of two is connected",
        "only a session is there",
        "sessions merely show themselves",
        "a session shows itself and the daemon is in grace",
        "a session is in grace",
        "nobody",
    ],
)
def test_a_message_is_taken_by_the_daemon_now_or_when_it_is_back_or_it_waits(
    leases: list[Present], transport: str, reach: str, left_ms: int | None
) -> None:
    [entry] = render_peers([ANN], leases, {})
    assert (entry["transport"], entry["reach"], entry["lease_left_ms"]) == (transport, reach, left_ms)


@pytest.mark.req("P13")
def test_of_each_session_one_sees_how_it_stands() -> None:
    leases = [
        present(1, "s1", role="reviewer"),
        present(1, "s2", online=False, left_ms=800),
        present(1, "s3", only=True),
    ]
    [entry] = render_peers([ANN], leases, {})
    shown = [(one["session_pubkey"], one["transport"], one["lease_left_ms"]) for one in entry["sessions"]]
    assert shown == [("s1", "online", TTL), ("s2", "offline", 800), ("s3", "online", TTL)]
    assert (entry["sessions"][0]["role"], entry["sessions"][0]["instance_id"]) == ("reviewer", "i-s1")


def test_what_a_session_says_of_itself_does_not_overrule_how_it_stands() -> None:
    boasting = present(1, "s", online=False, left_ms=1, transport="online", lease_left_ms="9", instance_id="x")
    [entry] = render_peers([ANN], [boasting], {})
    [session] = entry["sessions"]
    assert (session["transport"], session["lease_left_ms"], session["instance_id"]) == ("offline", 1, "i-s")
