"""Leases that outlive their sockets, and what happened to each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final

import apsw

from claudemesh.broker import policy
from claudemesh.broker.model import Sender
from claudemesh.broker.ports import AlreadyConnected, KeyTaken, NotResumed
from claudemesh.broker.presence.model import (
    ANNOUNCED,
    Arrival,
    Because,
    Departure,
    PresenceEvent,
    Present,
    Settled,
    What,
)
from claudemesh.broker.presence.policy import Attach, Refused, derive_end, derive_lease_until, judge_attach
from claudemesh.broker.stores.leases import to_event, to_present, to_standing, write_info
from claudemesh.broker.stores.sqlite.chairs import Chairs
from claudemesh.broker.stores.sqlite.directory import judge_in_force, remember_session
from claudemesh.broker.stores.sqlite.leaseclock import LeaseClock, Stamp
from claudemesh.broker.stores.sqlite.rows import Row, fetch, fetch_one, run
from claudemesh.kernel.errors import MeshError, TooManySessions
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "presence.sql")

SETTLE_MAX: Final = 256  # leases that end in one transaction: the writer belongs to the senders


@dataclass(frozen=True, slots=True)
class EndedLease:
    id: int
    uid: str
    mesh_id: int
    member_id: int
    session_pubkey: str
    seat: int | None


@dataclass(slots=True)
class Changed:
    """What a transaction did to leases."""

    events: list[PresenceEvent] = field(default_factory=list)
    ended: list[EndedLease] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Take:
    arrival: Arrival
    seat: int
    uid: str
    now: Stamp
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Took:
    uid: str
    attach: Attach
    changed: Changed


Taken = Took | AlreadyConnected | KeyTaken | NotResumed


@dataclass(frozen=True, slots=True)
class Leave:
    departures: Sequence[Departure]
    now: Stamp
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Orphan:
    now: Stamp
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class _End:
    sender: Sender
    session_pubkey: str | None  # None: all of the member's
    instance_id: str | None  # None: all of the key's
    because: Because
    now: Stamp


class SqlitePresenceStore:
    def __init__(self, database: Database, leases: LeaseClock, chairs: Chairs, lease_ttl_ms: int) -> None:
        self._database = database
        self._leases = leases
        self._chairs = chairs
        self._ttl_ms = lease_ttl_ms

    def stand_still(self, ms: int) -> None:
        self._leases.stand_still(ms)

    async def settle(self) -> Settled:
        if not await self._database.read(self._is_due):
            return Settled()
        changed = await self._database.write(_settle, self._leases.stamp())
        return self._forget(changed, is_done=len(changed.ended) < SETTLE_MAX)

    async def end(
        self, sender: Sender, session_pubkey: str | None, because: Because, instance_id: str | None = None
    ) -> Settled:
        asked = _End(sender, session_pubkey or "", instance_id, because, self._leases.stamp())
        return self._forget(await self._database.write(_end, asked))

    async def end_all(self, sender: Sender, because: Because) -> Settled:
        asked = _End(sender, None, None, because, self._leases.stamp())
        return self._forget(await self._database.write(_end, asked))

    async def present(self, mesh_id: int) -> list[Present]:
        now = self._leases.now_ms()
        rows = await self._database.read(lambda connection: fetch(connection, _SQL["present"], (mesh_id, now)))
        return [to_present(row, now, self._ttl_ms) for row in rows]

    async def latest(self, mesh_id: int) -> int:
        row = await self._database.read(lambda connection: fetch_one(connection, _SQL["latest"], (mesh_id,)))
        return 0 if row is None else int(row[0])

    async def events(self, mesh_id: int, after_seq: int, limit: int) -> list[PresenceEvent]:
        asked = (mesh_id, after_seq, limit)
        rows = await self._database.read(lambda connection: fetch(connection, _SQL["announced"], asked))
        return [to_event(row) for row in rows]

    async def sweep(self, before_ms: int, limit: int) -> int:
        return await self._database.write(_sweep, (before_ms, limit))

    def _is_due(self, connection: apsw.Connection) -> bool:
        return bool(fetch(connection, _SQL["is_due"], (self._leases.now_ms(),))[0][0])

    def _forget(self, changed: Changed, *, is_done: bool = True) -> Settled:
        seats = [ended.seat for ended in changed.ended if ended.seat is not None]
        return Settled(changed.events, forget(self._chairs, changed), seats, is_done)


def forget(chairs: Chairs, changed: Changed) -> list[int]:
    """Note which leases ended; return the members whose sessions they were."""
    for ended in changed.ended:
        chairs.end(ended.member_id, ended.session_pubkey, ended.uid)
    chairs.take_away(ended.seat for ended in changed.ended if ended.seat is not None)
    return sorted({ended.member_id for ended in changed.ended if ended.session_pubkey})


def read_delivering(connection: apsw.Connection) -> list[tuple[int, str, str]]:
    return [(row[0], row[1], row[2]) for row in fetch(connection, _SQL["delivering"])]


# --- on the writer's thread ------------------------------------------------------------------------


def take(connection: apsw.Connection, asked: Sequence[Take]) -> list[Taken | MeshError]:
    return [_take(connection, one) for one in asked]


def _take(connection: apsw.Connection, asked: Take) -> Taken | MeshError:
    identity = asked.arrival.identity
    refusal = judge_in_force(connection, identity.sender)
    if refusal is not None:
        return refusal
    key = (identity.member.id, identity.session_pubkey or "")
    attach = judge_attach(
        [to_standing(row) for row in fetch(connection, _SQL["standing"], key)],
        asked.arrival,
        uid=asked.uid,
        now_ms=asked.now.lease_ms,
        ttl_ms=asked.ttl_ms,
    )
    if asked.arrival.must_resume and (isinstance(attach, Refused) or not attach.resumed):
        return NotResumed()  # before anything that would tell it who is there
    if isinstance(attach, Refused):
        return AlreadyConnected(attach.instance_id)
    if identity.session_pubkey is not None and attach.goes_on is None:
        if fetch(connection, _SQL["count"], (key[0], policy.SESSIONS_MAX))[0][0] >= policy.SESSIONS_MAX:
            return TooManySessions()
        if not remember_session(connection, identity.sender, identity.session_pubkey, asked.now.wall_ms):
            return KeyTaken()
    notes = _Notes(connection, asked.now)
    for leases, because in ((attach.expired, Because.EXPIRED), (attach.superseded, Because.SUPERSEDED)):
        for one in leases:
            notes.end(EndedLease(one.id, one.uid, identity.mesh.id, *key, one.seat), because)
    uid = _carry(connection, asked, attach)
    notes.add((identity.mesh.id, *key, uid), attach.what)
    return Took(uid, attach, notes.changed)


def _carry(connection: apsw.Connection, asked: Take, attach: Attach) -> str:
    """Have the seat carry the lease, a new one or the one that goes on; return its uid."""
    identity, lease = asked.arrival.identity, attach.lease
    only, info = int(identity.is_presence_only), write_info(identity.info)
    if attach.goes_on is not None:
        row = (attach.goes_on.id, identity.instance_id, only, lease.token, asked.seat, info)
        connection.execute(_SQL["carry_on"], row)
        return attach.goes_on.uid
    key = (identity.mesh.id, identity.member.id, identity.session_pubkey or "", identity.instance_id)
    connection.execute(_SQL["begin"], (asked.uid, *key, only, lease.token, asked.seat, info, asked.now.wall_ms))
    return asked.uid


def leave(connection: apsw.Connection, asked: Sequence[Leave]) -> list[None]:
    for one in asked:
        notes = _Notes(connection, one.now)
        for departure in one.departures:
            until = derive_lease_until(one.now.lease_ms, departure.silent_ms, one.ttl_ms)
            notes.go_offline(departure.seat, until, departure.because)
    return [None for _ in asked]


def orphan(connection: apsw.Connection, asked: Sequence[Orphan]) -> list[None]:
    """Put in grace, for a whole lease's time, what was online when the last broker ended."""
    for one in asked:
        notes = _Notes(connection, one.now)
        for (seat,) in fetch(connection, _SQL["orphaned"]):
            notes.go_offline(seat, one.now.lease_ms + one.ttl_ms, Because.BROKER_GONE)
    return [None for _ in asked]


