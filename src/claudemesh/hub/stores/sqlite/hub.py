"""Rows and journal on SQLite: many writes share a transaction, in the order in which they came."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import apsw

from claudemesh.hub.draft import Decision, Draft, keys_of
from claudemesh.hub.model import Kind, Page, Row, Summary, Write
from claudemesh.hub.stores.rows import line_of, newest_of, page_of, row_of, tally_of
from claudemesh.idempotency import KeptResponse, Mark
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.write_errors import MarkLost
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "hub.sql")
_ROW, _APPEND, _PUT = _SQL["row"], _SQL["append"], _SQL["put"]

_Item = tuple[Write, Mark | None]


class SqliteHubStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, write: Write, mark: Mark | None = None) -> Decision:
        return await self._database.write(_write, (write, mark))

    async def get(self, kind: Kind, row_id: str) -> Row | None:
        return await self._database.read(lambda connection: _row(connection, kind, row_id))

    async def page(self, kind: Kind, after_seq: int, limit: int) -> Page:
        def query(connection: apsw.Connection) -> list[Row]:
            return [row_of(row) for row in connection.execute(_SQL["page"], (kind.value, after_seq, limit + 1))]

        return page_of(await self._database.read(query), limit)

    async def summary(self, newest: int) -> Summary:
        def query(connection: apsw.Connection) -> Summary:
            return Summary(
                [tally_of(row) for row in connection.execute(_SQL["tallies"])],
                [newest_of(row) for row in connection.execute(_SQL["newest"], (newest,))],
            )

        return await self._database.read(query)


# --- in the writer's transaction -------------------------------------------------------------------


def _write(connection: apsw.Connection, items: Sequence[_Item]) -> list[Decision | MeshError]:
    found = (_row(connection, kind, row_id) for kind, row_id in keys_of(write for write, _ in items))
    draft = Draft.on(row for row in found if row is not None)
    outcomes = [_decide(connection, draft, write, mark) for write, mark in items]
    if len(draft):
        _apply(connection, draft)
    return outcomes


def _decide(connection: apsw.Connection, draft: Draft, write: Write, mark: Mark | None) -> Decision | MeshError:
    decision = draft.decide(write)
    if mark is not None and decision.is_done:
        answer = decision.answer
        try:
            mark.complete(connection, KeptResponse(answer.status, answer.headers, answer.body))
        except MarkLost as error:
            return error
    draft.keep(decision)
    return decision


def _apply(connection: apsw.Connection, draft: Draft) -> None:
    last_seq: Any = connection.execute(_SQL["last_seq"]).fetchall()[0][0]
    connection.executemany(
        _APPEND,
        [line_of(one) for one in draft.entries(last_seq)],
    )
    connection.executemany(
        _PUT,
        [
            (row.kind.value, row.id, row.seq, row.revision, row.created_at, row.updated_at, row.fields)
            for row in draft.rows(last_seq)
        ],
    )
    if gone := draft.gone():
        connection.executemany(_SQL["remove"], [(kind.value, row_id) for kind, row_id in gone])
    if tallies := draft.tallies():
        connection.executemany(_SQL["count"], [(one.kind.value, one.status, one.rows) for one in tallies])


def _row(connection: apsw.Connection, kind: Kind, row_id: str) -> Row | None:
    found = connection.execute(_ROW, (kind.value, row_id)).fetchall()
    return row_of(found[0]) if found else None
