"""outbox.db: the sends, the directory of members, and what was last negotiated.

Each operation is a function on the writer's connection that takes many items: accepts, claims and settles of
concurrent callers share one commit (see `storage.sqlite.writer`).
"""

import sys
from collections.abc import Awaitable, Sequence
from importlib.resources import files
from itertools import takewhile
from typing import Any, Final

import apsw
import msgspec
import orjson

from claudemesh.daemon.model import (
    Backlog,
    ClaimedRow,
    Destination,
    Member,
    OperatorsRow,
    OutboxRow,
    Retirement,
    Settlement,
    StandingRow,
    Submission,
)
from claudemesh.daemon.ports import ClaimAsked, Claimed
from claudemesh.daemon.stores.sqlite.room import refusal_beyond
from claudemesh.daemon.stores.sqlite.store import SqliteStore
from claudemesh.kernel.errors import IdempotencyConflict, MeshError, StaleClaim
from claudemesh.kernel.fingerprint import Fingerprint, prefix
from claudemesh.kernel.outbox import MACHINE, OutboxEvent, OutboxState
from claudemesh.storage.migrate import load_migrations
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database, Schema
from claudemesh.wire.names import fold_member_name

_HERE: Final = files("claudemesh.daemon.stores.sqlite")
_SQL: Final = load_queries(_HERE / "outbox.sql")
SCHEMA: Final = Schema(0x636D6F62, load_migrations(_HERE / "migrations" / "outbox"))  # "cmob"

_OPEN: Final = frozenset({OutboxState.PENDING, OutboxState.INFLIGHT})
_DEAD: Final = frozenset({OutboxState.DEAD})


class SqliteOutboxStore(SqliteStore):
    schema, queries = SCHEMA, _SQL

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._accepts_bytes = self._claims_bytes = sys.maxsize

    # --- sends -----------------------------------------------------------------------------------

    def limit(self, *, accepts_bytes: int, claims_bytes: int) -> None:
        self._accepts_bytes, self._claims_bytes = accepts_bytes, claims_bytes

    def accept(self, submission: Submission) -> Awaitable[StandingRow | None]:
        return self._database.write(self._accept, submission)

    def accept_many(self, submissions: Sequence[Submission]) -> Awaitable[list[StandingRow | MeshError | None]]:
        return self._database.write_many(self._accept, submissions)

    def _accept(
        self, connection: apsw.Connection, submissions: Sequence[Submission]
    ) -> Sequence[StandingRow | MeshError | None]:
        full = refusal_beyond(connection, self._accepts_bytes)
        if full is not None:
            submissions = [msgspec.structs.replace(one, refusal=one.refusal or full) for one in submissions]
        return _accept(connection, submissions)

    def claim(self, asked: ClaimAsked) -> Awaitable[Claimed]:
        return self._database.write(self._claim, asked)

    def _claim(self, connection: apsw.Connection, asked: Sequence[ClaimAsked]) -> Sequence[Claimed | MeshError]:
        full = refusal_beyond(connection, self._claims_bytes)
        return [full or _claim_one(connection, claim) for claim in asked]

    async def overdue(self, before: int, after: tuple[int, int], limit: int) -> list[ClaimedRow]:
        def query(connection: apsw.Connection) -> list[ClaimedRow]:
            rows: list[Any] = connection.execute(_SQL["overdue"], (before, *after, limit)).fetchall()
            return [_claimed_row(row, Destination.parse(row[2])) for row in rows]

        return await self._database.read(query)

    async def newest_done(self, limit: int) -> list[str]:
        def query(connection: apsw.Connection) -> list[str]:
            return [str(row[0]) for row in connection.execute(_SQL["newest_done"], (limit,)).fetchall()]

        return await self._database.read(query)

    def settle(self, settlements: Sequence[Settlement]) -> Awaitable[list[bool]]:
        return self._database.write(_settle, tuple(settlements))

    async def recover(self, next_attempt_at: int) -> list[Backlog]:
        await self._database.write(_recover, next_attempt_at)
        return await self._database.read(_backlog)

    # --- what an operator sees -------------------------------------------------------------------

    async def find(self, any_id: str) -> OutboxRow | None:
        return await self._database.read(lambda connection: _first(connection, _SQL["find"], (any_id,), _seen_row))

    async def page(self, states: frozenset[OutboxState], after_seq: int, limit: int) -> list[tuple[int, OutboxRow]]:
        name = "page_dead" if states == _DEAD else "page_open" if states == _OPEN else "page"

        def query(connection: apsw.Connection) -> list[tuple[int, OutboxRow]]:
            rows = connection.execute(_SQL[name], (after_seq, limit))
            return [(row[0], _seen_row(row)) for row in rows]

        return await self._database.read(query)

    async def counts(self) -> dict[OutboxState, int]:
        return await self._database.read(_counts)

    async def oldest_open(self) -> int | None:
        def query(connection: apsw.Connection) -> int | None:
            row: Any = connection.execute(_SQL["oldest_open"]).fetchall()[0]
            return None if row[0] is None else int(row[0])

        return await self._database.read(query)

    # --- what an operator does -------------------------------------------------------------------

    async def for_operator(self, row_id: str) -> OperatorsRow | None:
        def query(connection: apsw.Connection) -> OperatorsRow | None:
            rows: list[Any] = connection.execute(_SQL["for_operator"], (row_id,)).fetchall()
            return _operators_row(row_id, rows[0]) if rows else None

        return await self._database.read(query)

    async def retire(self, retirement: Retirement) -> None:
        await self._database.write(_retire, retirement)

    async def prune(self, before: int, after_seq: int, limit: int) -> tuple[int, int | None]:
        return await self._database.write(_prune, (before, after_seq, limit))

    async def ancestors(self, row_id: str) -> list[str]:
        def query(connection: apsw.Connection) -> list[str]:
            found: list[str] = []
            rows: list[Any] = connection.execute(_SQL["ancestors"], (row_id,)).fetchall()
            while rows:
                found.append(rows[0][0])
                rows = connection.execute(_SQL["ancestors"], (found[-1],)).fetchall()
            return found

        return await self._database.read(query)

    # --- what is remembered ----------------------------------------------------------------------

    async def remember_members(self, members: Sequence[Member]) -> None:
        await self._database.write(_remember_members, tuple(members))

    async def members(self) -> list[Member]:
        return await self._database.read(
            lambda connection: [Member(*row) for row in connection.execute(_SQL["members"])]
        )

    async def remember(self, name: str, value: str) -> None:
        await self._database.write(_remember, (name, value))

    async def recall(self, name: str) -> str | None:
        return await self._database.read(
            lambda connection: _first(connection, _SQL["recall"], (name,), lambda row: str(row[0]))
        )


