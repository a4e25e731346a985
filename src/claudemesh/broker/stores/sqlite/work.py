"""Work queues: one message to one worker, for a time, under a token.

The rule of the lease is `kernel.lease.judge`; the statements say it again in their WHERE clauses. The owner of a
lease is a member, and a member may run many workers: it is the token that tells two of them apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import apsw

from claudemesh.broker.model import Claim, Moved, Queue, Sender, Work
from claudemesh.broker.policy import QUEUE_RETURNS_MAX
from claudemesh.broker.stores.sqlite.directory import judge_in_force
from claudemesh.broker.stores.sqlite.leaseclock import LeaseClock
from claudemesh.broker.stores.sqlite.rows import Row, fetch, fetch_one, run
from claudemesh.kernel.errors import DestinationNotFound, IntegrityError, LeaseLost, MeshError, NotFound
from claudemesh.kernel.lease import Acquire, Fence, Granted, Lease, Lost, Renew, Request, judge
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "work.sql")


@dataclass(frozen=True, slots=True)
class _Create:
    sender: Sender
    name: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class _Take:
    sender: Sender
    queue: str
    lease_ttl_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class _Settle:
    claim: Claim
    now_ms: int = 0
    lease_ttl_ms: int = 0


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
    lease: Lease
    is_settled: bool
    is_acted: bool
    moved: Moved


class SqliteWorkStore:
    def __init__(self, database: Database, leases: LeaseClock) -> None:
        self._database = database
        self._leases = leases

    async def create_queue(self, sender: Sender, name: str, now_ms: int) -> bool:
        return await self._database.write(_create, _Create(sender, name, now_ms))

    async def queues(self, sender: Sender) -> list[Queue]:
        def read(connection: apsw.Connection) -> list[Queue]:
            rows = fetch(connection, _SQL["queues"], (sender.mesh_id,))
            return [Queue(name=name, created_at=at, ready=ready, leased=leased) for name, at, ready, leased in rows]

        return await self._database.read(read)

    async def work(self, sender: Sender, queue: str, lease_ttl_ms: int, now_ms: int) -> Work | None:
        return await self._database.write(self._take, _Take(sender, queue, lease_ttl_ms, now_ms))

    async def ack(self, claim: Claim, now_ms: int) -> Moved:
        return await self._database.write(self._ack, _Settle(claim, now_ms))

    async def nack(self, claim: Claim, now_ms: int) -> None:
        await self._database.write(self._nack, _Settle(claim, now_ms))

    async def renew(self, claim: Claim, lease_ttl_ms: int) -> int:
        return await self._database.write(self._renew, _Settle(claim, lease_ttl_ms=lease_ttl_ms))

    async def expire(self, now_ms: int) -> int:
        return await self._database.write(self._expire, now_ms)

    # --- on the writer's thread --------------------------------------------------------------------

    def _take(self, connection: apsw.Connection, asked: Sequence[_Take]) -> list[Work | MeshError | None]:
        return [self._take_one(connection, one) for one in asked]

    def _take_one(self, connection: apsw.Connection, asked: _Take) -> Work | MeshError | None:
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

    def _ack(self, connection: apsw.Connection, settled: Sequence[_Settle]) -> list[Moved | MeshError]:
        return [self._ack_one(connection, one) for one in settled]

    def _ack_one(self, connection: apsw.Connection, asked: _Settle) -> Moved | MeshError:
        held = _find(connection, asked.claim)
        if isinstance(held, MeshError):
            return held
        if held.is_acted and _owner(asked.claim) == held.lease.owner and asked.claim.token == held.lease.token:
            return held.moved  # it was said before, and the answer was lost
        refusal = self._refusal(held, Fence(_owner(asked.claim), asked.claim.token))
        if refusal is None:
            _apply(connection, "settle", held.place, held.place.token)
            _apply(connection, "delivery_acted", held.place, asked.now_ms)
        return refusal or held.moved

    def _nack(self, connection: apsw.Connection, settled: Sequence[_Settle]) -> list[MeshError | None]:
        outcomes: list[MeshError | None] = []
        for one in settled:
            held = _find(connection, one.claim)
            if isinstance(held, MeshError):
                outcomes.append(held)
                continue
            refusal = self._refusal(held, Fence(_owner(one.claim), one.claim.token))
            if refusal is None:
                _give_back(connection, held.place, one.now_ms)
            outcomes.append(refusal)
        return outcomes

    def _renew(self, connection: apsw.Connection, settled: Sequence[_Settle]) -> list[int | MeshError]:
        outcomes: list[int | MeshError] = []
        for one in settled:
            held = _find(connection, one.claim)
            if isinstance(held, MeshError):
                outcomes.append(held)
                continue
            now = self._leases.now_ms()
            verdict = judge(held.lease, Renew(_owner(one.claim), one.claim.token, one.lease_ttl_ms), now)
            if held.is_settled or not isinstance(verdict, Granted):
                outcomes.append(_lost(verdict))
                continue
            _apply(connection, "extend", held.place, held.place.token, verdict.lease.expires_at_ms)
            outcomes.append(verdict.lease.expires_at_ms - now)
        return outcomes

    def _expire(self, connection: apsw.Connection, instants: Sequence[int]) -> list[int]:
        outcomes = []
        for now_ms in instants:
            lease_now = self._leases.now_ms()
            queues = fetch(connection, _SQL["queues_with_expired"], (lease_now,))
            outcomes.append(sum(_take_back_expired(connection, id_, lease_now, now_ms) for (id_,) in queues))
        return outcomes

    def _refusal(self, held: _Held, request: Request) -> MeshError | None:
        verdict = judge(held.lease, request, self._leases.now_ms())
        return None if isinstance(verdict, Granted) and not held.is_settled else _lost(verdict)


def _owner(claim: Claim) -> str:
    return str(claim.sender.member_id)


def _lost(verdict: object) -> LeaseLost:
    return LeaseLost(reason=verdict.because if isinstance(verdict, Lost) else "settled")


def _create(connection: apsw.Connection, asked: Sequence[_Create]) -> list[bool | MeshError]:
    outcomes: list[bool | MeshError] = []
    for one in asked:
        row = (one.sender.mesh_id, one.name, one.sender.member_id, one.now_ms)
        refusal = judge_in_force(connection, one.sender)
        outcomes.append(refusal or run(connection, _SQL["create_queue"], row) > 0)
    return outcomes


def _grant(connection: apsw.Connection, asked: _Take, row: Row, lease_now: int) -> Work:
    history_id, token, returns, sender_id, broker_message_id, client_message_id, pubkey, name, *content = row
    body, meta, reply_to, accepted_at = content
    mesh_id, member_id = asked.sender.mesh_id, asked.sender.member_id
    verdict = judge(Lease(None, token, 0), Acquire(str(member_id), asked.lease_ttl_ms), lease_now)
    if not isinstance(verdict, Granted):
        raise IntegrityError("a vacant lease was not granted")
    granted = verdict.lease
    connection.execute(_SQL["grant"], (mesh_id, history_id, member_id, granted.token, granted.expires_at_ms))
    connection.execute(_SQL["delivery_leased"], (mesh_id, history_id, asked.now_ms, returns + 1))
    return Work(
        sender_id=sender_id,
        broker_message_id=broker_message_id,
        client_message_id=client_message_id,
        history_id=history_id,
        sender_pubkey=pubkey,
        sender_name=name,
        body=body,
        meta=meta,
        reply_to=reply_to,
        accepted_at=accepted_at,
        lease_token=granted.token,
        lease_ttl_ms=asked.lease_ttl_ms,
        returns=returns,
    )


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
    history_id, owner_id, token, expires_at, returns, is_settled, is_acted, sender_id, client_message_id = row
    lease = Lease(None if owner_id is None else str(owner_id), token, expires_at)
    place = _Place(claim.sender.mesh_id, history_id, token, returns)
    return _Held(place, lease, bool(is_settled), bool(is_acted), Moved(sender_id, client_message_id))
