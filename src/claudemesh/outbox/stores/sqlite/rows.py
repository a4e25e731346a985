"""The rows of an outbox: accept, claim, settle, recover, retire, prune.

Each operation is a function on the writer's connection that takes many items: accepts, claims and settles of
concurrent callers share one commit (see `storage.sqlite.writer`). An outbox derives from `OutboxRows`, says what
its rows hold beside what all have, and brings the statements `insert_if_free`, `standing` and `settle`.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from itertools import takewhile
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import apsw
import orjson

from claudemesh.kernel.errors import MeshError, StaleClaim
from claudemesh.kernel.outbox import MACHINE, OutboxEvent, OutboxState
from claudemesh.outbox.model import Backlog, ClaimAsked, Claimed, ClaimedRow, D, OperatorsRow, Settlement
from claudemesh.storage.migrate import load_migrations
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database
from claudemesh.storage.sqlite.room import refusal_beyond
from claudemesh.storage.sqlite.store import SqliteStore

_HERE: Final = files("claudemesh.outbox.stores.sqlite")
_SQL: Final = load_queries(_HERE / "rows.sql")
ROWS_SQL: Final = _HERE / "rows.sql"
MIGRATIONS: Final = load_migrations(_HERE / "migrations")

S = TypeVar("S", bound=Settlement)
T = TypeVar("T")


class Entry(Protocol):
    """A row to insert if its id is free. With a `refusal` nothing is inserted, and that is the answer then."""

    @property
    def row_id(self) -> str: ...
    @property
    def refusal(self) -> MeshError | None: ...


class Stands(Protocol):
    """What stands under an id."""

    @property
    def row_id(self) -> str: ...


E = TypeVar("E", bound=Entry)
R = TypeVar("R", bound=Stands)


class OutboxRows(SqliteStore, ABC, Generic[D, S, E, R]):
    changes_each: ClassVar[int] = 1  # that inserting a row makes: its own, and those of triggers on it

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._accepts_bytes = self._claims_bytes = sys.maxsize

    # --- what differs from one outbox to the other -------------------------------------------------

    @abstractmethod
    def text_of(self, destination: D) -> str: ...

    @abstractmethod
    def parse_destination(self, text: str) -> D: ...

    @abstractmethod
    def id_of(self, entry: E) -> str: ...

    @abstractmethod
    def new_row(self, entry: E) -> tuple[Any, ...]:
        """Return what is bound to `insert_if_free`."""

    @abstractmethod
    def standing_row(self, row: Sequence[Any]) -> R:
        """Read a row of `standing`."""

    @abstractmethod
    def settled_row(self, state: OutboxState, following: OutboxState, settlement: S) -> tuple[Any, ...]:
        """Return what is bound to `settle`."""

    @abstractmethod
    def refused(self, entry: E, refusal: MeshError) -> E:
        """Return the entry as it is when there is no room: refused, unless its id stands."""

    # --- accepting, claiming, settling ---------------------------------------------------------------

    def limit(self, *, accepts_bytes: int, claims_bytes: int) -> None:
        self._accepts_bytes, self._claims_bytes = accepts_bytes, claims_bytes

    def accept(self, submission: E) -> Awaitable[R | None]:
        return self._database.write(self._accept, submission)

    def accept_many(self, submissions: Sequence[E]) -> Awaitable[list[R | MeshError | None]]:
        return self._database.write_many(self._accept, submissions)

    def claim(self, asked: ClaimAsked[D]) -> Awaitable[Claimed[D]]:
        return self._database.write(self._claim, asked)

    def settle(self, settlements: Sequence[S]) -> Awaitable[list[bool]]:
        return self._database.write(self._settle, tuple(settlements))

    async def recover(self, next_attempt_at: int) -> list[Backlog[D]]:
        await self._database.write(_recover, next_attempt_at)
        return await self._database.read(self._backlog)

    async def overdue(self, before: int, after: tuple[int, int], limit: int) -> list[ClaimedRow[D]]:
        def query(connection: apsw.Connection) -> list[ClaimedRow[D]]:
            rows: list[Any] = connection.execute(_SQL["overdue"], (before, *after, limit)).fetchall()
            return [_claimed_row(row, self.parse_destination(row[2])) for row in rows]

        return await self._database.read(query)

    # --- what an operator sees and does ----------------------------------------------------------------

    async def counts(self) -> dict[OutboxState, int]:
        return await self._database.read(_counts)

    async def oldest_open(self) -> int | None:
        def query(connection: apsw.Connection) -> int | None:
            row: Any = connection.execute(_SQL["oldest_open"]).fetchall()[0]
            return None if row[0] is None else int(row[0])

        return await self._database.read(query)

    async def for_operator(self, row_id: str) -> OperatorsRow | None:
        return await self._database.read(lambda connection: operators_row(connection, row_id))

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

    # --- what is remembered ----------------------------------------------------------------------------

    async def remember(self, name: str, value: str) -> None:
        await self._database.write(_remember, (name, value))

    async def recall(self, name: str) -> str | None:
        return await self._database.read(
            lambda connection: first(connection, _SQL["recall"], (name,), lambda row: str(row[0]))
        )

    # --- operations on the writer's connection -----------------------------------------------------------

    def _accept(self, connection: apsw.Connection, submissions: Sequence[E]) -> Sequence[R | MeshError | None]:
        """Insert them if there is room: for all, or for none, so that nobody's batch is taken by half."""
        full = refusal_beyond(connection, self._accepts_bytes)
        if full is not None:
            submissions = [self.refused(one, one.refusal or full) for one in submissions]
        return self._insert(connection, submissions)

    def _insert(self, connection: apsw.Connection, submissions: Sequence[E]) -> Sequence[R | MeshError | None]:
        """Insert all at once; only if some id was taken, look each of them up.

        Inserting first and asking then is one statement for the common case, and changes nothing where an id
        stands.
        """
        rows = [self.new_row(submission) for submission in submissions if submission.refusal is None]
        before = connection.total_changes()
        connection.executemany(self.queries["insert_if_free"], rows)
        if len(rows) == len(submissions) and connection.total_changes() - before == len(rows) * self.changes_each:
            return [None] * len(submissions)
        return [self._what_stands(connection, submission) for submission in submissions]

    def _what_stands(self, connection: apsw.Connection, submission: E) -> R | MeshError | None:
        standing = self.standing(connection, self.id_of(submission))
        if standing is None:
            return submission.refusal
        return None if standing.row_id == submission.row_id else standing

    def standing(self, connection: apsw.Connection, client_message_id: str) -> R | None:
        return first(connection, self.queries["standing"], (client_message_id,), self.standing_row)

    def _claim(
        self, connection: apsw.Connection, asked: Sequence[ClaimAsked[D]]
    ) -> Sequence[Claimed[D] | MeshError]:
        full = refusal_beyond(connection, self._claims_bytes)
        return [full or self._claim_one(connection, claim) for claim in asked]

    def _claim_one(self, connection: apsw.Connection, asked: ClaimAsked[D]) -> Claimed[D]:
        claimed: list[ClaimedRow[D]] = []
        more: set[D] = set()
        stuck: set[D] = set()
        bytes_left = asked.bytes_max
        for destination in asked.destinations:
            rows_max = min(asked.rows_max - len(claimed), asked.rows_each_max)
            bindings = (self.text_of(destination), rows_max)
            rows: list[Any] = connection.execute(_SQL["waiting"], bindings).fetchall()
            if len(rows) == rows_max and (not rows or rows[0][7] == OutboxState.PENDING):
                more.add(destination)
            for place, row in enumerate(rows):
                waiting = _claimed_row(row, destination)
                if row[7] != OutboxState.PENDING:
                    break  # it is out, or in conflict, and holds back its followers
                if waiting.enqueued_at < asked.accepted_since and (
                    waiting.attempts or not asked.only_tried_are_overdue
                ):
                    (more if place else stuck).add(destination)
                    break
                bytes_left -= len(waiting.payload)
                if bytes_left < 0 and claimed:  # a batch's first row goes however large it is
                    more.add(destination)
                    break
                claimed.append(waiting)
        connection.executemany(_SQL["claim"], [(row.seq,) for row in claimed])
        return Claimed(claimed, more, stuck)

    def _settle(self, connection: apsw.Connection, batches: Sequence[Sequence[S]]) -> list[list[bool]]:
        return [self._settle_batch(connection, batch) for batch in batches]

    def _settle_batch(self, connection: apsw.Connection, batch: Sequence[S]) -> list[bool]:
        """Apply the events that their rows allow; say of each whether its row did."""
        seqs = orjson.dumps([settlement.seq for settlement in batch]).decode()
        found: Any = connection.execute(_SQL["states_of"], (seqs,)).fetchall()[0]
        states = {seq: OutboxState(state) for seq, state in orjson.loads(found[0])}
        settled = [self._settled_row(states.get(settlement.seq), settlement) for settlement in batch]
        connection.executemany(self.queries["settle"], [row for row in settled if row is not None])
        return [row is not None for row in settled]

    def _settled_row(self, state: OutboxState | None, settlement: S) -> tuple[Any, ...] | None:
        following = None if state is None else MACHINE.table.get((state, settlement.event))
        return None if state is None or following is None else self.settled_row(state, following, settlement)

    def _backlog(self, connection: apsw.Connection) -> list[Backlog[D]]:
        rows: list[Any] = connection.execute(_SQL["backlog"]).fetchall()
        return [Backlog(self.parse_destination(row[0]), row[1]) for row in rows]


