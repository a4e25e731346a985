"""Work queues: one message to one worker, for a time, under a token.

The rule of the lease is `kernel.lease.judge`; the statements say it again in their WHERE clauses. The owner of a
lease is a member, and a member may run many workers: it is the token that tells two of them apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import apsw

from claudemesh.broker.model import Acked, Claim, DeliveryState, Moved, Queue, Sender, Work
from claudemesh.broker.policy import (
    QUEUE_RETURNS_MAX,
    HeldLease,
    derive_acked,
    derive_grant,
    is_acked,
    judge_ack,
    judge_renew,
    judge_settle,
)
from claudemesh.broker.stores.asks import CreateQueue, SettleWork, TakeWork
from claudemesh.broker.stores.rows import to_work
from claudemesh.broker.stores.sqlite.directory import judge_in_force
from claudemesh.broker.stores.sqlite.leaseclock import LeaseClock
from claudemesh.broker.stores.sqlite.rows import Row, fetch, fetch_one, run
from claudemesh.kernel.errors import DestinationNotFound, MeshError, NotFound
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "work.sql")


@dataclass(frozen=True, slots=True)
class _Place:
    """A message of a queue, the last token given for it, and how often it came back."""

    mesh_id: int
    history_id: int
    token: int
    returns: int


@dataclass(frozen=True, slots=True)
class _Held:
    """A lease as it stands, and the message it is of."""

    place: _Place
    lease: HeldLease
    moved: Moved


class SqliteWorkStore:
    def __init__(self, database: Database, leases: LeaseClock) -> None:
        self._database = database
        self._leases = leases

    async def create_queue(self, sender: Sender, name: str, now_ms: int) -> bool:
        return await self._database.write(_create, CreateQueue(sender, name, now_ms))

    async def queues(self, sender: Sender) -> list[Queue]:
        def read(connection: apsw.Connection) -> list[Queue]:
            rows = fetch(connection, _SQL["queues"], (sender.mesh_id,))
            return [Queue(name=name, created_at=at, ready=ready, leased=leased) for name, at, ready, leased in rows]

        return await self._database.read(read)

    async def work(self, sender: Sender, queue: str, lease_ttl_ms: int, now_ms: int) -> Work | None:
        return await self._database.write(self._take, TakeWork(sender, queue, lease_ttl_ms, now_ms))

    async def ack(self, claim: Claim, now_ms: int, *, handed_over: bool = False) -> Acked:
        return await self._database.write(self._ack, SettleWork(claim, now_ms, handed_over=handed_over))

    async def nack(self, claim: Claim, now_ms: int) -> None:
        await self._database.write(self._nack, SettleWork(claim, now_ms))

    async def renew(self, claim: Claim, lease_ttl_ms: int) -> int:
        return await self._database.write(self._renew, SettleWork(claim, lease_ttl_ms=lease_ttl_ms))

    async def expire(self, now_ms: int) -> int:
        return await self._database.write(self._expire, now_ms)

    # --- on the writer's thread --------------------------------------------------------------------

    def _take(self, connection: apsw.Connection, asked: Sequence[TakeWork]) -> list[Work | MeshError | None]:
        return [self._take_one(connection, one) for one in asked]

    def _take_one(self, connection: apsw.Connection, asked: TakeWork) -> Work | MeshError | None:
        mesh_id, lease_now = asked.sender.mesh_id, self._leases.now_ms()
        refusal = judge_in_force(connection, asked.sender)
        if refusal is not None:
            return refusal
        found = fetch_one(connection, _SQL["find_queue"], (mesh_id, asked.queue))
        if found is None:
            return DestinationNotFound("there is no such queue")
        queue_id = found[0]
        _take_back_expired(connection, queue_id, lease_now, asked.now_ms)
        ready = fetch_one(connection, _SQL["next_ready"], (queue_id,))
        return None if ready is None else _grant(connection, asked, ready, lease_now)

    def _ack(self, connection: apsw.Connection, settled: Sequence[SettleWork]) -> list[Acked | MeshError]:
        return [self._ack_one(connection, one) for one in settled]

    def _ack_one(self, connection: apsw.Connection, asked: SettleWork) -> Acked | MeshError:
        held = _find(connection, asked.claim)
        if isinstance(held, MeshError):
            return held
        acked = Acked(held.moved, derive_acked(held.lease, handed_over=asked.handed_over))
        if is_acked(held.lease, asked.claim):
            return acked
        refusal = judge_ack(held.lease, asked.claim, self._leases.now_ms())
        if refusal is not None:
            return refusal
        _apply(connection, "settle", held.place, held.place.token)
        if acked.state is DeliveryState.ACTED:
            _apply(connection, "delivery_acted", held.place, asked.now_ms)
        return acked

    def _nack(self, connection: apsw.Connection, settled: Sequence[SettleWork]) -> list[MeshError | None]:
        return [self._nack_one(connection, one) for one in settled]

    def _nack_one(self, connection: apsw.Connection, asked: SettleWork) -> MeshError | None:
        held = _find(connection, asked.claim)
        if isinstance(held, MeshError):
            return held
        refusal = judge_settle(held.lease, asked.claim, self._leases.now_ms())
        if refusal is None:
            _give_back(connection, held.place, asked.now_ms)
        return refusal

    def _renew(self, connection: apsw.Connection, settled: Sequence[SettleWork]) -> list[int | MeshError]:
        return [self._renew_one(connection, one) for one in settled]

    def _renew_one(self, connection: apsw.Connection, asked: SettleWork) -> int | MeshError:
        held, now = _find(connection, asked.claim), self._leases.now_ms()
        if isinstance(held, MeshError):
            return held
        verdict = judge_renew(held.lease, asked.claim, asked.lease_ttl_ms, now)
        if isinstance(verdict, MeshError):
            return verdict
        _apply(connection, "extend", held.place, held.place.token, verdict.expires_at_ms)
        return verdict.expires_at_ms - now

    def _expire(self, connection: apsw.Connection, instants: Sequence[int]) -> list[int]:
        outcomes = []
        for now_ms in instants:
            lease_now = self._leases.now_ms()
            queues = fetch(connection, _SQL["queues_with_expired"], (lease_now,))
            outcomes.append(sum(_take_back_expired(connection, id_, lease_now, now_ms) for (id_,) in queues))
        return outcomes


def _create(connection: apsw.Connection, asked: Sequence[CreateQueue]) -> list[bool | MeshError]:
    outcomes: list[bool | MeshError] = []
    for one in asked:
        row = (one.sender.mesh_id, one.name, one.sender.member_id, one.now_ms)
        refusal = judge_in_force(connection, one.sender)
        outcomes.append(refusal or run(connection, _SQL["create_queue"], row) > 0)
    return outcomes


def _grant(connection: apsw.Connection, asked: TakeWork, row: Row, lease_now: int) -> Work:
    history_id, token, returns, *_ = row
    mesh_id, member_id = asked.sender.mesh_id, asked.sender.member_id
    lease = derive_grant(asked.sender, token, asked.lease_ttl_ms, lease_now)
    connection.execute(_SQL["grant"], (mesh_id, history_id, member_id, lease.token, lease.expires_at_ms))
    connection.execute(_SQL["delivery_leased"], (mesh_id, history_id, asked.now_ms, returns + 1))
    return to_work(row, lease.token, asked.lease_ttl_ms)


def _take_back_expired(connection: apsw.Connection, queue_id: int, lease_now: int, now_ms: int) -> int:
    expired = fetch(connection, _SQL["expired"], (queue_id, lease_now))
    for mesh_id, history_id, token, returns in expired:
        _give_back(connection, _Place(mesh_id, history_id, token, returns), now_ms)
    return len(expired)


def _give_back(connection: apsw.Connection, place: _Place, now_ms: int) -> None:
    returns = place.returns + 1
    if returns >= QUEUE_RETURNS_MAX:
        _apply(connection, "bury", place, place.token, returns)
        _apply(connection, "delivery_dead", place, now_ms)
    else:
        _apply(connection, "give_back", place, place.token, returns)
        _apply(connection, "delivery_returned", place)


def _apply(connection: apsw.Connection, query: str, place: _Place, *values: int) -> None:
    connection.execute(_SQL[query], (place.mesh_id, place.history_id, *values))


def _find(connection: apsw.Connection, claim: Claim) -> _Held | MeshError:
    refusal = judge_in_force(connection, claim.sender)
    if refusal is not None:
        return refusal
    asked = (claim.broker_message_id, claim.sender.mesh_id, claim.queue)
    row = fetch_one(connection, _SQL["standing"], asked)
    if row is None:
        return NotFound("the queue has no such message")
    history_id, owner_id, token, expires_at, returns, is_settled, is_acted, is_dead, *whose = row
    lease = HeldLease(owner_id, token, expires_at, bool(is_settled), bool(is_acted), bool(is_dead))
    place = _Place(claim.sender.mesh_id, history_id, token, returns)
    return _Held(place, lease, Moved(*whose))
