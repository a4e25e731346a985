"""Work queues: one message to one worker, for a time, under a token.

The rule of the lease is `kernel.lease.judge`, by the server's clock and under a lock of the lease's row. The owner
of a lease is a member, and a member may run many workers: it is the token that tells two of them apart. Workers at
several brokers pass over the rows of each other, and wait for nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

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
from claudemesh.broker.stores.postgres.topics import judge_in_force
from claudemesh.broker.stores.postgres.writers import MeshWriters
from claudemesh.broker.stores.rows import to_work
from claudemesh.kernel.errors import DestinationNotFound, MeshError, NotFound
from claudemesh.storage.postgres import Connection, Database, Record
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "work.sql")


@dataclass(frozen=True, slots=True)
class _Held:
    """A lease as it stands at an instant of the server, and the message it is of."""

    place: tuple[int, int]  # mesh, history id
    lease: HeldLease
    returns: int
    moved: Moved
    lease_now: int


class PostgresWorkStore:
    def __init__(self, database: Database, writers: MeshWriters) -> None:
        self._database = database
        self._writers = writers
        self._leases = database.writer()  # apart from the accepts: neither needs to wait for the other

    async def create_queue(self, sender: Sender, name: str, now_ms: int) -> bool:
        return await self._writers.of(sender.mesh_id).submit(_create, CreateQueue(sender, name, now_ms))

    async def queues(self, sender: Sender) -> list[Queue]:
        rows = await self._database.fetch(_SQL["queues"], sender.mesh_id)
        return [Queue(name=name, created_at=at, ready=ready, leased=leased) for name, at, ready, leased in rows]

    async def work(self, sender: Sender, queue: str, lease_ttl_ms: int, now_ms: int) -> Work | None:
        return await self._leases.submit(_take, TakeWork(sender, queue, lease_ttl_ms, now_ms))

    async def ack(self, claim: Claim, now_ms: int, *, handed_over: bool = False) -> Acked:
        return await self._leases.submit(_ack, SettleWork(claim, now_ms, handed_over=handed_over))

    async def nack(self, claim: Claim, now_ms: int) -> None:
        await self._leases.submit(_nack, SettleWork(claim, now_ms))

    async def renew(self, claim: Claim, lease_ttl_ms: int) -> int:
        return await self._leases.submit(_renew, SettleWork(claim, lease_ttl_ms=lease_ttl_ms))

    async def expire(self, now_ms: int) -> int:
        return int((await self._database.fetch(_SQL["take_back"], None, now_ms, QUEUE_RETURNS_MAX))[0][0])


# --- in a writer's transaction -----------------------------------------------------------------------


async def _create(connection: Connection, asked: Sequence[CreateQueue]) -> list[bool | MeshError]:
    outcomes: list[bool | MeshError] = []
    for one in asked:
        row = (one.sender.mesh_id, one.name, one.sender.member_id, one.now_ms)
        refusal = await judge_in_force(connection, one.sender)
        outcomes.append(refusal or bool(await connection.fetch(_SQL["create_queue"], *row)))
    return outcomes


async def _take(connection: Connection, asked: Sequence[TakeWork]) -> list[Work | MeshError | None]:
    return [await _take_one(connection, one) for one in asked]


async def _take_one(connection: Connection, asked: TakeWork) -> Work | MeshError | None:
    refusal = await judge_in_force(connection, asked.sender)
    if refusal is not None:
        return refusal
    queue_id = await connection.fetchval(_SQL["find_queue"], asked.sender.mesh_id, asked.queue)
    if queue_id is None:
        return DestinationNotFound("there is no such queue")
    await connection.fetch(_SQL["take_back"], queue_id, asked.now_ms, QUEUE_RETURNS_MAX)
    row = await connection.fetchrow(_SQL["next_ready"], queue_id)
    return None if row is None else await _grant(connection, asked, row)


async def _grant(connection: Connection, asked: TakeWork, row: Record) -> Work:
    history_id, token, returns, *_, lease_now = row
    mesh_id, member_id = asked.sender.mesh_id, asked.sender.member_id
    lease = derive_grant(asked.sender, token, asked.lease_ttl_ms, lease_now)
    granted = (member_id, lease.token, lease.expires_at_ms)
    await connection.execute(_SQL["grant"], mesh_id, history_id, *granted, asked.now_ms, returns + 1)
    return to_work(row, lease.token, asked.lease_ttl_ms)


async def _ack(connection: Connection, settled: Sequence[SettleWork]) -> list[Acked | MeshError]:
    return [await _ack_one(connection, one) for one in settled]


async def _ack_one(connection: Connection, asked: SettleWork) -> Acked | MeshError:
    held = await _find(connection, asked.claim)
    if isinstance(held, MeshError):
        return held
    acked = Acked(held.moved, derive_acked(held.lease, handed_over=asked.handed_over))
    if is_acked(held.lease, asked.claim):
        return acked
    refusal = judge_ack(held.lease, asked.claim, held.lease_now)
    if refusal is not None:
        return refusal
    if acked.state is DeliveryState.ACTED:
        await connection.execute(_SQL["settle"], *held.place, asked.now_ms)
    else:
        await connection.execute(_SQL["hand_over"], *held.place)
    return acked


async def _nack(connection: Connection, settled: Sequence[SettleWork]) -> list[MeshError | None]:
    return [await _nack_one(connection, one) for one in settled]


async def _nack_one(connection: Connection, asked: SettleWork) -> MeshError | None:
    held = await _find(connection, asked.claim)
    if isinstance(held, MeshError):
        return held
    refusal = judge_settle(held.lease, asked.claim, held.lease_now)
    if refusal is None:
        values = (held.returns + 1, asked.now_ms, QUEUE_RETURNS_MAX)
        await connection.execute(_SQL["give_back"], *held.place, *values)
    return refusal


async def _renew(connection: Connection, settled: Sequence[SettleWork]) -> list[int | MeshError]:
    return [await _renew_one(connection, one) for one in settled]


async def _renew_one(connection: Connection, asked: SettleWork) -> int | MeshError:
    held = await _find(connection, asked.claim)
    if isinstance(held, MeshError):
        return held
    verdict = judge_renew(held.lease, asked.claim, asked.lease_ttl_ms, held.lease_now)
    if isinstance(verdict, MeshError):
        return verdict
    await connection.execute(_SQL["extend"], *held.place, verdict.expires_at_ms)
    return verdict.expires_at_ms - held.lease_now


async def _find(connection: Connection, claim: Claim) -> _Held | MeshError:
    refusal = await judge_in_force(connection, claim.sender)
    if refusal is not None:
        return refusal
    asked = (claim.broker_message_id, claim.sender.mesh_id, claim.queue)
    row = await connection.fetchrow(_SQL["standing"], *asked)
    if row is not None and row["is_settled"]:
        # If whoever settled it was waited for, only the lease is read as it is now: the delivery says what it was.
        row = await connection.fetchrow(_SQL["standing"], *asked)
    if row is None:
        return NotFound("the queue has no such message")
    history_id, owner_id, token, expires_at, returns, is_settled, is_acted, is_dead, *whose, now = row
    lease = HeldLease(owner_id, token, expires_at, is_settled, is_acted, is_dead)
    return _Held((claim.sender.mesh_id, history_id), lease, returns, Moved(*whose), now)
