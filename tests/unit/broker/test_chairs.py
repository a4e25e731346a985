"""The seats of the one broker of a file: who gets what waits, and what names a session."""

import pytest

from claudemesh.broker.model import Seat
from claudemesh.broker.stores.sqlite.chairs import Chairs
from tests.unit.broker.people import identity

ANN = identity(1).sender


class Room:
    def __init__(self, *delivering: tuple[int, str, str]) -> None:
        self.chairs = Chairs(delivering)
        self.member = self.give(None, "own")

    def give(self, session: str | None, uid: str, *, presence_only: bool = False) -> Seat:
        seat = Seat(ANN, session, self.chairs.next_token())
        self.chairs.give(seat, uid, presence_only=presence_only)
        return seat


@pytest.mark.req("Q1")
def test_of_the_seats_of_a_key_the_newest_gets_what_waits_and_the_next_when_it_is_gone() -> None:
    room = Room()
    newer = room.give(None, "other")
    assert [room.chairs.is_held(seat) for seat in (room.member, newer)] == [False, True]
    assert room.chairs.take_away([newer.token, 77]) == [newer]
    assert [room.chairs.is_held(seat) for seat in (room.member, newer)] == [True, False]
    assert room.chairs.take_away([newer.token]) == []
    assert room.chairs.tokens() == {room.member.token}


@pytest.mark.req("P8")
def test_what_names_a_session_waits_for_it_while_its_lease_stands_and_is_its_members_else() -> None:
    room = Room((ANN.member_id, "away", "kept"))
    session = room.give("s", "lease")
    assert room.chairs.gets(session, "s")
    assert not room.chairs.gets(session, None)
    assert not room.chairs.gets(session, "away")
    assert room.chairs.gets(room.member, None)
    assert room.chairs.gets(room.member, "never there")
    room.chairs.take_away([session.token])
    assert not room.chairs.gets(room.member, "s"), "it may be back"
    assert not room.chairs.gets(room.member, "away"), "and so may one that an earlier broker knew"
    for name, uid in (("s", "lease"), ("away", "kept"), ("never there", "x")):
        room.chairs.end(ANN.member_id, name, uid)
        assert room.chairs.gets(room.member, name)


@pytest.mark.req("P8", "N4")
def test_while_one_of_several_leases_of_a_session_stands_what_names_it_is_its_own() -> None:
    room = Room()
    for uid in ("one", "two"):
        room.give("s", uid)
    room.chairs.end(ANN.member_id, "s", "one")
    assert not room.chairs.gets(room.member, "s")
    room.chairs.end(ANN.member_id, "s", "two")
    assert room.chairs.gets(room.member, "s")


@pytest.mark.req("P8")
def test_what_names_a_session_that_only_shows_itself_is_its_members() -> None:
    room = Room()
    shown = room.give("s", "lease", presence_only=True)
    assert room.chairs.gets(room.member, "s")
    assert not room.chairs.is_held(shown)
    assert shown.token in room.chairs.tokens()


@pytest.mark.req("P8")
def test_when_a_session_comes_back_and_only_shows_itself_what_names_it_is_its_members_from_then_on() -> None:
    room = Room()
    room.chairs.take_away([room.give("s", "lease").token])
    room.give("s", "lease", presence_only=True)
    assert room.chairs.gets(room.member, "s"), "else nobody gets it, until a restart reads the row again"


@pytest.mark.req("Q8")
def test_a_member_that_is_put_out_has_no_seat_left() -> None:
    room = Room()
    room.give("s", "lease")
    other = Seat(identity(2).sender, None, room.chairs.next_token())
    room.chairs.give(other, "hers", presence_only=False)
    room.chairs.unseat(ANN.member_id)
    assert room.chairs.tokens() == {other.token}
