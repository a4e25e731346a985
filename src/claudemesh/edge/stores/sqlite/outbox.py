"""edge/outbox.db: envelopes, what happened to each of them, and when the upstream was away.

What every outbox does with its rows is in `outbox.stores.sqlite.rows`; here is what an envelope holds beside that,
that a status write makes the one before it needless, and that an acknowledged write moves the expectations of those
behind it, in the same commit.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, Final

import apsw
import msgspec
import orjson

from claudemesh.edge.model import (
    ALONE,
    COALESCED,
    WORDS,
    Answer,
    Envelope,
    EnvelopeSeen,
    EnvelopeShown,
    Exportable,
    Headers,
    Settlement,
    StandingRow,
    Submission,
)
from claudemesh.edge.policy import (
    adopt,
    body_of,
    envelope_expectation,
    is_on_same_base,
    read_envelope,
    rebase,
    rebased,
    take_place,
)
from claudemesh.edge.ports import Looked, OutageSeen, Results
from claudemesh.kernel.errors import MeshError, StaleClaim
from claudemesh.kernel.fingerprint import Fingerprint, prefix
from claudemesh.kernel.outbox import MACHINE, OutboxEvent, OutboxState
from claudemesh.kernel.write_errors import KeyReused
from claudemesh.outbox.model import OperatorsRow
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

_HERE: Final = files("claudemesh.edge.stores.sqlite")
_SQL: Final = load_queries(ROWS_SQL, _HERE / "outbox.sql")
SCHEMA: Final = Schema(0x636D6565, in_order(*MIGRATIONS, *load_migrations(_HERE / "migrations")))  # "cmee"

TOO_DEEP: Final = "nested too deeply to be shown"

_envelopes: Final = msgspec.json.Decoder(Envelope)
_encode: Final = msgspec.json.Encoder().encode


class SqliteEnvelopeStore(OutboxRows[str, Settlement, Submission, StandingRow]):
    schema, queries = SCHEMA, _SQL
    changes_each = 2  # the envelope, and the first line of what happened to it

    # --- what an envelope's row holds --------------------------------------------------------------

    def text_of(self, destination: str) -> str:
        return destination

    def parse_destination(self, text: str) -> str:
        return text

    def id_of(self, entry: Submission) -> str:
        return entry.key

    def new_row(self, entry: Submission) -> tuple[Any, ...]:
        envelope = entry.envelope
        return (
            entry.row_id,
            entry.key,
            entry.fingerprint,
            f"{envelope.method} {envelope.path}",
            entry.destination,
            _encode(envelope),
            entry.enqueued_at,
            entry.attempts,
            envelope.route_class,
            int(entry.is_status_write),
        )

    def standing_row(self, row: Sequence[Any]) -> StandingRow:
        row_id, last_id, status, fingerprint, last_error, answer_status, headers, answer = row
        return StandingRow(
            row_id=row_id,
            outbox_id=last_id,
            state=OutboxState(status),
            fingerprint=Fingerprint(fingerprint),
            last_error=last_error,
            answer=None if answer_status is None else _answer(answer_status, headers, answer),
        )

    def settled_row(self, state: OutboxState, following: OutboxState, settlement: Settlement) -> tuple[Any, ...]:
        answer = settlement.answer
        return (
            *common_of(state, following, settlement),
            None if answer is None else answer.status,
            None if answer is None else _render_headers(answer.headers),
            None if answer is None else answer.body or None,
            settlement.theirs,
        )

    def refused(self, entry: Submission, refusal: MeshError) -> Submission:
        return replace(entry, refusal=refusal)

    # --- accepting -----------------------------------------------------------------------------------

    async def look(self, key: str | None, destination: str | None) -> Looked:
        """Return what stands under a key, and whether writes of an entity wait: both as of one moment."""

        def query(connection: apsw.Connection) -> Looked:
            standing = None if key is None else self.standing(connection, key)
            has_open = (
                destination is not None and connection.execute(_SQL["has_open"], (destination,)).fetchall() != []
            )
            return Looked(standing, has_open)

        return await self._database.read(query)

    def _insert(
        self, connection: apsw.Connection, submissions: Sequence[Submission]
    ) -> Sequence[StandingRow | MeshError | None]:
        """As every outbox does; but a status write takes the place of the one before it, if that never went out."""
        if all(one.envelope.route_class == "append" for one in submissions):
            return super()._insert(connection, submissions)
        return [self._insert_one(connection, submission) for submission in submissions]

    def accept_all(self, submissions: Sequence[Submission]) -> Awaitable[list[StandingRow | None]]:
        """Accept all of them in one commit, or none; a key that stands for another request is raised, too."""
        return self._database.write(self._accept_all, tuple(submissions))

    def _accept_all(
        self, connection: apsw.Connection, asked: Sequence[Sequence[Submission]]
    ) -> list[list[StandingRow | None]]:
        return [[self._accept_or_raise(connection, one) for one in submissions] for submissions in asked]

    def _accept_or_raise(self, connection: apsw.Connection, submission: Submission) -> StandingRow | None:
        # What is raised here takes the whole transaction back.
        stands = self._accept(connection, [submission])[0]
        if isinstance(stands, MeshError):
            raise stands
        if stands is not None and stands.fingerprint != submission.fingerprint:
            raise KeyReused(
                f"the key {submission.key} stands for another request here",
                conflict="other_request",
                fingerprint_prefix=prefix(submission.fingerprint),
            )
        return stands

    def _insert_one(self, connection: apsw.Connection, submission: Submission) -> StandingRow | MeshError | None:
        needless = None if submission.attempts else self._needless(connection, submission)
        if needless is None:
            return super()._insert(connection, [self._joining(connection, submission)])[0]
        row, waiting = needless
        merged = replace(submission, envelope=take_place(submission.envelope, waiting))
        stands = super()._insert(connection, [merged])[0]
        if stands is None:
            retire_row(connection, row, at=submission.enqueued_at, by=COALESCED, superseded_by=submission.row_id)
        return stands

    def _joining(self, connection: apsw.Connection, submission: Submission) -> Submission:
        """Return it with what those in front of it were rebased on; not one that the upstream may have as it is."""
        if submission.attempts or not envelope_expectation(submission.envelope):
            return submission
        rows: list[Any] = connection.execute(_SQL["last_rebased"], (submission.destination,)).fetchall()
        envelope = submission.envelope
        for (payload,) in rows:
            envelope = adopt(envelope, _envelopes.decode(payload))
            if envelope is not submission.envelope:
                return replace(submission, envelope=envelope)
        return submission

    def _needless(
        self, connection: apsw.Connection, submission: Submission
    ) -> tuple[OperatorsRow, Envelope] | None:
        """Return the status write that this one makes needless: the last in its lane, untried, on the same base."""
        rows: list[Any] = connection.execute(_SQL["last_open"], (submission.destination,)).fetchall()
        if not submission.is_status_write or not rows:
            return None
        seq, row_id, status, attempts, is_status_write, payload = rows[0]
        if status != OutboxState.PENDING or attempts or not is_status_write:
            return None
        waiting = _envelopes.decode(payload)
        if not is_on_same_base(submission.envelope, waiting):
            return None
        row = OperatorsRow(
            seq=seq,
            row_id=row_id,
            client_message_id="",
            state=OutboxState.PENDING,
            to_asked="",
            payload=payload,
            attempts=attempts,
        )
        return row, waiting

    # --- settling ------------------------------------------------------------------------------------

    def _settle_batch(self, connection: apsw.Connection, batch: Sequence[Settlement]) -> list[bool]:
        """And rebase what waits behind an acknowledged write, before anybody can claim it."""
        held = super()._settle_batch(connection, batch)
        for settlement, is_held in zip(batch, held, strict=True):
            if is_held and settlement.rebase is not None:
                self._rebase_behind(connection, settlement)
        return held

    def _rebase_behind(self, connection: apsw.Connection, settlement: Settlement) -> None:
        by = settlement.rebase
        rows: list[Any] = connection.execute(_SQL["behind"], (settlement.seq,)).fetchall()
        for seq, payload in rows:
            envelope = _envelopes.decode(payload)
            standing = envelope_expectation(envelope)
            wanted = standing if by is None else rebase(standing, by)
            if wanted != standing:
                connection.execute(_SQL["rewrite"], (seq, _encode(rebased(envelope, wanted))))

    # --- what an operator sees -------------------------------------------------------------------------

    async def page(self, state: OutboxState | None, after_seq: int, limit: int) -> list[EnvelopeSeen]:
        def query(connection: apsw.Connection) -> list[EnvelopeSeen]:
            name, bindings = (
                ("page", (after_seq, limit)) if state is None else ("page_of", (after_seq, limit, state))
            )
            rows: list[Any] = connection.execute(_SQL[name], bindings).fetchall()
            return [_seen(row) for row in rows]

        return await self._database.read(query)

    async def show(self, any_id: str) -> EnvelopeShown | None:
        def query(connection: apsw.Connection) -> EnvelopeShown | None:
            rows: list[Any] = connection.execute(_SQL["find"], (any_id,)).fetchall()
            return _shown(connection, rows[0]) if rows else None

        return await self._database.read(query)

    async def blocked(self) -> int:
        """Count what waits behind envelopes in conflict, and so for an operator."""

        def query(connection: apsw.Connection) -> int:
            row: Any = connection.execute(_SQL["blocked"]).fetchall()[0]
            return int(row[0])

        return await self._database.read(query)

    async def theirs(self, seq: int) -> Any:  # noqa: ANN401  JSON is anything
        def query(connection: apsw.Connection) -> Any:  # noqa: ANN401
            found: list[Any] = connection.execute(_SQL["kept"], (seq,)).fetchall()
            return _json(found[0][0]) if found else None

        return await self._database.read(query)

    # --- what an operator does -------------------------------------------------------------------------

    def retire(self, row: OperatorsRow, at: int, by: str, successor: Submission | None = None) -> Awaitable[None]:
        """Cancel an envelope; with a successor the same write goes out under a fresh key, at the end."""
        return self._database.write(self._retire, (row, at, by, successor))

    def _retire(
        self, connection: apsw.Connection, asked: Sequence[tuple[OperatorsRow, int, str, Submission | None]]
    ) -> list[MeshError | None]:
        return [self._retire_one(connection, *one) for one in asked]

    def _retire_one(
        self, connection: apsw.Connection, row: OperatorsRow, at: int, by: str, successor: Submission | None
    ) -> MeshError | None:
        moved = check_unmoved(connection, row)
        if moved is not None:
            return moved
        if successor is not None:
            connection.execute(_SQL["insert_if_free"], self.new_row(successor))
        superseded_by = None if successor is None else successor.row_id
        retire_row(connection, row, at=at, by=by, superseded_by=superseded_by)
        return None

    def condemn(self, row: OperatorsRow, reason: str) -> Awaitable[None]:
        """Mark it dead."""
        return self._database.write(_condemn, (row, reason))

    def reopen(self, row: OperatorsRow, envelope: Envelope, at: int, why: str) -> Awaitable[None]:
        """Put an envelope that is in conflict back into its place in the queue, with what is to be sent now."""
        return self._database.write(_reopen, (row, _encode(envelope), at, why))

    async def prune(self, before: int, after_seq: int, limit: int) -> tuple[int, int | None]:
        emptied, following = await super().prune(before, after_seq, limit)
        if emptied and following is not None:
            await self._database.write(_forget_answers, following)
        return emptied, following

    # --- outages -----------------------------------------------------------------------------------------

    def begin_outage(self, outage_id: str, at: int) -> Awaitable[None]:
        return self._database.write(_begin_outage, (outage_id, at))

    def back_online(self, at: int) -> Awaitable[None]:
        return self._database.write(_back_online, at)

    def end_outage(self, outage_id: str, at: int) -> Awaitable[None]:
        return self._database.write(_end_outage, (outage_id, at))

    async def open_outage(self) -> OutageSeen | None:
        def query(connection: apsw.Connection) -> OutageSeen | None:
            return first(connection, _SQL["open_outage"], (), lambda row: OutageSeen(*row))

        return await self._database.read(query)

    async def results(self, first_seq: int) -> Results:
        def query(connection: apsw.Connection) -> Results:
            rows: list[Any] = connection.execute(_SQL["results"], (first_seq,)).fetchall()
            counts = {WORDS[OutboxState(state)]: count for state, count, _ in rows}
            return Results(counts, sum(coalesced or 0 for *_, coalesced in rows))

        return await self._database.read(query)

    # --- to another machine and back ---------------------------------------------------------------------

    async def export(self, after_seq: int, limit: int) -> list[Exportable]:
        def query(connection: apsw.Connection) -> list[Exportable]:
            rows: list[Any] = connection.execute(_SQL["export"], (after_seq, limit)).fetchall()
            return [_exportable(row) for row in rows]

        return await self._database.read(query)


# --- operations on the writer's connection ---------------------------------------------------------------


def _condemn(connection: apsw.Connection, asked: Sequence[tuple[OperatorsRow, str]]) -> list[MeshError | None]:
    return [_condemn_one(connection, row, reason) for row, reason in asked]


def _condemn_one(connection: apsw.Connection, row: OperatorsRow, reason: str) -> MeshError | None:
    moved = check_unmoved(connection, row)
    if moved is None:
        MACHINE.step(row.state, OutboxEvent.CONDEMNED)
        connection.execute(_SQL["condemn"], (row.seq, row.state, reason))
    return moved


def _reopen(
    connection: apsw.Connection, asked: Sequence[tuple[OperatorsRow, bytes, int, str]]
) -> list[MeshError | None]:
    return [_reopen_one(connection, *one) for one in asked]


def _reopen_one(
    connection: apsw.Connection, row: OperatorsRow, payload: bytes, at: int, why: str
) -> MeshError | None:
    if row.state is not OutboxState.CONFLICT:
        return StaleClaim(f"the envelope is {WORDS[row.state]}, and only one in conflict is decided")
    moved = check_unmoved(connection, row)
    if moved is None:
        connection.execute(_SQL["reopen"], (row.seq, payload, at, why))
    return moved


def _forget_answers(connection: apsw.Connection, upto: Sequence[int]) -> list[None]:
    connection.executemany(_SQL["forget_answers"], [(seq,) for seq in upto])
    return [None] * len(upto)


def _begin_outage(connection: apsw.Connection, asked: Sequence[tuple[str, int]]) -> list[None]:
    connection.executemany(_SQL["begin_outage"], asked)
    return [None] * len(asked)


def _back_online(connection: apsw.Connection, instants: Sequence[int]) -> list[None]:
    connection.executemany(_SQL["back_online"], [(at,) for at in instants])
    return [None] * len(instants)


def _end_outage(connection: apsw.Connection, asked: Sequence[tuple[str, int]]) -> list[None]:
    connection.executemany(_SQL["end_outage"], asked)
    return [None] * len(asked)


# --- rows -> values ----------------------------------------------------------------------------------------


def _seen(row: Sequence[Any]) -> EnvelopeSeen:
    (seq, row_id, key, status, route_class, to_asked, destination, attempts, enqueued_at, updated_at, *rest) = row
    next_attempt_at, delivered_at, last_error, superseded_by, aborted_by, answer_status, payload = rest
    envelope = read_envelope(payload)
    expectation = None if envelope is None else envelope_expectation(envelope)
    return EnvelopeSeen(
        seq=seq,
        id=row_id,
        idempotency_key=key,
        state=WORDS[OutboxState(status)],
        route_class=route_class,
        request=to_asked,
        entity=None if destination.startswith(ALONE) else destination,
        attempts=attempts,
        created_at=enqueued_at,
        updated_at=updated_at,
        next_attempt_at=next_attempt_at,
        acked_at=delivered_at,
        last_error=last_error,
        superseded_by=superseded_by,
        cancelled_by=aborted_by,
        source={} if envelope is None else msgspec.to_builtins(envelope.source),
        expectation={} if expectation is None else msgspec.to_builtins(expectation),
        answer_status=answer_status,
    )


def _shown(connection: apsw.Connection, row: Sequence[Any]) -> EnvelopeShown:
    kept: Any = connection.execute(_SQL["kept"], (row[0],)).fetchall()[0]
    events: list[Any] = connection.execute(_SQL["happened"], (row[0],)).fetchall()
    envelope = read_envelope(row[-1])
    return EnvelopeShown(
        seen=_seen(row),
        mine=None if envelope is None else _showable(body_of(envelope)),
        theirs=_showable(_json(kept[0])),
        answer=_showable(_json(kept[2])),
        happened=[
            {
                "at": at,
                "was": None if was is None else WORDS[OutboxState(was)],
                "became": WORDS[OutboxState(became)],
                "error": error,
                "by": by,
                "superseded_by": superseded_by,
            }
            for at, was, became, error, by, superseded_by in events
        ],
    )


def _exportable(row: Sequence[Any]) -> Exportable:
    seq, row_id, key, fingerprint, destination, payload, enqueued_at, attempts, status, last_error, is_status = row
    return Exportable(
        seq=seq,
        row_id=row_id,
        key=key,
        fingerprint=Fingerprint(fingerprint),
        destination=destination,
        payload=payload,
        enqueued_at=enqueued_at,
        attempts=attempts,
        state=OutboxState(status),
        last_error=last_error,
        is_status_write=bool(is_status),
    )


def _answer(status: int, headers: str | None, body: bytes | None) -> Answer:
    pairs = tuple(
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in orjson.loads(headers or "[]")
    )
    return Answer(status=status, headers=pairs, body=body or b"")


def _render_headers(headers: Headers) -> str:
    return orjson.dumps([(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]).decode()


def _showable(value: Any) -> Any:  # noqa: ANN401  JSON is anything
    """Return the value, or words in its place if it is nested more deeply than every surface can show."""
    try:
        orjson.dumps(value)
    except TypeError:
        return TOO_DEEP
    return value


def _json(body: bytes | None) -> Any:  # noqa: ANN401  JSON is anything
    return None if not body else orjson.loads(body)
