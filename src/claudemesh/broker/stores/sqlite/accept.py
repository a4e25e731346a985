"""Everything that one accept writes, for many messages in one transaction.

An item of the writer is a whole batch (one frame), because its messages depend on each other: they are applied in
their order, and behind one that has to be tried again others wait. `_Plan` judges every message of a group first,
from a few questions to the store, and writes then, in a few statements for all of them.

A message that fails unexpectedly must not take its neighbours along. The writer sees to that between batches, by
running each alone; within the one that still fails, `_one_by_one` does the same with a savepoint for each message.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

import apsw
import orjson

from claudemesh.broker.model import (
    NO_RECIPIENT,
    Accepted,
    AcceptOutcome,
    Batch,
    DedupeState,
    Duplicate,
    Message,
    Moved,
    Sender,
    StandingMessage,
)
from claudemesh.broker.policy import Deferrals, derive_duplicate, judge_standing
from claudemesh.broker.stores.destination import Destination
from claudemesh.broker.stores.sqlite.blocks import to_blocks
from claudemesh.broker.stores.sqlite.directory import judge_in_force
from claudemesh.broker.stores.sqlite.rows import Row, fetch, fetch_one
from claudemesh.kernel.errors import DestinationNotFound, IntegrityError, MeshError, NotSubscribed
from claudemesh.kernel.fingerprint import Fingerprint, Kind
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "accept.sql")


@dataclass(frozen=True, slots=True)
class _Retire:
    sender: Sender
    client_message_id: str
    now_ms: int
    expires_at: int | None


class SqliteAcceptStore:
    def __init__(self, database: Database, mint: Callable[[], str]) -> None:
        self._database = database
        self._mint = mint

    async def standing(self, sender_id: int, client_message_ids: Sequence[str]) -> dict[str, StandingMessage]:
        return await self._database.read(lambda connection: _standing(connection, sender_id, client_message_ids))

    async def accept(self, batch: Batch) -> list[AcceptOutcome]:
        return await self._database.write(self._accept, batch)

    async def retire(
        self, sender: Sender, client_message_id: str, now_ms: int, expires_at: int | None
    ) -> Duplicate | None:
        return await self._database.write(_retire, _Retire(sender, client_message_id, now_ms, expires_at))

    # --- on the writer's thread --------------------------------------------------------------------

    def _accept(self, connection: apsw.Connection, batches: Sequence[Batch]) -> list[list[AcceptOutcome]]:
        if len(batches) == 1 and len(batches[0].messages) > 1:
            return [self._accept_alone(connection, batches[0])]
        return self._accept_all(connection, batches)

    def _accept_all(self, connection: apsw.Connection, batches: Sequence[Batch]) -> list[list[AcceptOutcome]]:
        plan = _Plan(connection, self._mint)
        outcomes = [plan.judge(batch) for batch in batches]
        plan.write()
        return outcomes

    def _accept_alone(self, connection: apsw.Connection, batch: Batch) -> list[AcceptOutcome]:
        try:
            with connection:  # a savepoint
                outcomes = self._accept_all(connection, [batch])[0]
        except Exception as error:
            if _is_the_stores_fault(connection, error):
                raise
            outcomes = self._one_by_one(connection, batch)
        return outcomes

    def _one_by_one(self, connection: apsw.Connection, batch: Batch) -> list[AcceptOutcome]:
        deferrals = Deferrals()
        outcomes: list[AcceptOutcome] = []
        for message in batch.messages:
            outcome = deferrals.judge(message.destination) or self._accept_one(connection, batch, message)
            deferrals.note(message.destination, outcome)
            outcomes.append(outcome)
        return outcomes

    def _accept_one(self, connection: apsw.Connection, batch: Batch, message: Message) -> AcceptOutcome:
        single = Batch(batch.sender, (message,), batch.now_ms, batch.expires_at)
        outcome: AcceptOutcome
        try:
            with connection:
                outcome = self._accept_all(connection, [single])[0][0]
        except Exception as error:
            if _is_the_stores_fault(connection, error):
                raise
            outcome = MeshError("the message could not be stored", error=type(error).__name__)
            outcome.__cause__ = error
        return outcome


def _is_the_stores_fault(connection: apsw.Connection, error: Exception) -> bool:
    """Say whether the whole transaction is lost: a full disk, an I/O error. A constraint is one message's."""
    if not connection.in_transaction:
        return True
    return isinstance(error, apsw.Error) and not isinstance(error, apsw.ConstraintError)


