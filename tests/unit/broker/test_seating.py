"""Seats are taken before a connection joins, and never outlive it, whatever the store does meanwhile."""

from collections.abc import Collection
from typing import Any

import pytest

from claudemesh.broker.events import ConnectionsMet, KeeperChanged, SeatsLost
from claudemesh.broker.hub import Hub
from claudemesh.broker.model import Announced, Beat, Bulletin, Displaced, Meeting, Rewound, Seat, Unseated
from claudemesh.broker.policy import BROKER_LEASE_MS
from claudemesh.broker.ports import AlreadyConnected
from claudemesh.broker.presence.herald import Herald
from claudemesh.broker.presence.model import Arrival, Because, Departure, Met, PresenceEvent, Seated, What
from claudemesh.broker.seating import CLOSE_RESTART, UNKNOWN_MS, Seating
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.errors import Revoked, StoreUnavailable
from claudemesh.kernel.rhythm import Rhythm
from claudemesh.runtime.observe import Observer
from tests.doubles import ManualClock
from tests.unit.broker.people import Line, Visitor, identity

SEAT = Seat(identity(1).sender, None, 1)
HELLO = Arrival(identity(1))
JOINED = PresenceEvent(
    mesh_id=1,
    seq=1,
    what=What.JOINED,
    at=0,
    member_id=1,
    member_uid="u1",
    name="n1",
    pubkey="k1",
    session_pubkey=None,
    presence_uid="p1",
)


class Chairs:
    """A store of seats that answers as it is told."""

    def __init__(self) -> None:
        self.stand = {1}
        self.beats = [Beat(is_keeper=True)]
        self.displaced: list[Displaced] = []
        self.met: list[Met] = []
        self.events: list[PresenceEvent] = []
        self.bereft: list[int] = []
        self.departures: list[Departure] = []
        self.is_away = False
        self.refuses = False

    async def start(self) -> None: ...

    async def take(self, _arrival: Arrival) -> Seated:
        if self.refuses:
            raise AlreadyConnected("there")
        return Seated(
            seat=SEAT,
            presence_uid="p1",
            lease_token=1,
            displaced=self.displaced,
            met=self.met,
            events=self.events,
            bereft=self.bereft,
        )

    async def leave(self, departures: Collection[Departure]) -> list[int]:
        if self.is_away:
            raise StoreUnavailable
        self.departures += departures
        left = self.stand.intersection(departure.seat for departure in departures)
        self.stand -= left
        return [1 for _ in left]

    async def standing(self) -> set[int]:
        return self.stand

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
        nothing: Any = None  # it is only told what was committed
        herald = Herald(nothing, self.board, Rhythm(), nothing, observer)
        self.seating = Seating(self.store, self.hub, self.board, herald, self.clock, observer)

    def told(self, kind: type[Bulletin]) -> list[Bulletin]:
        return [bulletin for bulletin in self.line.told if isinstance(bulletin, kind)]


@pytest.mark.req("N4")
async def test_who_has_to_go_for_a_newcomer_is_told_at_its_broker_and_goes_at_once_if_it_is_here() -> None:
    place = Place()
    here = Visitor(identity(1, instance="old"), 5)
    place.hub.join(here)
    place.store.displaced = [
        Displaced(7, Meeting.SUPERSEDED),
        Displaced(5, Meeting.REPLACED),
    ]
    place.store.met = [
        Met("elsewhere", Meeting.SUPERSEDED),
        Met("away", Meeting.SHARED),
        Met("old", Meeting.REPLACED),
    ]
    seats: list[Seated] = []
    await place.seating.admit(HELLO, seats.append)
    assert [seated.seat for seated in seats] == [SEAT]
    assert place.line.told == [Unseated(7, Meeting.SUPERSEDED)]
    assert here.calls == [("close", 1000, "session_replaced")]
    met = [event for event in place.events if isinstance(event, ConnectionsMet)]
    assert met == [
        ConnectionsMet("m", "u1", "elsewhere", "instance", "superseded"),
        ConnectionsMet("m", "u1", "away", "instance", "shared"),
        ConnectionsMet("m", "u1", "old", "instance", "replaced"),
    ]


@pytest.mark.req("N4")
async def test_who_comes_second_where_the_oldest_is_preferred_is_told_of_and_does_not_join() -> None:
    place = Place()
    place.store.refuses = True
    joined: list[Seated] = []
    with pytest.raises(AlreadyConnected):
        await place.seating.admit(HELLO, joined.append)
    assert (joined, place.store.departures, place.line.told) == ([], [], [])
    met = [event for event in place.events if isinstance(event, ConnectionsMet)]
    assert met == [ConnectionsMet("m", "u1", "there", "instance", "refused")]


@pytest.mark.req("P2")
async def test_a_join_is_announced_to_those_who_are_there_and_to_who_comes_once_it_has_joined() -> None:
    place = Place()
    there, comes = Visitor(identity(2), 2), Visitor(identity(1), 1)
    place.hub.join(there)
    place.store.events, place.store.bereft = [JOINED], [2]
    await place.seating.admit(HELLO, lambda _seated: place.hub.join(comes))
    [announced] = place.told(Announced)
    assert isinstance(announced, Announced)
    assert (announced.event, announced.data["seq"]) == ("peer_joined", 1)
    told = ("tell", "peer_joined", announced.data)
    assert (there.calls, comes.calls) == ([told, ("rewind",)], [told])
    assert place.told(Rewound) == [Rewound([2])]


@pytest.mark.req("Q1", "P2")
async def test_who_is_refused_keeps_no_seat_and_those_who_stay_look_again() -> None:
    place = Place()
    place.store.events = [JOINED]

    def refuse(_seated: Seated) -> None:
        raise Revoked

    with pytest.raises(Revoked):
        await place.seating.admit(HELLO, refuse)
    assert place.store.stand == set()
    assert place.told(Rewound) == [Rewound([1])]
    assert len(place.told(Announced)) == 1, "its lease began, and others see it in the list of peers"


@pytest.mark.req("Q1", "P3")
async def test_a_seat_that_could_not_be_given_up_goes_when_the_store_is_back_with_its_silence_counted_on() -> None:
    place = Place()
    place.store.is_away = True
    await place.seating.leave(Departure(1, 500, Because.STALE))
    assert (place.store.stand, place.line.told) == ({1}, [])
    place.clock.advance(4_000)
    place.store.is_away = False
    await place.seating.catch_up()
    assert (place.store.stand, place.line.told) == (set(), [Rewound([1])])
    assert place.store.departures == [Departure(1, 4_500, Because.STALE)]
    await place.seating.catch_up()
    assert len(place.store.departures) == 1


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