def common_of(state: OutboxState, following: OutboxState, settlement: Settlement) -> tuple[Any, ...]:
    """Return the first eight that are bound to every `settle`: number, states, counts, and when."""
    is_accepted = settlement.event is OutboxEvent.ACCEPTED
    return (
        settlement.seq,
        state,
        following,
        int(settlement.attempted and not is_accepted),
        int(settlement.server_failed),
        settlement.next_attempt_at,
        settlement.last_error,
        settlement.at if is_accepted else None,
    )


def check_unmoved(connection: apsw.Connection, row: OperatorsRow) -> StaleClaim | None:
    """Refuse a decision on a row that has moved since it was looked at: a try in between may have arrived."""
    found = operators_row(connection, row.row_id)
    if found is None or (found.state, found.attempts) != (row.state, row.attempts):
        return StaleClaim(f"the row was {row.state} and has moved since: look again")
    return None


def retire_row(
    connection: apsw.Connection, row: OperatorsRow, *, at: int, by: str, superseded_by: str | None = None
) -> None:
    """Give a row's id up, from the state that it was judged on."""
    MACHINE.step(row.state, OutboxEvent.RETIRED)
    connection.execute(_SQL["retire_row"], (row.seq, row.state, at, by, superseded_by))


def operators_row(connection: apsw.Connection, row_id: str) -> OperatorsRow | None:
    def parse(row: Sequence[Any]) -> OperatorsRow:
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

    return first(connection, _SQL["for_operator"], (row_id,), parse)


def first(
    connection: apsw.Connection, sql: str, bindings: tuple[Any, ...], parse: Callable[[Sequence[Any]], T]
) -> T | None:
    rows: list[Any] = connection.execute(sql, bindings).fetchall()
    return parse(rows[0]) if rows else None


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


def _remember(connection: apsw.Connection, pairs: Sequence[tuple[str, str]]) -> list[None]:
    connection.executemany(_SQL["remember"], pairs)
    return [None] * len(pairs)


def _counts(connection: apsw.Connection) -> dict[OutboxState, int]:
    row: Any = connection.execute(_SQL["counts"]).fetchall()[0]
    waiting, out, conflict, dead = row
    return {
        OutboxState.PENDING: waiting - out,
        OutboxState.INFLIGHT: out,
        OutboxState.CONFLICT: conflict,
        OutboxState.DEAD: dead,
    }


def _claimed_row(row: Sequence[Any], destination: D) -> ClaimedRow[D]:
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