# --- operations on the writer's connection -------------------------------------------------------------


def _accept(
    connection: apsw.Connection, submissions: Sequence[Submission]
) -> Sequence[StandingRow | MeshError | None]:
    """Insert all at once; only if some id was taken, look each of them up.

    Inserting first and asking then is one statement for the common case, and changes nothing where an id stands.
    """
    rows = [_new_row(submission) for submission in submissions if submission.refusal is None]
    before = connection.total_changes()
    connection.executemany(_SQL["insert_if_free"], rows)
    if len(rows) == len(submissions) and connection.total_changes() - before == len(rows):
        return [None] * len(submissions)
    return [_what_stands(connection, submission) for submission in submissions]


def _new_row(submission: Submission) -> tuple[Any, ...]:
    return (
        submission.row_id,
        submission.asked.client_message_id,
        submission.fingerprint,
        submission.asked.to,
        submission.destination.text,
        submission.payload,
        submission.enqueued_at,
    )


def _what_stands(connection: apsw.Connection, submission: Submission) -> StandingRow | MeshError | None:
    standing = _first(connection, _SQL["standing"], (submission.asked.client_message_id,), _standing_row)
    if standing is None:
        return submission.refusal
    return None if standing.row_id == submission.row_id else standing


def _claim_one(connection: apsw.Connection, asked: ClaimAsked) -> Claimed:
    claimed: list[ClaimedRow] = []
    more: set[Destination] = set()
    stuck: set[Destination] = set()
    bytes_left = asked.bytes_max
    for destination in asked.destinations:
        rows_max = asked.rows_max - len(claimed)
        rows: list[Any] = connection.execute(_SQL["waiting"], (destination.text, rows_max)).fetchall()
        if len(rows) == rows_max and (not rows or rows[0][7] == OutboxState.PENDING):
            more.add(destination)
        for place, row in enumerate(rows):
            waiting = _claimed_row(row, destination)
            if row[7] != OutboxState.PENDING:
                break  # it is out, and holds back its followers
            if waiting.enqueued_at < asked.accepted_since:
                (more if place else stuck).add(destination)
                break
            bytes_left -= len(waiting.payload)
            if bytes_left < 0 and claimed:  # a frame's first row goes however large it is
                more.add(destination)
                break
            claimed.append(waiting)
    connection.executemany(_SQL["claim"], [(row.seq,) for row in claimed])
    return Claimed(claimed, more, stuck)


def _settle(connection: apsw.Connection, batches: Sequence[Sequence[Settlement]]) -> list[list[bool]]:
    return [_settle_batch(connection, batch) for batch in batches]


def _settle_batch(connection: apsw.Connection, batch: Sequence[Settlement]) -> list[bool]:
    """Apply the events that their rows allow; say of each whether its row did."""
    seqs = orjson.dumps([settlement.seq for settlement in batch]).decode()
    found: Any = connection.execute(_SQL["states_of"], (seqs,)).fetchall()[0]
    states = {seq: OutboxState(state) for seq, state in orjson.loads(found[0])}
    settled = [_settled_row(states.get(settlement.seq), settlement) for settlement in batch]
    connection.executemany(_SQL["settle"], [row for row in settled if row is not None])
    return [row is not None for row in settled]


def _settled_row(state: OutboxState | None, settlement: Settlement) -> tuple[Any, ...] | None:
    following = None if state is None else MACHINE.table.get((state, settlement.event))
    if following is None:
        return None
    is_accepted = settlement.event is OutboxEvent.ACCEPTED
    return (
        settlement.seq,
        state,
        following,
        int(settlement.attempted and not is_accepted),
        int(settlement.server_failed),
        settlement.next_attempt_at,
        settlement.last_error,
        settlement.broker_message_id,
        settlement.history_id,
        settlement.at if is_accepted else None,
    )


