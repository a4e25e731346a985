"""Seats are taken before a connection joins, and never outlive it, whatever the store does meanwhile."""

from collections.abc import Collection

import pytest

from claudemesh.broker.events import KeeperChanged, SeatsLost
from claudemesh.broker.hub import Hub
from claudemesh.broker.model import Beat, Displaced, Identity, Meeting, Rewound, Seat, Seated, Unseated
from claudemesh.broker.policy import BROKER_LEASE_MS
from claudemesh.broker.ports import AlreadyConnected
from claudemesh.broker.seating import CLOSE_RESTART, UNKNOWN_MS, Seating
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.runtime.observe import Observer
from tests.doubles import ManualClock
from tests.unit.broker.people import Line, Visitor, identity

SEAT = Seat(identity(1).sender, None, 1)


class Chairs:
    """A store of seats that answers as it is told."""

    def __init__(self) -> None:
        self.stand = {1}
        self.beats = [Beat(is_keeper=True)]
        self.displaced: list[Displaced] = []
        self.is_away = False

    async def take(self, _identity: Identity) -> Seated:
        return Seated(SEAT, self.displaced)

    async def leave(self, tokens: Collection[int]) -> list[int]:
        if self.is_away:
            raise StoreUnavailable
        left = self.stand.intersection(tokens)
        self.stand -= left
        return [1 for _ in left]

    async def standing(self) -> set[int]:
        return self.stand

    async def present(self, _mesh_id: int) -> set[int]:
        return set()

    async def beat(self) -> Beat:
        if self.is_away:
            raise StoreUnavailable
        return self.beats.pop(0)


class Place:
    def __init__(self, *, is_alone: bool = False) -> None:
        self.store = Chairs()
        self.events: list[object] = []
        self.line = Line(is_alone=is_alone)
        observer = Observer()
        observer.subscribe(object, self.events.append)
        self.hub = Hub(observer)
        self.clock = ManualClock()
        self.board = Switchboard(self.hub, self.line, observer)
        self.seating = Seating(self.store, self.hub, self.board, self.clock, observer)


async def test_who_has_to_go_for_a_newcomer_is_told_at_its_broker() -> None:
    place = Place()
    place.store.displaced = [Displaced(7, Meeting.SUPERSEDED)]
    seats: list[Seat] = []
    await place.seating.admit(identity(1), seats.append)
    assert seats == [SEAT]
    assert place.line.told == [Unseated(7, Meeting.SUPERSEDED)]


@pytest.mark.req("Q1")
async def test_who_is_refused_keeps_no_seat_and_those_who_stay_look_again() -> None:
    place = Place()

    def refuse(_seat: Seat) -> None:
        raise AlreadyConnected

    with pytest.raises(AlreadyConnected):
        await place.seating.admit(identity(1), refuse)
    assert place.store.stand == set()
    assert place.line.told == [Rewound([1])]


@pytest.mark.req("Q1")
async def test_a_seat_that_could_not_be_given_up_goes_when_the_store_is_back() -> None:
    place = Place()
    place.store.is_away = True
    await place.seating.leave(SEAT)
    assert (place.store.stand, place.line.told) == ({1}, [])
    place.store.is_away = False
    await place.seating.catch_up()
    assert (place.store.stand, place.line.told) == (set(), [Rewound([1])])


@pytest.mark.req("Q1")
async def test_a_beat_tells_who_keeps_the_store_whose_sessions_are_gone_and_that_all_have_to_begin_anew() -> None:
    place = Place()
    visitor = Visitor(identity(1), 1)
    place.hub.join(visitor)
    place.store.beats = [
        Beat(is_keeper=True),
        Beat(is_keeper=True, bereft=[1, 5]),
        Beat(is_keeper=False, is_forgotten=True),
    ]
    await place.seating.beat()
    assert place.seating.is_keeper
    await place.seating.beat()
    assert (visitor.calls, place.line.told) == ([("rewind",)], [Rewound([1, 5])])
    await place.seating.beat()
    assert not place.seating.is_keeper
    assert visitor.calls[-1] == ("close", CLOSE_RESTART, "seat_lost")
    changes = [event for event in place.events if isinstance(event, KeeperChanged | SeatsLost)]
    assert changes == [KeeperChanged(is_keeper=True), KeeperChanged(is_keeper=False), SeatsLost(1)]


@pytest.mark.req("Q1")
async def test_a_connection_whose_seat_is_gone_is_sent_away_and_no_other_is() -> None:
    place = Place()
    gone, stays = Visitor(identity(1), 1), Visitor(identity(2), 2)
    place.hub.join(gone)
    place.hub.join(stays)
    place.store.stand = {2}
    await place.seating.look_over()
    assert (gone.calls, stays.calls) == ([("close", CLOSE_RESTART, "seat_lost")], [])


@pytest.mark.req("Q1")
async def test_a_seat_that_is_nobodys_for_long_is_given_up_since_its_commit_was_not_answered() -> None:
    place = Place()
    await place.seating.look_over()
    place.clock.advance(UNKNOWN_MS - 1)
    await place.seating.look_over()
    assert place.store.stand == {1}  # somebody may just be sitting down
    place.clock.advance(1)
    await place.seating.look_over()
    assert (place.store.stand, place.line.told) == (set(), [Rewound([1])])


@pytest.mark.req("Q1")
@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_broker_that_is_cut_off_for_as_long_as_its_lease_sends_its_connections_to_the_others(
    is_alone: bool,  # noqa: FBT001  a parameter
) -> None:
    place = Place(is_alone=is_alone)
    visitor = Visitor(identity(1), 1)
    place.hub.join(visitor)
    place.store.is_away = True
    for _ in range(2):
        place.clock.advance(BROKER_LEASE_MS)
        with pytest.raises(StoreUnavailable):
            await place.seating.beat()
    assert visitor.calls == ([] if is_alone else [("close", CLOSE_RESTART, "seat_lost")])
