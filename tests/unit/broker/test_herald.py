"""Who came and who went is told to everybody who is connected, and whoever missed some of it can ask."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from claudemesh.broker.events import PeerChanged, TaskFailed
from claudemesh.broker.hub import Hub
from claudemesh.broker.model import Announced, Rewound
from claudemesh.broker.presence import herald as heralds
from claudemesh.broker.presence.herald import EVENTS_MAX, EVENTS_PAGE, Herald, render_event
from claudemesh.broker.presence.model import PresenceEvent, Settled, What
from claudemesh.broker.presence.standstill import Standstill
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.errors import StoreUnavailable
from claudemesh.kernel.rhythm import Rhythm
from claudemesh.runtime.observe import Observer
from tests.doubles import ManualClock
from tests.unit.broker.people import Line, Visitor, identity

MESH, OTHER = 1, 2
JOINED, LEFT = What.JOINED, What.LEFT


class Enough(Exception):
    """The time of a test is over."""


def event(
    seq: int,
    what: What | None = None,
    *,
    mesh: int = MESH,
    session: str | None = None,
    display_name: str = "",
) -> PresenceEvent:
    return PresenceEvent(
        mesh_id=mesh,
        seq=seq,
        what=what or (JOINED if seq % 2 else LEFT),
        at=seq * 1_000,
        member_id=9,
        member_uid="u9",
        name="nora",
        pubkey="k9",
        session_pubkey=session,
        presence_uid=f"p{seq}",
        display_name=display_name,
    )


class Chronicle:
    """A store of what happened, that answers as it is told."""

    def __init__(self) -> None:
        self.kept: list[PresenceEvent] = []
        self.ended = [Settled()]
        self.stood_still: list[int] = []
        self.failing: set[str] = set()
        self.fails_after: int | None = None  # pages: then the store does not answer
        self.failure: Exception = StoreUnavailable()
        self.settling: Callable[[], None] = lambda: None  # what happens meanwhile

    def _answer(self, method: str) -> None:
        if method in self.failing:
            raise self.failure

    def stand_still(self, ms: int) -> None:
        self.stood_still.append(ms)

    async def settle(self) -> Settled:
        self.settling()
        self._answer("settle")
        if self.fails_after is not None and not self.ended:
            raise self.failure
        return self.ended.pop(0) if self.ended else Settled()

    async def latest(self, mesh_id: int) -> int:
        self._answer("latest")
        return max((one.seq for one in self.kept if one.mesh_id == mesh_id), default=0)

    async def events(self, mesh_id: int, after_seq: int, limit: int) -> list[PresenceEvent]:
        self._answer("events")
        return [one for one in self.kept if one.mesh_id == mesh_id and one.seq > after_seq][:limit]


class Square:
    """A herald, and two who are connected to its broker; others may be at other brokers."""

    def __init__(self) -> None:
        self.store: Any = Chronicle()
        self.line = Line()
        self.events: list[object] = []
        self.clock = ManualClock()
        observer = Observer()
        observer.subscribe(object, self.events.append)
        hub = Hub(observer)
        self.ann, self.ben = Visitor(identity(1), 1), Visitor(identity(2), 2)
        for visitor in (self.ann, self.ben):
            hub.join(visitor)
        board = Switchboard(hub, self.line, observer)
        self.standstill = Standstill(self.clock, Rhythm().tick_ms, self.store.stand_still, observer)
        self.herald = Herald(self.store, board, Rhythm(), self.standstill, observer)

    def seqs(self, visitor: Visitor) -> list[int]:
        return [call[2]["seq"] for call in visitor.calls if call[0] == "tell"]


# --- telling ---------------------------------------------------------------------------------------


@pytest.mark.req("P2", "P5")
def test_who_comes_and_goes_is_told_once_to_everybody_here_and_elsewhere_in_order() -> None:
    square = Square()
    told = [event(1), event(2, session="s" * 64, display_name="laptop")]
    square.herald.announce(told)
    words = [("peer_joined", render_event(told[0])), ("peer_left", render_event(told[1]))]
    assert square.ann.calls == square.ben.calls == [("tell", *word) for word in words]
    assert square.line.told == [Announced(MESH, *word) for word in words]
    changes = [one for one in square.events if isinstance(one, PeerChanged)]
    assert changes == [PeerChanged("peer_joined", "u9", False), PeerChanged("peer_left", "u9", True)]  # noqa: FBT003


def test_what_is_told_of_a_peer_is_what_the_wire_names() -> None:
    assert render_event(event(3, session="s", display_name="laptop")) == {
        "seq": 3,
        "name": "nora",
        "pubkey": "k9",
        "member_id": "u9",
        "session_pubkey": "s",
        "display_name": "laptop",
        "at": 3_000,
    }
    assert render_event(event(3))["display_name"] == ""


def test_another_mesh_hears_nothing_of_it() -> None:
    square = Square()
    square.herald.announce([event(1, mesh=OTHER)])
    assert (square.ann.calls, square.ben.calls) == ([], [])


@pytest.mark.req("P5")
async def test_what_settling_ended_is_announced_and_whose_sessions_ended_looks_again() -> None:
    square = Square()
    square.store.ended = [Settled([event(1), event(2)], [1, 5])]
    await square.herald.settle()
    assert square.seqs(square.ben) == [1, 2]
    assert square.ann.calls[-1] == ("rewind",)
    assert square.line.told[-1] == Rewound([1, 5])
    await square.herald.settle()
    assert square.seqs(square.ben) == [1, 2]


@pytest.mark.req("P5")
async def test_what_ended_in_one_page_is_told_also_if_the_next_one_fails() -> None:
    square = Square()
    square.store.ended = [Settled([event(1)], [1], is_done=False), Settled([event(2)], is_done=False)]
    square.store.fails_after = 2
    with pytest.raises(StoreUnavailable):
        await square.herald.settle()
    assert square.seqs(square.ben) == [1, 2]
    square.store.fails_after = None
    square.store.ended = [Settled([event(3)], is_done=False), Settled([event(4)])]
    await square.herald.settle()
    assert square.seqs(square.ben) == [1, 2, 3, 4]


async def test_connections_without_a_lease_are_told_goodbye() -> None:
    square = Square()
    square.herald.tell(Settled(seats=[square.ann.seat.token, 77]))
    assert square.ann.calls == [("close", 1000, "goodbye")]
    assert square.ben.calls == []


@pytest.mark.req("P9")
@pytest.mark.parametrize("failure", [StoreUnavailable(), RuntimeError("a mistake of ours")], ids=repr)
async def test_leases_are_settled_at_every_look_and_a_standstill_is_passed_on_once_whatever_the_store_says(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    square = Square()
    square.store.failure = failure
    late: list[tuple[int, set[str]]] = [
        (0, set()),
        (5_000, {"settle"}),
        (3_000, {"settle"}),
        (0, set()),
        (0, set()),
    ]

    async def sleep(seconds: float) -> None:
        if not late:
            raise Enough
        late_ms, square.store.failing = late.pop(0)
        square.clock.advance(round(seconds * 1_000) + late_ms)

    monkeypatch.setattr(heralds, "asyncio", SimpleNamespace(sleep=sleep))
    square.store.ended = [Settled(), Settled([event(1)])]
    with pytest.raises(Enough):
        await square.herald.run()
    assert square.store.stood_still == [5_000, 3_000]
    assert square.seqs(square.ben) == [1]
    assert len([one for one in square.events if isinstance(one, TaskFailed)]) == 2


@pytest.mark.req("P9")
async def test_a_store_that_is_slow_is_no_standstill_and_one_within_its_pages_is() -> None:
    square = Square()
    tick_ms = Rhythm().tick_ms

    def be_slow() -> None:
        for _ in range(10):  # the watchdog goes on looking
            square.clock.advance(tick_ms)
            square.standstill.notice()

    square.store.settling = be_slow
    square.store.ended = [Settled(is_done=False), Settled()]
    await square.herald.settle()
    assert square.store.stood_still == []
    square.store.settling = lambda: square.clock.advance(60_000)
    square.store.ended = [Settled(is_done=False), Settled()]
    await square.herald.settle()
    assert square.store.stood_still == [60_000 - tick_ms], "before the next page is compared with the clock"


# --- what another broker told and we did not hear --------------------------------------------------


@pytest.mark.req("P9")
async def test_what_was_not_heard_is_told_to_those_who_are_here_once_and_to_no_other_broker() -> None:
    square = Square()
    square.herald.announce([event(1)])
    square.line.told.clear()
    square.store.kept = [event(number) for number in range(1, 5)]
    await square.herald.look_over([MESH])
    await square.herald.look_over([MESH])
    assert square.seqs(square.ann) == square.seqs(square.ben) == [1, 2, 3, 4]
    assert square.line.told == []


@pytest.mark.req("P9")
async def test_what_was_heard_is_not_told_again() -> None:
    square = Square()
    square.store.kept = [event(number) for number in range(1, 4)]
    square.herald.note(MESH, 3)
    square.herald.note(MESH, 2)  # heard late
    await square.herald.look_over([MESH])
    assert square.ann.calls == []


async def test_the_first_look_at_a_mesh_tells_nothing_of_what_was_before() -> None:
    square = Square()
    square.store.kept = [event(1), event(2)]
    await square.herald.look_over([MESH, OTHER])
    assert square.ann.calls == []
    square.store.kept.append(event(3))
    await square.herald.look_over([MESH, OTHER])
    assert square.seqs(square.ann) == [3]


@pytest.mark.parametrize("method", ["latest", "events"])
async def test_what_could_not_be_read_is_told_the_next_time(method: str) -> None:
    square = Square()
    square.herald.note(MESH, 1)
    square.store.kept = [event(1), event(2)]
    square.store.failing = {method}
    with pytest.raises(StoreUnavailable):
        await square.herald.look_over([MESH])
    square.store.failing = set()
    await square.herald.look_over([MESH])
    assert square.seqs(square.ann) == [2]


async def test_of_far_too_much_that_was_missed_the_newest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heralds, "EVENTS_MAX", 3)
    square = Square()
    square.herald.note(MESH, 1)
    square.store.kept = [event(number) for number in range(1, 10)]
    await square.herald.look_over([MESH])
    assert square.seqs(square.ann) == [7, 8, 9]


# --- what somebody asks for ------------------------------------------------------------------------


def seqs(answer: dict[str, Any]) -> list[int]:
    return [one["seq"] for one in answer["events"]]


NO_GAP: list[int] = [1, 2, 3, 4, 5]


@pytest.mark.req("P2", "P5")
@pytest.mark.parametrize(
    ("kept", "after", "seq", "missed", "is_complete"),
    [
        ([], None, 0, [], True),
        ([], 0, 0, [], True),
        (NO_GAP, None, 5, [], True),
        (NO_GAP, 5, 5, [], True),
        (NO_GAP, 3, 5, [4, 5], True),
        (NO_GAP, 0, 5, [1, 2, 3, 4, 5], True),
        (NO_GAP, 6, 5, [], False),
        ([3, 4, 5], 1, 5, [3, 4, 5], False),
        ([3, 4, 5], 2, 5, [3, 4, 5], True),
        ([1, 2, 4, 5], 1, 5, [2, 4, 5], False),
    ],
    ids=[
        "an empty mesh",
        "an empty mesh from its beginning",
        "begins now",
        "has seen all",
        "behind",
        "from the beginning",
        "ahead, as after a restored backup",
        "the oldest is forgotten",
        "just what is not forgotten",
        "a gap",
    ],
)
async def test_whoever_says_what_it_has_seen_learns_what_it_missed_and_whether_that_is_all(
    kept: list[int],
    after: int | None,
    seq: int,
    missed: list[int],
    is_complete: bool,  # noqa: FBT001  a column of the table
) -> None:
    square = Square()
    square.store.kept = [event(number) for number in kept] + [event(number, mesh=OTHER) for number in range(9)]
    answer = await square.herald.missed(MESH, after)
    assert (answer["seq"], seqs(answer), answer["is_complete"]) == (seq, missed, is_complete)
    assert square.ann.calls == [], "only who asked is told"


async def test_what_was_missed_has_the_words_of_what_is_told() -> None:
    square = Square()
    square.store.kept = [event(1, display_name="laptop"), event(2)]
    answer = await square.herald.missed(MESH, 0)
    joined, left = square.store.kept
    assert answer["events"] == [
        {"what": "peer_joined", **render_event(joined)},
        {"what": "peer_left", **render_event(left)},
    ]


async def test_when_all_that_was_missed_is_forgotten_one_learns_where_things_stand() -> None:
    square = Square()

    async def latest(_mesh_id: int) -> int:
        return 7

    square.store.latest = latest
    answer = await square.herald.missed(MESH, 3)
    assert answer == {"seq": 7, "events": [], "is_complete": False, "is_last": True}


@pytest.mark.parametrize(("after", "is_complete"), [(0, False), (1, True), (2, True)])
async def test_of_more_than_is_told_at_once_one_learns_the_newest(
    after: int,
    is_complete: bool,  # noqa: FBT001  a column of the table
) -> None:
    square = Square()
    square.store.kept = [event(number) for number in range(1, EVENTS_MAX + 2)]
    told: list[int] = []
    asked, answer = after, {"is_last": False}
    while not answer["is_last"]:
        answer = await square.herald.missed(MESH, asked)
        assert len(answer["events"]) <= EVENTS_PAGE
        assert answer["is_complete"] == (is_complete or asked != after), "that something is forgotten is said once"
        asked, told = answer["seq"], told + seqs(answer)
    assert told == list(range(max(2, after + 1), EVENTS_MAX + 2))


async def test_what_comes_between_the_two_looks_is_told_too_or_left_for_the_next_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heralds, "EVENTS_PAGE", 3)
    square = Square()
    square.store.kept = [event(number) for number in (1, 2, 3)]
    looked: Callable[[int], Any] = square.store.latest

    async def latest(mesh_id: int) -> int:
        found: int = await looked(mesh_id)
        square.store.kept.append(event(4))
        return found

    square.store.latest = latest
    answer = await square.herald.missed(MESH, 0)
    assert (answer["seq"], seqs(answer), answer["is_complete"]) == (3, [1, 2, 3], True)
    assert not answer["is_last"]
