"""Leases that outlive their sockets, and what happened to each.

Locks are taken in one order: members, leases by their ids and all in one statement, seats, and last the numbers of
meshes. Whoever begins or ends leases holds their members, so that of a key one is the first and one the last.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final, Self

from claudemesh.broker.model import Sender
from claudemesh.broker.presence.model import (
    ANNOUNCED,
    Because,
    PresenceEvent,
    Present,
    Settled,
    StandingLease,
    What,
)
from claudemesh.broker.presence.policy import derive_end, derive_lease_until
from claudemesh.broker.stores.leases import to_event, to_present, to_standing
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.postgres.database import column
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "presence.sql")

# So many leases that ran out decide whose are settled in one transaction, and then all that these members have are:
# senders and connections wait for their rows.
SETTLE_MAX: Final = 256

# For longer than this nobody looks only if no broker can. A short lease is not to run out within it.
GAP_MS_MAX: Final = 5_000
GAP_MS_MIN: Final = 1_000
GAPS_A_LEASE: Final = 4
LOOKS_A_GAP: Final = 4  # that are written down, while brokers look


@dataclass(frozen=True, slots=True)
class Gap:
    """How long nobody may have looked without that being a standstill."""

    ms: int

    @classmethod
    def of(cls, lease_ttl_ms: int) -> Self:
        return cls(max(GAP_MS_MIN, min(GAP_MS_MAX, lease_ttl_ms // GAPS_A_LEASE)))

    @property
    def look_ms(self) -> int:
        """How long ago the last look that was written down has to be for the next one to be."""
        return self.ms // LOOKS_A_GAP


@dataclass(frozen=True, slots=True)
class OpenLease:
    """A lease that has not ended, with whose it is."""

    id: int
    uid: str
    mesh_id: int
    member_id: int
    session_pubkey: str
    seat: int | None
    lease_until: int | None = None
    is_lost: bool = False  # the broker that gave its seat is gone
    instance_id: str = ""

    @property
    def key(self) -> tuple[int, str]:
        return self.member_id, self.session_pubkey


@dataclass(slots=True)
class Changes:
    """What a transaction does to leases: written down together, since the numbers of meshes are taken last."""

    now_ms: int
    ended: list[OpenLease] = field(default_factory=list)
    _notes: list[tuple[int, int, str, str, What, Because | None]] = field(default_factory=list)

    def note(self, lease: Sequence[int | str], what: What, because: Because | None = None) -> None:
        """Note it of a lease: mesh, member, session, uid."""
        mesh_id, member_id, session_pubkey, uid = lease
        self._notes.append((int(mesh_id), int(member_id), str(session_pubkey), str(uid), what, because))

    def end(self, lease: OpenLease, because: Because, *, is_still_there: bool) -> None:
        what = derive_end(is_still_there=is_still_there)
        self.note((lease.mesh_id, *lease.key, lease.uid), what, because)
        self.ended.append(lease)

    def end_all(
        self, leases: Sequence[OpenLease], because: Because, standing: Mapping[tuple[int, str], int]
    ) -> None:
        """End these, of keys that have so many in all: the last one of its key is a departure."""
        left = Counter(standing)
        for lease in leases:
            left[lease.key] -= 1
            self.end(lease, because, is_still_there=left[lease.key] > 0)

    @property
    def is_none(self) -> bool:
        return not self._notes

    @property
    def members(self) -> list[int]:
        """Return the members whose sessions ended."""
        return sorted({lease.member_id for lease in self.ended if lease.session_pubkey})

    async def finish(self, connection: Connection) -> None:
        """Write down which leases ended."""
        if self.ended:
            seats = [lease.seat for lease in self.ended if lease.seat is not None]
            await connection.execute(_SQL["finish"], [lease.id for lease in self.ended], seats, self.now_ms)

    async def publish(self, connection: Connection) -> list[PresenceEvent]:
        """Write down what happened, as the last thing of a transaction; return who is to be announced."""
        if not self._notes:
            return []
        last = await self._number(connection)
        numbers: list[int | None] = []
        for note in reversed(self._notes):
            numbers.append(last[note[0]] if note[4] in ANNOUNCED else None)
            last[note[0]] -= note[4] in ANNOUNCED
        columns = zip(*self._notes, strict=True)
        rows = await connection.fetch(_SQL["note"], *columns, numbers[::-1], self.now_ms)
        return [to_event(row) for row in rows]

    async def _number(self, connection: Connection) -> Counter[int]:
        """Take numbers for who comes and goes; return the last of each mesh."""
        more = Counter(note[0] for note in self._notes if note[4] in ANNOUNCED)
        if not more:
            return Counter()
        rows = await connection.fetch(_SQL["number"], [*more], [*more.values()])
        return Counter({row[0]: row[1] for row in rows})


class PostgresPresenceStore:
    def __init__(self, database: Database, lease_ttl_ms: int) -> None:
        self._database = database
        self._ttl_ms = lease_ttl_ms
        self._gap = Gap.of(lease_ttl_ms)

    def stand_still(self, ms: int) -> None: ...

    async def settle(self) -> Settled:
        looked = await self._database.fetch(_SQL["look"], self._gap.ms, self._gap.look_ms)
        is_late, lost, is_due = looked[0]
        if is_late:
            await self._database.transact(lambda connection: catch_up(connection, self._gap))
        if not (is_late or lost or is_due):
            return Settled()
        page = await self._database.transact(lambda connection: self._settle(connection, lost))
        return page or Settled()

    async def end(
        self, sender: Sender, session_pubkey: str | None, because: Because, instance_id: str | None = None
    ) -> Settled:
        return await self._end(sender.member_id, because, session_pubkey or "", instance_id)

    async def end_all(self, sender: Sender, because: Because) -> Settled:
        return await self._end(sender.member_id, because, None, None)

    async def present(self, mesh_id: int) -> list[Present]:
        rows = await self._database.fetch(_SQL["present"], mesh_id)
        return [to_present(tuple(row)[:-1], row[-1], self._ttl_ms) for row in rows]

    async def latest(self, mesh_id: int) -> int:
        return sum(column(await self._database.fetch(_SQL["latest"], mesh_id)))

    async def events(self, mesh_id: int, after_seq: int, limit: int) -> list[PresenceEvent]:
        return [to_event(row) for row in await self._database.fetch(_SQL["announced"], mesh_id, after_seq, limit)]

    async def sweep(self, before_ms: int, limit: int) -> int:
        async def sweep(connection: Connection) -> int:
            events = int(await connection.fetchval(_SQL["sweep_events"], before_ms, limit))
            return events + await _sweep_leases(connection, before_ms, limit)

        return await self._database.transact(sweep)

    # --- in a transaction --------------------------------------------------------------------------

    async def _settle(self, connection: Connection, lost: Sequence[int]) -> Settled | None:
        """Settle the leases of some members; None if there was nothing to settle, or others are at it."""
        members = column(await connection.fetch(_SQL["hold_due"], lost, SETTLE_MAX))
        if not members:
            return None
        now_ms, _ = await read_now(connection)
        leases = await _of_members(connection, members)
        changes = Changes(now_ms)
        until = derive_lease_until(now_ms, 0, self._ttl_ms)
        gone = {lease.seat: (until, Because.BROKER_GONE) for lease in leases if lease.is_lost and lease.seat}
        await go_offline(connection, gone, changes)
        due = [lease for lease in leases if lease.lease_until is not None and lease.lease_until <= now_ms]
        due.sort(key=lambda lease: (lease.lease_until, lease.id))
        changes.end_all(due, Because.EXPIRED, _count(leases))
        if changes.is_none:
            return None
        await changes.finish(connection)
        return Settled(await changes.publish(connection), changes.members, is_done=False)  # the next look says so

    async def _end(
        self, member_id: int, because: Because, session_pubkey: str | None, instance_id: str | None
    ) -> Settled:
        async def end(connection: Connection) -> Settled:
            await hold_members(connection, [member_id])
            leases = await _of_members(connection, [member_id])
            due = [
                lease
                for lease in leases
                if session_pubkey in (None, lease.session_pubkey) and instance_id in (None, lease.instance_id)
            ]
            changes = Changes((await read_now(connection))[0])
            changes.end_all(due, because, _count(leases))
            await changes.finish(connection)
            seats = [lease.seat for lease in due if lease.seat is not None]
            return Settled(await changes.publish(connection), changes.members, seats)

        return await self._database.transact(end)


async def hold_members(connection: Connection, member_ids: Iterable[int]) -> None:
    await connection.fetch(_SQL["hold_members"], [*member_ids])


async def read_now(connection: Connection) -> tuple[int, int]:
    """Return the server's time, and how long ago a broker last looked; of one that never did, no time."""
    now_ms, ago_ms = (await connection.fetch(_SQL["now"]))[0]
    return now_ms, ago_ms or 0


