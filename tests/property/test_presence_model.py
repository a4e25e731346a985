"""Leases in a real store against a few lines of oracle, while clients come, drop, resume, cheat and go.

Whatever happens, in whatever order: others hear of each key joined, left, joined, … and nothing else, under numbers
without a gap; a key is there exactly while its lease stands, over restarts too; and no message is lost or doubled.
"""

import asyncio
import tempfile
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from claudemesh.broker.model import Accepted, ConnectionPolicy, Identity, Seat, Sender
from claudemesh.broker.ports import AlreadyConnected, NotResumed
from claudemesh.broker.presence.model import (
    Arrival,
    Because,
    Departure,
    PresenceEvent,
    ResumeClaim,
    Seated,
    Settled,
    What,
)
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.rhythm import LEASE_TTL_MS
from tests.contract.broker.backends import NOW, SqliteBackend, Town, batch, dm, know_session, settle
from tests.doubles import ManualClock

T = TypeVar("T")
NEWEST, OLDEST, SHARED = ConnectionPolicy
WIDE = 1 << 30

MEMBERS = ("ann", "ben", "cat")
# Whose key, and of which session: some get what names them, others only show that they are there.
KEYS = [("ann", None), ("ben", None), ("ben", "desk"), ("cat", None), ("cat", "shown")]
CHOICES = st.integers(0, 30)  # taken modulo what is there
TIMES_MS = st.sampled_from([1, 1_000, 30_000, LEASE_TTL_MS - 1, LEASE_TTL_MS, 10 * LEASE_TTL_MS])
SILENCES_MS = st.sampled_from([0, 0, 1, 75_000, LEASE_TTL_MS, 2 * LEASE_TTL_MS])


@dataclass(frozen=True)
class Key:
    """Whose lease it is."""

    name: str
    session: str | None

    @property
    def pubkey(self) -> str | None:
        return None if self.session is None else f"key-of-{self.name}-{self.session}"

    @property
    def is_shown_only(self) -> bool:
        return self.session == "shown"


@dataclass(frozen=True)
class Ticket:
    """What a client has of a connection: its seat, and the token by which it may resume."""

    key: Key
    seat: Seat
    claim: ResumeClaim
    broker: int  # whose seat it is: of all that have run on the file, the how manieth


@dataclass
class Stay:
    """The oracle's lease: with a seat it stands, without one until an instant of the time that brokers ran."""

    uid: str
    instance: str
    token: int
    seat: int | None
    until: int = 0

    def stands(self, now_ms: int) -> bool:
        return self.seat is not None or now_ms < self.until


@dataclass
class Oracle:
    """All that ought to be, in plain words."""

    now_ms: int = 0  # the time during which brokers ran, as far as they remember
    kept_ms: int = 0
    stays: dict[Key, list[Stay]] = field(default_factory=dict)  # that nobody ended yet
    told: list[tuple[Key, What]] = field(default_factory=list)
    open: dict[str, dict[int, str | None]] = field(default_factory=dict)  # member -> what waits, for which session

    def living(self, key: Key) -> list[Stay]:
        return [stay for stay in self.stays.get(key, []) if stay.stands(self.now_ms)]

    def end(self, key: Key, ended: Iterable[Stay]) -> None:
        gone = [*ended]
        was_there = bool(self.stays.get(key))
        self.stays[key] = [stay for stay in self.stays.get(key, []) if stay not in gone]
        if was_there and not self.stays[key]:
            self.told.append((key, What.LEFT))

    def begin(self, key: Key, stay: Stay) -> None:
        if not self.stays.setdefault(key, []):
            self.told.append((key, What.JOINED))
        self.stays[key].append(stay)

    def expire(self) -> None:
        """End what ran out, in the order in which it did."""
        due = [(stay.until, key, stay) for key, stays in self.stays.items() for stay in stays]
        for _, key, stay in sorted(due, key=lambda one: one[0]):
            if not stay.stands(self.now_ms):
                self.end(key, [stay])

    def restart(self) -> None:
        self.now_ms = self.kept_ms
        for stay in self.all_stays():
            if stay.seat is not None:
                stay.seat, stay.until = None, self.now_ms + LEASE_TTL_MS

    def all_stays(self) -> list[Stay]:
        return [stay for stays in self.stays.values() for stay in stays]

    def gets(self, ticket: Ticket) -> list[int]:
        """Return what a connection would be given now."""
        key = ticket.key
        seats = [stay.seat for stay in self.stays.get(key, []) if stay.seat is not None]
        if key.is_shown_only or max(seats, default=None) != ticket.seat.token:
            return []
        waiting = self.open.get(key.name, {})
        if key.session is not None:
            return [id_ for id_, session in sorted(waiting.items()) if session == key.session]
        served = {one.session for one, stays in self.stays.items() if one.name == key.name and stays} - {None}
        return [id_ for id_, session in sorted(waiting.items()) if session not in served - {"shown"}]


