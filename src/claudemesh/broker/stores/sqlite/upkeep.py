"""What is done now and then: the broker's key, retention, the orphan check."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import takewhile
from typing import Final

import apsw
import orjson
from msgspec.structs import replace

from claudemesh.broker.model import PlanPage, PlanSwept, SweepPage, Swept, Violation
from claudemesh.broker.policy import EPOCH_SKIP, judge_plan, plan_events, plan_pruned
from claudemesh.broker.presence.policy import derive_seeds
from claudemesh.broker.stores.sqlite.blocks import BLOCK
from claudemesh.broker.stores.sqlite.deliveries import close
from claudemesh.broker.stores.sqlite.presence import void_tokens
from claudemesh.broker.stores.sqlite.rows import Row, fetch, fetch_one, run
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "upkeep.sql")

# In the order of the columns of `ids_without_rows`.
_PARTS: Final = ("message_history", "message", "delivery_queue", "queue_lease", "queue")

_DELETIONS: Final = (
    "delete_topic_message",
    "delete_message",
    "delete_deliveries",
    "delete_mentions",
    "delete_lease",
    "delete_history",
)


@dataclass(frozen=True, slots=True)
class _SweepIds:
    now_ms: int
    limit: int


@dataclass(frozen=True, slots=True)
class _SweepEvents:
    before_ms: int
    limit: int


class SqliteUpkeepStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def broker_seed(self, fresh: bytes) -> bytes:
        return await self._database.write(_seed, fresh)

    async def check(self) -> list[Violation]:
        return await self._database.read(check)

    async def resume_seeds(self, fresh: bytes) -> list[bytes]:
        return await self._database.write(_resume_seeds, (fresh, False))

    async def rotate_resume_seed(self, fresh: bytes) -> list[bytes]:
        return await self._database.write(_resume_seeds, (fresh, True))

    async def begin_epoch(self, now_ms: int) -> int:
        return await self._database.write(_begin_epochs, now_ms)

    async def meshes(self) -> list[int]:
        return await self._database.read(lambda connection: [id_ for (id_,) in fetch(connection, _SQL["meshes"])])

    async def sweep_messages(self, page: SweepPage) -> Swept:
        return await self._database.write(_sweep_messages, page)

    async def sweep_planned(self, page: PlanPage) -> PlanSwept:
        return await self._database.write(_sweep_planned, page)

    async def sweep_ids(self, now_ms: int, limit: int) -> int:
        return await self._database.write(_sweep_ids, _SweepIds(now_ms, limit))

    async def sweep_events(self, before_ms: int, limit: int) -> int:
        return await self._database.write(_sweep_events, _SweepEvents(before_ms, limit))


def _seed(connection: apsw.Connection, offers: Sequence[bytes]) -> list[bytes]:
    outcomes = []
    for offer in offers:
        connection.execute(_SQL["offer_seed"], (offer,))
        outcomes.append(bytes(fetch(connection, _SQL["seed"])[0][0]))
    return outcomes


def _resume_seeds(connection: apsw.Connection, offers: Sequence[tuple[bytes, bool]]) -> list[list[bytes]]:
    outcomes = []
    for fresh, rotates in offers:
        found = fetch_one(connection, _SQL["resume_seeds"])
        kept = bytes(found[0]) if found else b""
        seeds = derive_seeds(kept, fresh, rotates=rotates)
        if b"".join(seeds) != kept:  # which they mostly are: nothing is written then
            connection.execute(_SQL["keep_resume_seeds"], (b"".join(seeds),))
        outcomes.append(seeds)
    return outcomes


def _begin_epochs(connection: apsw.Connection, instants: Sequence[int]) -> list[int]:
    outcomes = []
    for now_ms in instants:
        found = fetch_one(connection, _SQL["epoch"])
        epoch = int(found[0]) + 1 if found else 1
        connection.execute(_SQL["keep_epoch"], (str(epoch).encode(),))
        connection.execute(_SQL["note_jumps"], (EPOCH_SKIP, epoch, now_ms))
        connection.execute(_SQL["jump"], (EPOCH_SKIP,))
        connection.execute(_SQL["jump_presence"], (EPOCH_SKIP,))
        void_tokens(connection)  # one that was used since the backup would be good again
        outcomes.append(epoch)
    return outcomes


# --- retention -------------------------------------------------------------------------------------


def _sweep_messages(connection: apsw.Connection, pages: Sequence[SweepPage]) -> list[Swept]:
    return [_sweep_page(connection, page) for page in pages]


def _sweep_page(connection: apsw.Connection, page: SweepPage) -> Swept:
    asked = (page.mesh_id, page.after_history_id, page.limit)
    rows = fetch(connection, _SQL["old_messages"], asked)
    old = [*takewhile(lambda row: row[1] < page.before_ms, rows)]
    deleted, buried = _sweep_old(connection, page, old)
    return Swept(deleted, buried, old[-1][0] if old else page.after_history_id, is_done=len(old) < page.limit)


def _sweep_planned(connection: apsw.Connection, pages: Sequence[PlanPage]) -> list[PlanSwept]:
    outcomes = []
    for page in pages:
        asked = (page.mesh_id, orjson.dumps([history_id for history_id, _ in page.planned]).decode())
        due, others = judge_plan(page, fetch(connection, _SQL["planned_messages"], asked))
        deleted, _ = _sweep_old(connection, page, due)
        outcomes.append(replace(others, deleted=deleted, buried=len(due) - deleted))
    return outcomes


def _sweep_old(connection: apsw.Connection, page: SweepPage | PlanPage, old: Sequence[Row]) -> tuple[int, int]:
    """Delete these messages, but for what somebody waited for until now; return how many went and were buried."""
    deleted = buried = 0
    for history_id, _, broker_message_id, sender_id, client_message_id in old:
        key = (page.mesh_id, history_id)
        waiting = fetch(connection, _SQL["waiting"], key)
        newly = run(connection, _SQL["bury"], (*key, page.now_ms))
        if newly:
            for (member_id,) in waiting:
                close(connection, member_id, [history_id])
            connection.execute(_SQL["settle_lease"], key)
            buried += newly
        if fetch(connection, _SQL["buried_since"], (*key, page.buried_before_ms)):
            continue
        for query in _DELETIONS:
            connection.execute(_SQL[query], key)
        connection.execute(_SQL["flip_history_available"], (sender_id, client_message_id))
        tombstone = (page.mesh_id, sender_id, client_message_id, broker_message_id, history_id, page.now_ms)
        connection.execute(_SQL["bury_message"], tombstone)
        deleted += 1
    return deleted, buried


def _sweep_ids(connection: apsw.Connection, pages: Sequence[_SweepIds]) -> list[int]:
    return [_sweep_pruned(connection, page) + _sweep_retired(connection, page) for page in pages]


def _sweep_pruned(connection: apsw.Connection, page: _SweepIds) -> int:
    found = fetch_one(connection, _SQL["sweep_position"])
    position = int(found[0]) if found else 0
    rows = fetch(connection, _SQL["pruned_ids"], (position, page.limit))
    position, expired = plan_pruned(rows, position, page.now_ms)
    connection.execute(_SQL["keep_sweep_position"], (str(position).encode(),))
    return _forget(connection, expired, page.now_ms)


def _sweep_retired(connection: apsw.Connection, page: _SweepIds) -> int:
    return _forget(connection, fetch(connection, _SQL["retired_ids"], (page.now_ms, page.limit)), page.now_ms)


def _forget(connection: apsw.Connection, ids: Sequence[Row], now_ms: int) -> int:
    for id_ in ids:
        connection.execute(_SQL["bury_id"], (*id_, now_ms))
        connection.execute(_SQL["delete_id"], id_)
    return len(ids)


def _sweep_events(connection: apsw.Connection, pages: Sequence[_SweepEvents]) -> list[int]:
    outcomes = []
    for page in pages:
        due = plan_events(fetch(connection, _SQL["old_events"], (page.before_ms, page.limit)))
        connection.executemany(_SQL["delete_event"], [(id_,) for id_ in due])
        outcomes.append(len(due))
    return outcomes


# --- the orphan check ------------------------------------------------------------------------------


def check(connection: apsw.Connection) -> list[Violation]:
    """Compare all rows of all accepts with each other, in one moment of the store."""
    violations = []
    for client_message_id, sender, *lacks in fetch(connection, _SQL["ids_without_rows"]):
        missing = [part for part, is_missing in zip(_PARTS, lacks, strict=True) if is_missing]
        if missing:
            violations.append(Violation(client_message_id, sender, missing))
    for query, values in (("rows_without_ids", ()), ("open_without_bits", (BLOCK,)), ("gaps", ())):
        for client_message_id, sender, missing in fetch(connection, _SQL[query], values):
            violations.append(Violation(client_message_id, sender, [missing]))
    return violations