async def of_key(connection: Connection, member_id: int, session_pubkey: str) -> list[StandingLease]:
    return [to_standing(row) for row in await connection.fetch(_SQL["of_key"], member_id, session_pubkey)]


async def go_offline(connection: Connection, seats: Mapping[int, tuple[int, Because]], changes: Changes) -> None:
    """Have the leases that these seats carry stand without one, each until its instant."""
    if not seats:
        return
    for *lease, seat in await connection.fetch(
        _SQL["go_offline"], [*seats], [until for until, _ in seats.values()]
    ):
        changes.note(lease, What.OFFLINE, seats[seat][1])


async def _sweep_leases(connection: Connection, before_ms: int, limit: int) -> int:
    leases = await connection.fetch(_SQL["ended"], before_ms, limit)
    if leases:
        ids, meshes, members, keys = zip(*leases, strict=True)
        await hold_members(connection, {*members})
        await connection.execute(_SQL["forget_leases"], ids)
        await connection.execute(_SQL["forget_keys"], meshes, keys)
    return len(leases)


async def catch_up(connection: Connection, gap: Gap) -> None:
    """Give leases without a socket the time back during which no broker looked, if that was long."""
    await connection.execute(_SQL["begin_clock"])
    looked_at = await connection.fetchval(_SQL["hold_clock"])
    now_ms, _ = await read_now(connection)
    if now_ms - looked_at > gap.ms:
        await connection.execute(_SQL["extend"], looked_at, now_ms - looked_at)
        await connection.execute(_SQL["note_look"], now_ms)


async def _of_members(connection: Connection, member_ids: Sequence[int]) -> list[OpenLease]:
    return [OpenLease(*row) for row in await connection.fetch(_SQL["of_members"], member_ids)]


def _count(leases: Iterable[OpenLease]) -> Counter[tuple[int, str]]:
    return Counter(lease.key for lease in leases)