class PresenceMachine(RuleBasedStateMachine):
    first_policy: ClassVar[ConnectionPolicy]
    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.backend = SqliteBackend(256)
        self.oracle = Oracle()
        self.heard: list[PresenceEvent] = []
        self.numbers = count(1)
        self.broker = 1
        self.lines: list[Ticket] = []  # of this broker
        self.acked: dict[int, int] = {}  # how often each message was acknowledged
        self.sent: dict[str, list[int]] = {name: [] for name in MEMBERS}
        self.policy = self.first_policy
        self.stores = self.backend.open_now(Path(self.folder.name), self.clock)
        self.town = self.run(self._found())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    async def _found(self) -> Town:
        await self.stores.seats.start()
        town = await settle(self.stores, *MEMBERS)
        for name, session in KEYS:
            pubkey = Key(name, session).pubkey
            if pubkey is not None:
                await know_session(self.stores, town, name, pubkey)
                self.oracle.told += [(Key(name, session), What.JOINED), (Key(name, session), What.LEFT)]
        self.heard = await self.stores.presence.events(town.mesh.id, 0, 100)
        return town

    def teardown(self) -> None:
        try:
            self.everything_that_was_sent_arrives_in_the_end()
        finally:
            self.run(self.stores.aclose())
            self.runner.close()
            self.folder.cleanup()

    def sender(self, key: Key) -> Sender:
        return self.town[key.name]

    def hear(self, told: Settled | Seated) -> None:
        self.heard += told.events

    # --- they come ---

    @rule(
        target=tickets,
        key=st.sampled_from([Key(*key) for key in KEYS]),
        instance=st.sampled_from(["one", "one", "two", "three"]),
    )
    def connect(self, key: Key, instance: str) -> Any:  # noqa: ANN401  into the bundle, or not
        return self.hello(key, instance, None, must_resume=False)

    @rule(
        target=tickets,
        ticket=tickets,
        instance=st.sampled_from(["one", "one", "two"]),
        must_resume=st.booleans(),
    )
    def resume(self, ticket: Ticket, instance: str, *, must_resume: bool) -> Any:  # noqa: ANN401  as above
        """Come back with a token that may have been used, or be of a lease that ended long ago."""
        return self.hello(ticket.key, instance, ticket.claim, must_resume=must_resume)

    @rule(target=tickets, ticket=tickets, key=st.sampled_from([Key(*key) for key in KEYS]))
    def steal(self, ticket: Ticket, key: Key) -> Any:  # noqa: ANN401  as above
        """Come with somebody else's token, and nothing else that proves who one is."""
        return self.hello(key, "thief", ticket.claim, must_resume=True)

    def hello(self, key: Key, instance: str, claim: ResumeClaim | None, *, must_resume: bool) -> Any:  # noqa: ANN401
        mesh, member = self.town.mesh, self.town.members[key.name]
        identity = Identity(
            type(mesh)(id=mesh.id, uid=mesh.uid, slug=mesh.slug, policy=self.policy),
            member,
            instance,
            key.pubkey,
            is_presence_only=key.is_shown_only,
        )
        taking = self.stores.seats.take(Arrival(identity, claim, must_resume))
        living = self.oracle.living(key)
        resumed = [stay for stay in living if claim == ResumeClaim(stay.uid, stay.token)]
        mine = next(iter([*resumed, *(stay for stay in living if stay.instance == instance)]), None)
        refusal: type[Exception] | None = None
        if must_resume and not resumed:
            refusal = NotResumed  # whoever has not proven itself learns nothing of who is there
        elif mine is None and living and self.policy is OLDEST:
            refusal = AlreadyConnected
        if refusal is not None:
            with pytest.raises(refusal):
                self.run(taking)
            return multiple()
        seated = self.run(taking)
        self.hear(seated)
        assert seated.is_resumed == bool(resumed)
        go = [one for one in living if one is not mine and (self.policy is NEWEST or one.instance == instance)]
        displaced = {one.seat for one in (*go, *([mine] if mine else [])) if one.seat is not None}
        assert {gone.token for gone in seated.displaced} == displaced
        self.take_over(key, instance, seated, mine, go)
        ticket = Ticket(key, seated.seat, ResumeClaim(seated.presence_uid, seated.lease_token), self.broker)
        self.lines.append(ticket)
        return ticket

    def take_over(self, key: Key, instance: str, seated: Seated, mine: Stay | None, go: list[Stay]) -> None:
        oracle, living = self.oracle, self.oracle.living(key)
        expired = [stay for stay in oracle.stays.get(key, []) if stay not in living]
        oracle.end(key, expired)
        assert seated.bereft == ([self.sender(key).member_id] if key.session and (expired or go) else [])
        if mine is None:
            stay = Stay(seated.presence_uid, instance, 1, seated.seat.token)
            assert stay.uid not in {one.uid for one in oracle.all_stays()}
            oracle.begin(key, stay)
        else:
            mine.instance, mine.token, mine.seat = instance, mine.token + 1, seated.seat.token
            assert seated.presence_uid == mine.uid
        oracle.end(key, go)
        assert seated.lease_token == (mine.token if mine else 1)

    def live(self) -> list[Ticket]:
        """Return those that are connected."""
        seats = {stay.seat for stay in self.oracle.all_stays() if stay.seat is not None}
        return [ticket for ticket in self.lines if ticket.seat.token in seats]

    # --- they go ---

    @precondition(lambda self: self.live())
    @rule(chosen=CHOICES, silent_ms=SILENCES_MS)
    def hang_up(self, chosen: int, silent_ms: int) -> None:
        live = self.live()
        self.drop(live[chosen % len(live)], silent_ms, Because.CLOSED)

    @precondition(lambda self: self.live())
    @rule(target=tickets, chosen=CHOICES)
    def bring_another_instance(self, chosen: int) -> Any:  # noqa: ANN401  as above
        live = self.live()
        return self.hello(live[chosen % len(live)].key, "another", None, must_resume=False)

    @precondition(lambda self: self.live())
    @rule(chosen=CHOICES, some=st.integers(1, 3))
    def write_to_somebody_who_is_there(self, chosen: int, some: int) -> None:
        live = self.live()
        for _ in range(some):
            self.send("ann", live[chosen % len(live)].key)

    @precondition(lambda self: self.live())
    @rule(target=tickets, chosen=CHOICES, silent_ms=SILENCES_MS, ms=TIMES_MS)
    def hang_up_and_resume(self, chosen: int, silent_ms: int, ms: int) -> Any:  # noqa: ANN401  as above
        live = self.live()
        ticket = live[chosen % len(live)]
        self.drop(ticket, silent_ms, Because.STALE)
        self.pass_time(ms)
        return self.hello(ticket.key, "one", ticket.claim, must_resume=False)

    @rule(ticket=tickets, silent_ms=SILENCES_MS, because=st.sampled_from([Because.CLOSED, Because.STALE]))
    def drop(self, ticket: Ticket, silent_ms: int, because: Because) -> None:
        """Lose a socket; it may be gone already, and it may be told twice."""
        if ticket.broker != self.broker:
            return  # it was lost with its broker
        for _ in range(2):
            self.run(self.stores.seats.leave([Departure(ticket.seat.token, silent_ms, because)]))
        for stay in self.oracle.stays.get(ticket.key, []):
            if stay.seat == ticket.seat.token:
                stay.seat, stay.until = None, self.oracle.now_ms - silent_ms + LEASE_TTL_MS

    @rule(key=st.sampled_from([Key(*key) for key in KEYS]))
    def say_goodbye(self, key: Key) -> None:
        self.hear(self.run(self.stores.presence.end(self.sender(key), key.pubkey, Because.GOODBYE)))
        self.oracle.end(key, self.oracle.stays.get(key, []))

    @rule(name=st.sampled_from(MEMBERS))
    def leave_for_good(self, name: str) -> None:
        self.hear(self.run(self.stores.presence.end_all(self.town[name], Because.REVOKED)))
        open_leases = [
            (key, stay) for key, stays in self.oracle.stays.items() for stay in stays if key.name == name
        ]
        for key, stay in open_leases:
            self.oracle.end(key, [stay])

    # --- time and brokers ---

    @rule(ms=TIMES_MS)
    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.oracle.now_ms += ms

    @rule(ms=TIMES_MS, jump_ms=st.sampled_from([0, DAY_MS, -DAY_MS]))
    def expire(self, ms: int, jump_ms: int = 0) -> None:
        """Let time pass and look what ran out; the wall clock may have been set."""
        self.clock.wall += jump_ms
        self.pass_time(ms)
        self.hear(self.run(self.stores.presence.settle()))
        self.oracle.expire()
        there = {key for key, stays in self.oracle.stays.items() if stays}
        assert there == {key for key in self.oracle.stays if self.oracle.living(key)}
        assert {key for key, what in dict(self.announced()).items() if what is What.JOINED} == there

    @rule(ms=TIMES_MS)
    def stand_still(self, ms: int) -> None:
        """Stop for a while and go on, as a process does that is suspended."""
        self.clock.advance(ms)
        self.stores.presence.stand_still(ms)
        self.hear(self.run(self.stores.presence.settle()))
        self.oracle.expire()

    @rule()
    def beat(self) -> None:
        self.run(self.stores.seats.beat())
        self.oracle.kept_ms = self.oracle.now_ms

    @rule(away_ms=TIMES_MS, is_killed=st.booleans(), is_rebooted=st.booleans())
    def restart(self, away_ms: int, *, is_killed: bool, is_rebooted: bool) -> None:
        if not is_killed:
            self.beat()
        self.run(self.stores.aclose())
        self.clock.advance(away_ms)
        if is_rebooted:
            self.clock.monotonic = 17
        self.stores = self.backend.open_now(Path(self.folder.name), self.clock)
        self.run(self.stores.seats.start())
        self.broker += 1
        self.lines = []
        self.oracle.restart()

    @rule(policy=st.sampled_from([*ConnectionPolicy]))
    def change_the_policy(self, policy: ConnectionPolicy) -> None:
        """Go by another for a while, or by the first again."""
        self.policy = policy if self.policy is self.first_policy else self.first_policy

    # --- what is sent ---

    @rule(sender=st.sampled_from(MEMBERS), key=st.sampled_from([Key(*key) for key in KEYS]))
    def send(self, sender: str, key: Key) -> None:
        to = key.name if key.session is None else f"{key.name}-{key.session}"
        letter = dm(f"{next(self.numbers)}", to)
        [accepted] = self.run(self.stores.accepts.accept(batch(self.town[sender], letter)))
        assert isinstance(accepted, Accepted)
        assert accepted.to_session == key.pubkey
        self.oracle.open.setdefault(key.name, {})[accepted.history_id] = key.session
        self.sent[key.name].append(accepted.history_id)

    @precondition(lambda self: self.lines)
    @rule(some=st.integers(0, 3))
    def receive(self, some: int) -> None:
        """Have all look at what waits, those too whose seat is gone by now; one acknowledges some of it."""
        found = [(ticket, self.look(ticket)) for ticket in self.lines]
        given = [(ticket, ids) for ticket, ids in found if ids]
        if given:
            ticket, ids = given[-1]
            self.acknowledge(ticket, ids[:some])

    def look(self, ticket: Ticket) -> list[int]:
        page = self.run(self.stores.deliveries.page(ticket.seat, 0, 1_000, WIDE))
        found = [parcel.history_id for parcel in page.parcels]
        assert found == self.oracle.gets(ticket)
        return found

    def acknowledge(self, ticket: Ticket, history_ids: list[int]) -> None:
        self.run(self.stores.deliveries.ack(self.sender(ticket.key), history_ids, NOW))
        for id_ in history_ids:
            self.acked[id_] = self.acked.get(id_, 0) + 1
            del self.oracle.open[ticket.key.name][id_]

    # --- what holds all the time ---

    def announced(self) -> list[tuple[Key, What]]:
        keys = {(self.sender(key).member_id, key.pubkey): key for key in (Key(*key) for key in KEYS)}
        return [(keys[event.member_id, event.session_pubkey], event.what) for event in self.heard]

    @invariant()
    def each_key_joins_and_leaves_by_turns_under_numbers_without_a_gap(self) -> None:
        assert [event.seq for event in self.heard] == list(range(1, len(self.heard) + 1))
        there: dict[Key, What] = {}
        for key, what in self.announced():
            assert what is (What.LEFT if there.get(key) is What.JOINED else What.JOINED)
            there[key] = what

    @invariant()
    def a_key_is_there_exactly_while_its_lease_stands(self) -> None:
        self.run(self.compare())
        told = {key for key, what in dict(self.announced()).items() if what is What.JOINED}
        assert {key for key in self.oracle.stays if self.oracle.living(key)} <= told, "who is there was announced"
        assert told == {key for key, stays in self.oracle.stays.items() if stays}, (
            "and is until it is noted as gone"
        )
        assert sorted(map(str, self.announced())) == sorted(map(str, self.oracle.told))

    async def compare(self) -> None:
        """Compare all that the store says with what was told and with the oracle."""
        presence, mesh_id, now = self.stores.presence, self.town.mesh.id, self.oracle.now_ms
        found, kept, latest, seats = await asyncio.gather(
            presence.present(mesh_id),
            presence.events(mesh_id, 0, 1_000_000),
            presence.latest(mesh_id),
            self.stores.seats.standing(),
        )
        standing = {
            (stay.uid, stay.seat is not None, LEASE_TTL_MS if stay.seat is not None else stay.until - now)
            for stay in self.oracle.all_stays()
            if stay.stands(now)
        }
        assert {(one.presence_uid, one.is_online, one.lease_left_ms) for one in found} == standing
        assert kept == self.heard
        assert latest == len(self.heard)
        assert seats == {stay.seat for stay in self.oracle.all_stays() if stay.seat is not None}

    def everything_that_was_sent_arrives_in_the_end(self) -> None:
        self.policy = NEWEST
        self.expire(10 * LEASE_TTL_MS)
        for name in MEMBERS:
            for key in [key for key in self.oracle.stays if key.name == name and key.session is not None]:
                self.say_goodbye(key)
            ticket = self.hello(Key(name, None), "last", None, must_resume=False)
            left = [id_ for id_ in self.sent[name] if id_ not in self.acked]
            assert self.look(ticket) == left, "all that nobody acknowledged, in the order in which it was sent"
            self.acknowledge(ticket, left)
            assert self.look(ticket) == []
        assert self.acked == dict.fromkeys([id_ for ids in self.sent.values() for id_ in ids], 1)
        assert self.run(self.stores.deliveries.depth()) == 0


class NewestMachine(PresenceMachine):
    first_policy = NEWEST


class OldestMachine(PresenceMachine):
    first_policy = OLDEST


class SharedMachine(PresenceMachine):
    first_policy = SHARED


_SETTINGS = settings(max_examples=30, stateful_step_count=40, deadline=None, database=None)
NewestMachine.TestCase.settings = OldestMachine.TestCase.settings = SharedMachine.TestCase.settings = _SETTINGS


@pytest.mark.req("P2", "P3", "P5", "P8", "P9")
class TestPreferNewest(NewestMachine.TestCase):  # type: ignore[misc, name-defined]
    pass


@pytest.mark.req("P2", "P3", "P5", "P8", "P9", "N4")
class TestPreferOldest(OldestMachine.TestCase):  # type: ignore[misc, name-defined]
    pass


@pytest.mark.req("P2", "P3", "P5", "P8", "P9", "N4")
class TestAllowConcurrent(SharedMachine.TestCase):  # type: ignore[misc, name-defined]
    pass