# --- one transaction's plan ------------------------------------------------------------------------


@dataclass(slots=True)
class _Rows:
    """What will be written, statement by statement."""

    dedupe: list[Row] = field(default_factory=list)
    history: list[Row] = field(default_factory=list)
    topic_messages: list[Row] = field(default_factory=list)
    messages: list[Row] = field(default_factory=list)
    deliveries: list[Row] = field(default_factory=list)
    leases: list[Row] = field(default_factory=list)
    mentions: list[Row] = field(default_factory=list)
    acted: list[Row] = field(default_factory=list)
    posts: defaultdict[tuple[int, int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    waiting: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # by member: of dms


class _Plan:
    """Asks once, judges everything in order, then writes everything."""

    def __init__(self, connection: apsw.Connection, mint: Callable[[], str]) -> None:
        self._connection = connection
        self._mint = mint
        self._standing: dict[int, dict[str, StandingMessage]] = {}
        self._destinations: dict[tuple[int, Kind, str], Destination | MeshError] = {}
        self._last: dict[int, int] = {}  # by mesh: the last history id given
        self._rows = _Rows()

    def judge(self, batch: Batch) -> list[AcceptOutcome]:
        sender = batch.sender
        revoked = judge_in_force(self._connection, sender)
        if revoked is not None:
            return [revoked for _ in batch.messages]
        standing = self._standing.setdefault(sender.member_id, {})
        asked = [message.client_message_id for message in batch.messages]
        # What this transaction is about to write is newer than what the store says.
        unknown = [id_ for id_ in asked if id_ not in standing]
        standing.update(_standing(self._connection, sender.member_id, unknown))
        return [self._judge_one(batch, message, standing) for message in batch.messages]

    def _judge_one(self, batch: Batch, message: Message, standing: dict[str, StandingMessage]) -> AcceptOutcome:
        stands = standing.get(message.client_message_id)
        if stands is not None:
            return judge_standing(stands, message)
        destination = self._resolve(batch.sender, message)
        if isinstance(destination, MeshError):
            return destination
        accepted = self._add(batch, message, destination)
        standing[message.client_message_id] = StandingMessage(
            DedupeState.ACCEPTED,
            message.fingerprint,
            accepted.broker_message_id,
            accepted.history_id,
            True,  # noqa: FBT003  its history is available
            batch.now_ms,
        )
        return accepted

    # --- what is asked ---

    def _one(self, query: str, *values: object) -> Row | None:
        return fetch_one(self._connection, _SQL[query], values)

    def _resolve(self, sender: Sender, message: Message) -> Destination | MeshError:
        key = (sender.mesh_id, message.kind, message.ref)
        found = self._destinations.get(key)
        if found is None:
            found = self._destinations[key] = self._look_up(*key)
        if message.kind is Kind.TOPIC and isinstance(found, Destination):
            return found if sender.member_id in found.subscribers else NotSubscribed()
        return found

    def _look_up(self, mesh_id: int, kind: Kind, ref: str) -> Destination | MeshError:
        query = {Kind.DM: "find_member", Kind.TOPIC: "find_topic", Kind.QUEUE: "find_queue"}[kind]
        row = self._one(query, mesh_id, ref)
        if row is None:
            return DestinationNotFound(f"there is no such {'member' if kind is Kind.DM else kind.value}")
        if kind is Kind.TOPIC:
            subscribers = fetch(self._connection, _SQL["subscribers"], row)
            return Destination(row[0], subscribers=tuple(id_ for (id_,) in subscribers))
        if kind is Kind.DM:
            return Destination(row[0], to_session=ref if row[1] == "session" else None)
        return Destination(row[0])

    def _next_history_id(self, mesh_id: int) -> int:
        last = self._last.get(mesh_id)
        if last is None:
            row = self._one("last_history_id", mesh_id)
            if row is None:
                raise IntegrityError(f"mesh {mesh_id} has no history counter")
            last = row[0]
        self._last[mesh_id] = last + 1
        return last + 1

    # --- what is going to be written ---

    def _add(self, batch: Batch, message: Message, destination: Destination) -> Accepted:
        rows, mesh_id, sender_id = self._rows, batch.sender.mesh_id, batch.sender.member_id
        broker_message_id, history_id, now = self._mint(), self._next_history_id(mesh_id), batch.now_ms
        cmid = message.client_message_id
        rows.dedupe.append(
            (sender_id, cmid, mesh_id, message.fingerprint, broker_message_id, history_id, now, batch.expires_at)
        )
        rows.history.append(
            (mesh_id, history_id, broker_message_id, sender_id, cmid, message.kind, now, message.sender_seq)
        )
        content = (message.reply_to, message.priority, message.meta, message.encoding, message.body)
        if message.mentions:
            rows.mentions += [(mesh_id, mentioned, history_id) for mentioned in message.mentions]
        answered = self._answer(batch, message.reply_to) if message.reply_to else None
        if message.kind is Kind.TOPIC:
            rows.topic_messages.append((mesh_id, history_id, destination.id, *content))
            rows.posts[mesh_id, destination.id, sender_id].append(history_id)
            return Accepted(broker_message_id, history_id, destination.recipients(sender_id), answered)
        is_dm = message.kind is Kind.DM
        recipient_id, queue_id = (destination.id, None) if is_dm else (None, destination.id)
        addressed = (mesh_id, history_id, recipient_id, queue_id, message.ref, destination.to_session)
        rows.messages.append((*addressed, *content))
        rows.deliveries.append((mesh_id, history_id, destination.id if is_dm else NO_RECIPIENT))
        if is_dm:
            rows.waiting[destination.id].append(history_id)
            return Accepted(broker_message_id, history_id, (destination.id,), answered, destination.to_session)
        rows.leases.append((mesh_id, history_id, destination.id))
        return Accepted(broker_message_id, history_id, answered=answered)

    def _answer(self, batch: Batch, reply_to: str) -> Moved | None:
        mesh_id, sender_id = batch.sender.mesh_id, batch.sender.member_id
        row = self._one("find_answered", reply_to, mesh_id, sender_id)
        if row is None:
            return None
        history_id, recipient_id, author_id, client_message_id = row
        self._rows.acted.append((mesh_id, history_id, recipient_id, batch.now_ms))
        return Moved(author_id, client_message_id)

    def write(self) -> None:
        rows, connection = self._rows, self._connection
        if not rows.dedupe:
            return
        for query, values in (
            ("claim", rows.dedupe),
            ("write_history", rows.history),
            ("write_topic_message", rows.topic_messages),
            ("write_message", rows.messages),
            ("write_delivery", rows.deliveries),
            ("write_lease", rows.leases),
            ("write_mention", rows.mentions),
            ("mark_acted", rows.acted),
        ):
            if values:
                connection.executemany(_SQL[query], values)
        for (mesh_id, topic_id, sender_id), history_ids in rows.posts.items():
            connection.execute(_SQL["fan_out"], (mesh_id, _json(history_ids), topic_id, sender_id))
            for block, bits in to_blocks(history_ids).items():
                connection.execute(_SQL["open_posts"], (block, bits, topic_id, sender_id))
        for member_id, history_ids in rows.waiting.items():
            for block, bits in to_blocks(history_ids).items():
                connection.execute(_SQL["open_deliveries"], (member_id, block, bits))
        for mesh_id, history_id in self._last.items():
            connection.execute(_SQL["advance_history"], (mesh_id, history_id))


# --- questions -------------------------------------------------------------------------------------


def _json(values: Sequence[int] | Sequence[str]) -> str:
    return orjson.dumps(values).decode()


def _standing(
    connection: apsw.Connection, sender_id: int, client_message_ids: Sequence[str]
) -> dict[str, StandingMessage]:
    rows = fetch(connection, _SQL["standing"], (sender_id, _json(client_message_ids)))
    return {row[0]: _standing_message(row) for row in rows}


def _standing_message(row: Row) -> StandingMessage:
    _, state, fingerprint, broker_message_id, history_id, history_available, first_seen_at = row
    return StandingMessage(
        DedupeState(state),
        Fingerprint(fingerprint or b""),
        broker_message_id,
        history_id,
        bool(history_available),
        first_seen_at,
    )


def _retire(connection: apsw.Connection, asked: Sequence[_Retire]) -> list[Duplicate | MeshError | None]:
    outcomes: list[Duplicate | MeshError | None] = []
    for one in asked:
        sender, id_ = one.sender, one.client_message_id
        stands = _standing(connection, sender.member_id, [id_]).get(id_)
        if stands is None:
            values = (sender.member_id, id_, sender.mesh_id, one.now_ms, one.expires_at)
            connection.execute(_SQL["retire"], values)
        has_message = stands is not None and stands.state is DedupeState.ACCEPTED
        outcomes.append(derive_duplicate(stands) if stands is not None and has_message else None)
    return outcomes