def _retire(connection: apsw.Connection, retirements: Sequence[Retirement]) -> list[MeshError | None]:
    return [_retire_one(connection, retirement) for retirement in retirements]


def _retire_one(connection: apsw.Connection, retirement: Retirement) -> MeshError | None:
    row, successor = retirement.row, retirement.successor
    found = _first(
        connection, _SQL["for_operator"], (row.row_id,), lambda values: _operators_row(row.row_id, values)
    )
    if (found.state, found.attempts) != (row.state, row.attempts):  # a try in between may have arrived
        return StaleClaim(f"the row was {row.state} and has moved since: look again")
    if successor is not None:
        stands = _first(connection, _SQL["standing"], (successor.asked.client_message_id,), _standing_row)
        if stands is not None:
            return IdempotencyConflict(
                "the new id is used already",
                conflict=f"outbox_{stands.state}_fingerprint_mismatch",
                fingerprint_prefix=prefix(successor.fingerprint),
            )
        connection.execute(_SQL["insert_if_free"], _new_row(successor))
    superseded_by = None if successor is None else successor.row_id
    connection.execute(_SQL["retire_row"], (row.seq, row.state, retirement.at, retirement.by, superseded_by))
    return None


def _prune(connection: apsw.Connection, asked: Sequence[tuple[int, int, int]]) -> list[tuple[int, int | None]]:
    return [_prune_page(connection, *one) for one in asked]


def _prune_page(connection: apsw.Connection, before: int, after_seq: int, limit: int) -> tuple[int, int | None]:
    rows: list[Any] = connection.execute(_SQL["ages"], (after_seq, limit)).fetchall()
    old = [seq for seq, enqueued_at in takewhile(lambda row: row[1] < before, rows)]
    emptied = sum(len(connection.execute(_SQL["prune"], (seq,)).fetchall()) for seq in old)
    return emptied, old[-1] if old else None


def _recover(connection: apsw.Connection, instants: Sequence[int]) -> list[None]:
    for next_attempt_at in instants:
        connection.execute(_SQL["recover"], (next_attempt_at,))
    return [None] * len(instants)


def _remember_members(connection: apsw.Connection, lists: Sequence[Sequence[Member]]) -> list[None]:
    for members in lists:
        connection.execute(_SQL["forget_members"])
        connection.executemany(
            _SQL["remember_member"],
            [(m.member_id, m.name, fold_member_name(m.name), m.pubkey, m.role) for m in members],
        )
    return [None] * len(lists)


def _remember(connection: apsw.Connection, pairs: Sequence[tuple[str, str]]) -> list[None]:
    connection.executemany(_SQL["remember"], pairs)
    return [None] * len(pairs)


# --- queries ---------------------------------------------------------------------------------------


def _backlog(connection: apsw.Connection) -> list[Backlog]:
    rows: list[Any] = connection.execute(_SQL["backlog"]).fetchall()
    return [Backlog(Destination.parse(row[0]), row[1]) for row in rows]


def _counts(connection: apsw.Connection) -> dict[OutboxState, int]:
    row: Any = connection.execute(_SQL["counts"]).fetchall()[0]
    waiting, out, dead = row
    return {OutboxState.PENDING: waiting - out, OutboxState.INFLIGHT: out, OutboxState.DEAD: dead}


# --- rows -> values ----------------------------------------------------------------------------------


def _first(connection: apsw.Connection, sql: str, bindings: tuple[Any, ...], parse: Any) -> Any:  # noqa: ANN401
    rows = connection.execute(sql, bindings).fetchall()
    return parse(rows[0]) if rows else None


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


def _claimed_row(row: Sequence[Any], destination: Destination) -> ClaimedRow:
    seq, client_message_id, _, payload, enqueued_at, attempts, server_errors, _ = row
    return ClaimedRow(
        seq=seq,
        client_message_id=client_message_id,
        destination=destination,
        payload=payload,
        enqueued_at=enqueued_at,
        attempts=attempts,
        server_errors=server_errors,
    )


def _operators_row(row_id: str, row: Sequence[Any]) -> OperatorsRow:
    seq, status, payload, to_asked, attempts, client_message_id = row
    return OperatorsRow(
        seq=seq,
        row_id=row_id,
        client_message_id=client_message_id,
        state=OutboxState(status),
        to_asked=to_asked,
        payload=payload,
        attempts=attempts,
    )


def _seen_row(row: Sequence[Any]) -> OutboxRow:
    (_, row_id, client_message_id, status, to, destination, attempts, enqueued_at, next_attempt_at, *rest) = row
    last_error, delivered_at, broker_message_id, history_id, fingerprint, *audit = rest
    aborted_at, aborted_by, superseded_by = audit
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
        fingerprint_prefix=prefix(fingerprint),
        aborted_at=aborted_at,
        aborted_by=aborted_by,
        superseded_by=superseded_by,
    )
