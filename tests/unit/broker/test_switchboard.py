"""Who is told what: the connected at once, other brokers by bulletin, and nothing twice."""

from typing import Final

import pytest

from claudemesh.broker.events import BulletinPassed, MembershipEnded
from claudemesh.broker.hub import Hub
from claudemesh.broker.model import (
    Accepted,
    Announced,
    Budgeted,
    Bulletin,
    Expelled,
    Fresh,
    Hinted,
    Meeting,
    Moved,
    Rewound,
    Unseated,
    Woken,
)
from claudemesh.broker.switchboard import Switchboard
from claudemesh.runtime.observe import Observer
from claudemesh.wire import frames
from tests.contract.broker.backends import dm
from tests.unit.broker.people import Call, Line, Visitor, identity


class Room:
    """A switchboard with two members of one mesh at it, one of them with a session."""

    def __init__(self, *, is_alone: bool = False) -> None:
        self.observer = Observer()
        self.events: list[object] = []
        self.observer.subscribe(object, self.events.append)
        self.line = Line(is_alone=is_alone)
        self.hub = Hub(self.observer)
        self.primed: list[int] = []
        self.board = Switchboard(
            self.hub,
            self.line,
            self.observer,
            lambda _mesh, parcels: self.primed.extend(p.history_id for p in parcels),
        )
        self.ann, self.ben = Visitor(identity(1), 1), Visitor(identity(2), 2)
        self.session = Visitor(identity(1, "session"), 3)
        for visitor in (self.ann, self.ben, self.session):
            self.hub.join(visitor)

    @property
    def calls(self) -> list[list[Call]]:
        return [self.ann.calls, self.ben.calls, self.session.calls]


def fresh(history_id: int, *recipients: int, answered: Moved | None = None, to_session: str | None = None) -> Fresh:
    accepted = Accepted(f"b{history_id}", history_id, recipients, answered, to_session)
    return Fresh(identity(2).member, dm(f"c{history_id}", "ann"), accepted, 0)


WAKE: Final = ("wake",)


@pytest.mark.req("B6")
def test_what_somebody_here_will_ask_for_is_handed_to_the_store_as_it_will_be_read() -> None:
    room = Room()
    room.board.committed([fresh(1, 1), fresh(2, 9), fresh(3, 2)])
    assert room.primed == [1, 3]  # member 9 is not here


@pytest.mark.req("B6")
def test_alone_what_was_committed_is_offered_to_whoever_it_is_for() -> None:
    room = Room(is_alone=True)
    room.board.committed([fresh(7, 1)])
    room.board.committed([fresh(8, 1, to_session="session")])
    assert room.calls == [[("offer", 7)], [], [("offer", 8)]]
    assert room.line.told == []


@pytest.mark.req("Q1")
def test_beside_other_brokers_nothing_is_offered_since_what_comes_before_it_may_not_be_told_yet() -> None:
    room = Room()
    room.board.committed([fresh(7, 1)])
    assert room.calls == [[WAKE], [], [WAKE]]
    assert room.line.told == [Woken([1])]


def test_of_several_that_were_committed_together_each_recipient_is_woken_once_and_who_was_answered_is_hinted() -> (
    None
):
    room = Room()
    room.board.committed([fresh(7, 1), fresh(8, 1, 2, answered=Moved(2, "c1"))])
    assert room.calls == [[WAKE], [WAKE, ("hint", "c1")], [WAKE]]
    assert room.line.told == [Woken([1, 2]), Hinted(2, ["c1"])]


def test_what_a_queue_gets_wakes_nobody() -> None:
    room = Room()
    room.board.committed([fresh(7)])
    assert (room.calls, room.line.told) == ([[], [], []], [])


@pytest.mark.req("Q8")
def test_who_is_revoked_goes_and_the_others_are_told_here_and_elsewhere() -> None:
    room = Room()
    room.board.revoke(identity(1).member, identity(2))
    data = {"name": "n1", "pubkey": "k1"}
    assert room.ben.calls == [("tell", "member_left", data)]
    assert room.line.told == [Expelled(1), Announced(1, "member_left", data)]
    assert MembershipEnded("m", "u1", "u2") in room.events


@pytest.mark.parametrize(
    ("bulletin", "calls"),
    [
        (Woken([2, 9]), [[], [WAKE], []]),
        (Hinted(2, ["a", "b"]), [[], [("hint", "a", "b")], []]),
        (Rewound([1]), [[("rewind",)], [], [("rewind",)]]),
        (Announced(1, "x", {}), [[("tell", "x", {})]] * 3),
        (Announced(2, "x", {}), [[], [], []]),
        (Expelled(2), [[], [("close", frames.CLOSE_UNAUTHENTICATED, frames.REASON_REVOKED)], []]),
        (Unseated(2, Meeting.REPLACED), [[], [("close", 1000, "session_replaced")], []]),
        (Budgeted(1, 5), [[], [], []]),
    ],
)
@pytest.mark.req("Q1")
def test_what_another_broker_tells_is_passed_on_here_and_not_back(
    bulletin: Bulletin, calls: list[list[Call]]
) -> None:
    room = Room()
    room.board.heard(bulletin)
    assert room.calls == calls
    assert room.line.told == []
    assert BulletinPassed("heard") in room.events
