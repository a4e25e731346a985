"""Who is connected here, who of a key gets the deliveries, and who has to go."""

import pytest

from claudemesh.broker.hub import Hub
from claudemesh.broker.model import ConnectionPolicy, Meeting
from claudemesh.broker.ports import AlreadyConnected
from claudemesh.kernel.errors import Revoked
from claudemesh.runtime.observe import Observer
from claudemesh.wire import frames
from tests.unit.broker.people import Visitor, identity

SHARED = ConnectionPolicy.ALLOW_CONCURRENT


def joined(hub: Hub, *visitors: Visitor) -> None:
    for visitor in visitors:
        hub.join(visitor)


@pytest.mark.req("Q1")
def test_of_those_who_stay_the_one_with_the_newest_seat_gets_the_deliveries_in_whatever_order_they_come() -> None:
    hub = Hub(Observer())
    newer, older = (Visitor(identity(1, instance=f"{token}", policy=SHARED), token) for token in (2, 1))
    joined(hub, newer, older)
    assert (newer.is_active, older.is_active) == (True, False)
    hub.leave(newer)
    hub.leave(newer)
    assert (newer.is_active, older.is_active) == (False, True)
    hub.leave(older)
    assert (hub.count(), hub.of(1)) == (0, [])


def test_a_member_that_was_revoked_while_it_proved_who_it_is_does_not_get_in() -> None:
    hub = Hub(Observer())
    standing, session = Visitor(identity(1), 1), Visitor(identity(1, "session"), 2)
    joined(hub, standing, session)
    hub.expel(1)
    put_out = [("close", frames.CLOSE_UNAUTHENTICATED, frames.REASON_REVOKED)]
    assert (standing.calls, session.calls) == (put_out, put_out)
    with pytest.raises(Revoked):
        hub.join(Visitor(identity(1), 3))
    assert hub.count() == 0


def test_what_names_a_session_is_its_own_while_it_is_here_and_its_members_else() -> None:
    hub = Hub(Observer())
    member, session = Visitor(identity(1), 1), Visitor(identity(1, "session"), 2)
    joined(hub, member, session)
    assert hub.takers(1, None) == [member]
    assert hub.takers(1, "session") == [session]
    assert hub.takers(1, "elsewhere") == [member]
    hub.leave(session)
    assert hub.takers(1, "session") == [member]
    hub.leave(member)
    assert hub.takers(1, None) == []


def test_a_connection_is_unseated_by_its_token_and_no_other_is() -> None:
    hub = Hub(Observer())
    one, other = Visitor(identity(1), 1), Visitor(identity(2), 2)
    joined(hub, one, other)
    hub.unseat(1, Meeting.SUPERSEDED)
    hub.unseat(77, Meeting.SUPERSEDED)
    word = frames.CLOSE_WORDS[frames.CLOSE_REPLACED_BY_NEWER]
    assert (one.calls, other.calls) == ([("close", frames.CLOSE_REPLACED_BY_NEWER, word)], [])
    assert hub.tokens() == {2}


def test_who_is_refused_changes_nothing() -> None:
    hub = Hub(Observer())
    oldest = Visitor(identity(1, instance="a", policy=ConnectionPolicy.PREFER_OLDEST), 1)
    joined(hub, oldest)
    with pytest.raises(AlreadyConnected):
        hub.join(Visitor(identity(1, instance="b", policy=ConnectionPolicy.PREFER_OLDEST), 2))
    assert oldest.is_active
    assert hub.tokens() == {1}