def _settle(connection: apsw.Connection, instants: Sequence[Stamp]) -> list[Changed]:
    outcomes = []
    for now in instants:
        rows = fetch(connection, _SQL["due"], (now.lease_ms, SETTLE_MAX))
        outcomes.append(_Notes(connection, now).end_all(rows, Because.EXPIRED))
    return outcomes


def _end(connection: apsw.Connection, asked: Sequence[_End]) -> list[Changed]:
    outcomes = []
    for one in asked:
        member_id, session_pubkey = one.sender.member_id, one.session_pubkey
        if session_pubkey is None:
            rows = fetch(connection, _SQL["of_member"], (member_id,))
        else:
            rows = fetch(connection, _SQL["of_key"], (member_id, session_pubkey, one.instance_id))
        outcomes.append(_Notes(connection, one.now).end_all(rows, one.because))
    return outcomes


class _Notes:
    """Changes leases and writes down what happened to each, within one transaction."""

    def __init__(self, connection: apsw.Connection, now: Stamp) -> None:
        self._connection = connection
        self._now = now
        self.changed = Changed()

    def end_all(self, rows: Iterable[Row], because: Because) -> Changed:
        for row in rows:
            self.end(EndedLease(*row), because)
        return self.changed

    def end(self, lease: EndedLease, because: Because) -> None:
        """End a lease: a departure, unless its key has another, or another instance took over just now."""
        self._connection.execute(_SQL["finish"], (lease.id, self._now.wall_ms))
        others = fetch(self._connection, _SQL["is_there"], (lease.member_id, lease.session_pubkey))
        what = derive_end(is_still_there=because is Because.SUPERSEDED or bool(others[0][0]))
        self.add((lease.mesh_id, lease.member_id, lease.session_pubkey, lease.uid), what, because)
        self.changed.ended.append(lease)

    def go_offline(self, seat: int, until: int, because: Because) -> None:
        for lease in fetch(self._connection, _SQL["go_offline"], (seat, until)):
            self.add(lease, What.OFFLINE, because)

    def add(self, lease: Row, what: What, because: Because | None = None) -> None:
        """Note it; who comes or goes gets a number, and is to be announced."""
        mesh_id, seq = lease[0], None
        if what in ANNOUNCED:
            seq = int(fetch(self._connection, _SQL["next_seq"], (mesh_id,))[0][0])
        self._connection.execute(_SQL["note"], (*lease, what, self._now.wall_ms, because, seq))
        if seq is not None:
            rows = fetch(self._connection, _SQL["announced"], (mesh_id, seq - 1, 1))
            self.changed.events.append(to_event(rows[0]))


def _sweep(connection: apsw.Connection, pages: Sequence[tuple[int, int]]) -> list[int]:
    return [_sweep_page(connection, page) for page in pages]


def _sweep_page(connection: apsw.Connection, page: tuple[int, int]) -> int:
    events = run(connection, _SQL["sweep_events"], page)
    leases = fetch(connection, _SQL["sweep_leases"], page)
    connection.executemany(_SQL["forget_key"], leases)
    return events + len(leases)


def void_tokens(connection: apsw.Connection) -> None:
    connection.execute(_SQL["void_tokens"])
