"""What is done now and then: the broker's key, epochs, retention, the orphan check."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import takewhile
from typing import Final

import asyncpg
from msgspec.structs import replace

from claudemesh.broker.model import PlanPage, PlanSwept, SweepPage, Swept, Violation
from claudemesh.broker.policy import EPOCH_SKIP, judge_plan, plan_events, plan_pruned
from claudemesh.broker.presence.policy import derive_seeds
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import ConfigError
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.postgres.database import column
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "upkeep.sql")

CHECK_S: Final = 1800  # it reads everything

# In the order of the columns of `ids_without_rows`.
_PARTS: Final = ("message_history", "message", "delivery_queue", "queue_lease", "queue")

_SEED, _SERVER, _EPOCH, _SWEEP = "broker_seed", "server", "epoch", "dedupe_sweep_position"
_RESUME_SEEDS = "resume_seeds"


class PostgresUpkeepStore:
    def __init__(self, database: Database, clock: Clock, moved: Callable[[int | None], None]) -> None:
        """Call `moved` if the server is not the one it was, with the number of the epoch if this began it."""
        self._database = database
        self._clock = clock
        self._moved = moved
        self._server = b""

    async def broker_seed(self, fresh: bytes) -> bytes:
        await self._database.fetch(_SQL["offer_state"], _SEED, fresh)
        return bytes((await self._database.fetch(_SQL["state"], _SEED))[0][0])

    async def resume_seeds(self, fresh: bytes) -> list[bytes]:
        await self._database.fetch(_SQL["offer_state"], _RESUME_SEEDS, fresh)
        kept = bytes((await self._database.fetch(_SQL["state"], _RESUME_SEEDS))[0][0])
        return derive_seeds(kept, fresh, rotates=False)

    async def rotate_resume_seed(self, fresh: bytes) -> list[bytes]:
        return await self._database.transact(lambda connection: _rotate_resume_seed(connection, fresh))

    async def check(self) -> list[Violation]:
        return await self._database.transact(_check, CHECK_S)

    async def begin_epoch(self, now_ms: int) -> int:
        return await self._database.transact(lambda connection: _begin_epoch(connection, now_ms))

    async def recognise_server(self, connection: Connection) -> None:
        """Begin an epoch if this is not the server, or not the past of it, that the data was written on.

        So it is after a backup was restored or a standby took over: something that was promised may be missing.
        Asked of every connection before it is used, since that may happen while a broker runs.
        """
        server = await _identify_server(connection)
        if server == self._server:
            return
        async with connection.transaction():
            epoch = await _compare_server(connection, server, self._clock.wall_ms())
        known, self._server = self._server, server
        if known or epoch is not None:
            self._moved(epoch)

    async def meshes(self) -> list[int]:
        return column(await self._database.fetch(_SQL["meshes"]))

    async def sweep_messages(self, page: SweepPage) -> Swept:
        return await self._database.transact(lambda connection: _sweep_page(connection, page))

    async def sweep_planned(self, page: PlanPage) -> PlanSwept:
        return await self._database.transact(lambda connection: _sweep_planned(connection, page))

    async def sweep_ids(self, now_ms: int, limit: int) -> int:
        async def sweep(connection: Connection) -> int:
            return await _sweep_pruned(connection, now_ms, limit) + await _sweep_retired(connection, now_ms, limit)

        return await self._database.transact(sweep)

    async def sweep_events(self, before_ms: int, limit: int) -> int:
        async def sweep(connection: Connection) -> int:
            due = plan_events(await connection.fetch(_SQL["old_events"], before_ms, limit))
            await connection.execute(_SQL["delete_events"], due)
            return len(due)

        return await self._database.transact(sweep)


async def _hold(connection: Connection, name: str, initial: bytes) -> bytes:
    """Return what stands under a name, initially this; nobody else changes it until the commit."""
    await connection.execute(_SQL["offer_state"], name, initial)
    return bytes(await connection.fetchval(_SQL["hold_state"], name))


async def _rotate_resume_seed(connection: Connection, fresh: bytes) -> list[bytes]:
    kept = await _hold(connection, _RESUME_SEEDS, b"")
    seeds = derive_seeds(kept, fresh, rotates=True)
    await connection.execute(_SQL["set_state"], _RESUME_SEEDS, b"".join(seeds))
    return seeds


# --- epochs ----------------------------------------------------------------------------------------


async def _identify_server(connection: Connection) -> bytes:
    try:
        return str(await connection.fetchval(_SQL["identify_server"])).encode()
    except asyncpg.InsufficientPrivilegeError as error:  # everybody may, unless somebody took that away
        raise ConfigError("the role may not ask which server this is: grant it pg_control_system()") from error


async def _compare_server(connection: Connection, server: bytes, now_ms: int) -> int | None:
    """Return the number of the epoch that has to begin, if one has to."""
    if await _hold(connection, _SERVER, server) == server:
        return None
    await connection.execute(_SQL["set_state"], _SERVER, server)
    return await _begin_epoch(connection, now_ms)


async def _begin_epoch(connection: Connection, now_ms: int) -> int:
    epoch = int(await _hold(connection, _EPOCH, b"0")) + 1
    await connection.execute(_SQL["set_state"], _EPOCH, str(epoch).encode())
    await connection.fetch(_SQL["hold_counters"])
    await connection.execute(_SQL["jump"], EPOCH_SKIP, epoch, now_ms)
    await connection.execute(_SQL["void_tokens"])  # one that was used since the backup would be good again
    await connection.execute(_SQL["jump_presence"], EPOCH_SKIP)
    return epoch


# --- retention -------------------------------------------------------------------------------------


async def _sweep_page(connection: Connection, page: SweepPage) -> Swept:
    await _hold(connection, _SWEEP, b"0")  # tombstones are numbered in the order of their commits
    asked = (page.mesh_id, page.after_history_id, page.limit)
    rows = await connection.fetch(_SQL["old_messages"], *asked)
    old = column([*takewhile(lambda row: row[1] < page.before_ms, rows)])
    is_done = len(old) < page.limit
    if not old:
        return Swept(0, 0, page.after_history_id, is_done)
    deleted, buried = await _sweep_old(connection, page, old)
    return Swept(deleted, buried, old[-1], is_done)


async def _sweep_planned(connection: Connection, page: PlanPage) -> PlanSwept:
    await _hold(connection, _SWEEP, b"0")
    history_ids = [history_id for history_id, _ in page.planned]
    due, others = judge_plan(page, await connection.fetch(_SQL["planned_messages"], page.mesh_id, history_ids))
    deleted, _ = await _sweep_old(connection, page, column(due))
    return replace(others, deleted=deleted, buried=len(due) - deleted)


async def _sweep_old(connection: Connection, page: SweepPage | PlanPage, old: Sequence[int]) -> tuple[int, int]:
    """Delete these messages, but for what somebody waited for until now; return how many went and were buried."""
    await connection.fetch(_SQL["hold_leases"], page.mesh_id, old)
    buried = await connection.fetchval(_SQL["bury"], page.mesh_id, old, page.now_ms)
    recent = await connection.fetch(_SQL["buried_since"], page.mesh_id, old, page.buried_before_ms)
    due = [*{*old}.difference(column(recent))]
    return await connection.fetchval(_SQL["delete_messages"], page.mesh_id, due, page.now_ms), buried


async def _sweep_pruned(connection: Connection, now_ms: int, limit: int) -> int:
    position = int(await _hold(connection, _SWEEP, b"0"))
    rows = await connection.fetch(_SQL["pruned_ids"], position, limit)
    position, expired = plan_pruned(rows, position, now_ms)
    await connection.execute(_SQL["set_state"], _SWEEP, str(position).encode())
    return await _forget(connection, expired, now_ms)


async def _sweep_retired(connection: Connection, now_ms: int, limit: int) -> int:
    rows = await connection.fetch(_SQL["retired_ids"], now_ms, limit)
    return await _forget(connection, [(row[0], row[1]) for row in rows], now_ms)


async def _forget(connection: Connection, ids: Sequence[tuple[int, str]], now_ms: int) -> int:
    senders, client_message_ids = [sender_id for sender_id, _ in ids], [id_ for _, id_ in ids]
    return int(await connection.fetchval(_SQL["delete_ids"], senders, client_message_ids, now_ms))


# --- the orphan check ------------------------------------------------------------------------------


async def _check(connection: Connection) -> list[Violation]:
    """Compare all rows of all accepts with each other, in one moment of the store."""
    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    await connection.execute(f"SET LOCAL statement_timeout = {CHECK_S * 1000}")
    violations = []
    for client_message_id, sender, *lacks in await connection.fetch(_SQL["ids_without_rows"]):
        missing = [part for part, is_missing in zip(_PARTS, lacks, strict=True) if is_missing]
        violations.append(Violation(client_message_id, sender, missing))
    for query in ("rows_without_ids", "gaps"):
        for client_message_id, sender, missing in await connection.fetch(_SQL[query]):
            violations.append(Violation(client_message_id, sender, [missing]))
    return violations
