"""Who is connected here, who of a key gets the deliveries, and who has to go."""

import pytest

from claudemesh.broker.hub import Hub
from claudemesh.broker.model import ConnectionPolicy, Meeting
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


def test_what_names_a_session_is_given_only_to_that_session_since_whose_it_is_else_the_store_knows() -> None:
    hub = Hub(Observer())
    member, session = Visitor(identity(1), 1), Visitor(identity(1, "session"), 2)
    joined(hub, member, session)
    assert hub.takers(1, None) == [member]
    assert hub.takers(1, "session") == [session]
    assert hub.takers(1, "elsewhere") == []
    hub.leave(session)
    assert hub.takers(1, "session") == []  # it may be back while its lease stands
    hub.leave(member)
    assert hub.takers(1, None) == []


def test_a_connection_that_only_shows_that_a_session_is_there_gets_nothing_and_takes_nobodys_place() -> None:
    hub = Hub(Observer())
    session = Visitor(identity(1, "session"), 1)
    shown = Visitor(identity(1, "session", is_presence_only=True), 2)
    joined(hub, session, shown)
    assert hub.takers(1, "session") == [session]
    assert session.is_active
    assert hub.of(1) in ([session, shown], [shown, session])
    hub.leave(shown)
    assert (hub.takers(1, "session"), hub.of(1)) == ([session], [session])


def test_a_connection_is_unseated_by_its_token_and_no_other_is() -> None:
    hub = Hub(Observer())
    one, other = Visitor(identity(1), 1), Visitor(identity(2), 2)
    joined(hub, one, other)
    hub.unseat(1, Meeting.SUPERSEDED)
    hub.unseat(77, Meeting.SUPERSEDED)
    word = frames.CLOSE_WORDS[frames.CLOSE_REPLACED_BY_NEWER]
    assert (one.calls, other.calls) == ([("close", frames.CLOSE_REPLACED_BY_NEWER, word)], [])
    assert hub.tokens() == {2}


@pytest.mark.req("N4")
@pytest.mark.parametrize("policy", [*ConnectionPolicy])
def test_who_has_to_go_for_whom_is_not_decided_here(policy: ConnectionPolicy) -> None:
    hub = Hub(Observer())
    standing, newer = (Visitor(identity(1, instance=f"{token}", policy=policy), token) for token in (1, 2))
    joined(hub, standing, newer)
    assert (standing.calls, newer.calls, hub.tokens()) == ([], [], {1, 2})
    for stays in (Meeting.SHARED, Meeting.REFUSED):
        hub.unseat(1, stays)
    assert (standing.calls, hub.tokens()) == ([], {1, 2})
    hub.unseat(1, Meeting.REPLACED)
    assert (standing.calls, hub.tokens()) == ([("close", 1000, "session_replaced")], {2})
