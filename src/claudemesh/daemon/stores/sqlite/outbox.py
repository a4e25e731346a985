"""outbox.db: the sends, the directory of members, and what was last negotiated.

What every outbox does with its rows is in `outbox.stores.sqlite.rows`; here is what a send holds beside that.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

import apsw
import msgspec

from claudemesh.daemon.model import (
    Destination,
    Member,
    OutboxRow,
    Retirement,
    Settlement,
    StandingRow,
    Submission,
)
from claudemesh.daemon.ports import OutboxTraffic, Pace, Shown, SpansAsked
from claudemesh.kernel.errors import IdempotencyConflict, MeshError
from claudemesh.kernel.fingerprint import Fingerprint, prefix
from claudemesh.kernel.outbox import OutboxState
from claudemesh.outbox.stores.sqlite.rows import (
    MIGRATIONS,
    ROWS_SQL,
    OutboxRows,
    check_unmoved,
    common_of,
    first,
    retire_row,
)
from claudemesh.storage.migrate import in_order, load_migrations
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Schema
from claudemesh.wire.names import fold_member_name

_HERE: Final = files("claudemesh.daemon.stores.sqlite")
_SQL: Final = load_queries(ROWS_SQL, _HERE / "outbox.sql")
SCHEMA: Final = Schema(
    0x636D6F62, in_order(*MIGRATIONS, *load_migrations(_HERE / "migrations" / "outbox"))
)  # "cmob"

_NEWEST: Final[dict[Shown, str]] = {
    "all": "page_newest",
    "open": "page_newest_open",
    "dead": "page_newest_dead",
}
_OPEN: Final = frozenset({OutboxState.PENDING, OutboxState.INFLIGHT})
_DEAD: Final = frozenset({OutboxState.DEAD})


class SqliteOutboxStore(OutboxRows[Destination, Settlement, Submission, StandingRow]):
    schema, queries = SCHEMA, _SQL

    # --- what a send's row holds -------------------------------------------------------------------

    def text_of(self, destination: Destination) -> str:
        return destination.text

    def parse_destination(self, text: str) -> Destination:
        return Destination.parse(text)

    def id_of(self, entry: Submission) -> str:
        return entry.asked.client_message_id

    def new_row(self, entry: Submission) -> tuple[Any, ...]:
        return (
            entry.row_id,
            entry.asked.client_message_id,
            entry.fingerprint,
            entry.asked.to,
            entry.destination.text,
            entry.payload,
            entry.enqueued_at,
        )

    def standing_row(self, row: Sequence[Any]) -> StandingRow:
        return _standing_row(row)

    def settled_row(self, state: OutboxState, following: OutboxState, settlement: Settlement) -> tuple[Any, ...]:
        return (
            *common_of(state, following, settlement),
            settlement.broker_message_id,
            settlement.history_id,
            settlement.decision,
        )

    def refused(self, entry: Submission, refusal: MeshError) -> Submission:
        return msgspec.structs.replace(entry, refusal=refusal)

    # --- what an operator sees and does ------------------------------------------------------------

    async def newest_done(self, limit: int) -> list[str]:
        def query(connection: apsw.Connection) -> list[str]:
            return [str(row[0]) for row in connection.execute(_SQL["newest_done"], (limit,)).fetchall()]

        return await self._database.read(query)

    async def find(self, any_id: str) -> OutboxRow | None:
        return await self._database.read(lambda connection: first(connection, _SQL["find"], (any_id,), _seen_row))

    async def page(self, states: frozenset[OutboxState], after_seq: int, limit: int) -> list[tuple[int, OutboxRow]]:
        name = "page_dead" if states == _DEAD else "page_open" if states == _OPEN else "page"

        def query(connection: apsw.Connection) -> list[tuple[int, OutboxRow]]:
            rows: list[Any] = connection.execute(_SQL[name], (after_seq, limit)).fetchall()
            return [(row[0], _seen_row(row)) for row in rows]

        return await self._database.read(query)

    async def newest(self, which: Shown, before_seq: int, limit: int) -> list[tuple[int, OutboxRow]]:
        def query(connection: apsw.Connection) -> list[tuple[int, OutboxRow]]:
            rows: list[Any] = connection.execute(_SQL[_NEWEST[which]], (before_seq, limit)).fetchall()
            return [(row[0], _seen_row(row)) for row in rows]

        return await self._database.read(query)

    async def traffic(self, asked: SpansAsked) -> OutboxTraffic:
        def query(connection: apsw.Connection) -> OutboxTraffic:
            sent: list[Any] = connection.execute(_SQL["sent"], asked._asdict()).fetchall()
            accepted: list[Any] = connection.execute(_SQL["accepted"], asked._asdict()).fetchall()
            return OutboxTraffic(dict(sent), [Pace(*row) for row in accepted])

        return await self._database.read(query)

    async def retire(self, retirement: Retirement) -> None:
        await self._database.write(self._retire, retirement)

    def _retire(self, connection: apsw.Connection, retirements: Sequence[Retirement]) -> list[MeshError | None]:
        return [self._retire_one(connection, retirement) for retirement in retirements]

    def _retire_one(self, connection: apsw.Connection, retirement: Retirement) -> MeshError | None:
        row, successor = retirement.row, retirement.successor
        moved = check_unmoved(connection, row)
        if moved is not None:
            return moved
        if successor is not None:
            stands = self.standing(connection, successor.asked.client_message_id)
            if stands is not None:
                return IdempotencyConflict(
                    "the new id is used already",
                    conflict=f"outbox_{stands.state}_fingerprint_mismatch",
                    fingerprint_prefix=prefix(successor.fingerprint),
                )
            connection.execute(_SQL["insert_if_free"], self.new_row(successor))
        superseded_by = None if successor is None else successor.row_id
        retire_row(connection, row, at=retirement.at, by=retirement.by, superseded_by=superseded_by)
        return None

    # --- who is in the mesh ------------------------------------------------------------------------

    async def remember_members(self, members: Sequence[Member]) -> None:
        await self._database.write(_remember_members, tuple(members))

    async def members(self) -> list[Member]:
        return await self._database.read(
            lambda connection: [Member(*row) for row in connection.execute(_SQL["members"])]
        )


def _remember_members(connection: apsw.Connection, lists: Sequence[Sequence[Member]]) -> list[None]:
    for members in lists:
        connection.execute(_SQL["forget_members"])
        connection.executemany(
            _SQL["remember_member"],
            [(m.member_id, m.name, fold_member_name(m.name), m.pubkey, m.role) for m in members],
        )
    return [None] * len(lists)


def _standing_row(row: Sequence[Any]) -> StandingRow:
    row_id, status, fingerprint, to_asked, destination, broker_message_id, history_id, last_error = row
    return StandingRow(
        row_id=row_id,
        state=OutboxState(status),
        fingerprint=Fingerprint(fingerprint),
        to_asked=to_asked,
        destination=Destination.parse(destination),
        broker_message_id=broker_message_id,
        history_id=history_id,
        last_error=last_error,
    )


def _seen_row(row: Sequence[Any]) -> OutboxRow:
    (_, row_id, client_message_id, status, to, destination, attempts, enqueued_at, next_attempt_at, *rest) = row
    last_error, delivered_at, broker_message_id, history_id, fingerprint, *audit = rest
    aborted_at, aborted_by, superseded_by, decision = audit
    return OutboxRow(
        id=row_id,
        client_message_id=client_message_id,
        status=OutboxState(status),
        to=to,
        destination=destination,
        attempts=attempts,
        enqueued_at=enqueued_at,
        next_attempt_at=next_attempt_at,
        last_error=last_error,
        delivered_at=delivered_at,
        broker_message_id=broker_message_id,
        history_id=history_id,
        fingerprint=Fingerprint(fingerprint),
        aborted_at=aborted_at,
        aborted_by=aborted_by,
        superseded_by=superseded_by,
        decision=decision,
    )
