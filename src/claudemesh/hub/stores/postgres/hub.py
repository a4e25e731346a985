"""Rows and journal on PostgreSQL: many writes share a transaction, and several hubs a database.

The order of a write's locks is fixed: first the rows, sorted; then the callers' marks, each its own; last the
journal's counter. So no two hubs can wait for each other, and lines become visible in the order of their numbers.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from claudemesh.hub.draft import Decision, Draft, keys_of
from claudemesh.hub.model import Kind, Page, Row, Summary, Write
from claudemesh.hub.stores.rows import line_of, newest_of, page_of, row_of, tally_of
from claudemesh.idempotency import KeptResponse, Mark
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.write_errors import MarkLost
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "hub.sql")

_Item = tuple[Write, Mark | None]


class PostgresHubStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer = database.writer()

    async def write(self, write: Write, mark: Mark | None = None) -> Decision:
        return await self._writer.submit(_write, (write, mark), weight=max(1, len(write.asks)))

    async def get(self, kind: Kind, row_id: str) -> Row | None:
        found = await self._database.fetch(_SQL["row"], kind.value, row_id)
        return row_of(found[0]) if found else None

    async def page(self, kind: Kind, after_seq: int, limit: int) -> Page:
        found = await self._database.fetch(_SQL["page"], kind.value, after_seq, limit + 1)
        return page_of([row_of(row) for row in found], limit)

    async def summary(self, newest: int) -> Summary:
        async def query(connection: Connection) -> Summary:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # both of one moment
            tallies = await connection.fetch(_SQL["tallies"])
            last = await connection.fetch(_SQL["newest"], newest)
            return Summary([tally_of(row) for row in tallies], [newest_of(row) for row in last])

        return await self._database.transact(query)


# --- in the writer's transaction -------------------------------------------------------------------


async def _write(connection: Connection, items: Sequence[_Item]) -> list[Decision | MeshError]:
    keys = keys_of(write for write, _ in items)
    found = await connection.fetch(_SQL["lock"], *_columns(keys, 2)) if keys else []
    draft = Draft.on(row_of(row) for row in found)
    outcomes = [await _decide(connection, draft, write, mark) for write, mark in items]
    if len(draft):
        await _apply(connection, draft)
    return outcomes


async def _decide(connection: Connection, draft: Draft, write: Write, mark: Mark | None) -> Decision | MeshError:
    decision = draft.decide(write)
    if mark is not None and decision.is_done:
        answer = decision.answer
        try:
            await mark.complete_async(connection, KeptResponse(answer.status, answer.headers, answer.body))
        except MarkLost as error:
            return error
    draft.keep(decision)
    return decision


async def _apply(connection: Connection, draft: Draft) -> None:
    last_seq = await connection.fetchval(_SQL["take"], len(draft))
    lines = [line_of(one) for one in draft.entries(last_seq)]
    await connection.execute(_SQL["append"], *_columns(lines, 14))
    rows = [
        (row.kind.value, row.id, row.seq, row.revision, row.created_at, row.updated_at, row.fields)
        for row in draft.rows(last_seq)
    ]
    if rows:
        await connection.execute(_SQL["put"], *_columns(rows, 7))
    if gone := draft.gone():
        await connection.execute(_SQL["remove"], *_columns(gone, 2))
    if tallies := [(one.kind.value, one.status, one.rows) for one in draft.tallies()]:
        kinds, statuses, counts = _columns(tallies, 3)
        await connection.execute(_SQL["provide_tallies"], kinds, statuses)
        await connection.execute(_SQL["count"], kinds, statuses, counts)


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[place] for row in rows] for place in range(width)]
