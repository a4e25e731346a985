"""Everything that one accept writes, for many messages in one transaction of a few statements.

The order of an accept's locks is fixed: first the ids, sorted; then the counters of the meshes, sorted; then
nothing that another accept could hold. The destination is looked up under the counter, and whoever subscribes,
leaves or revokes takes the counter too: so what is found still holds at the commit.

All accepts of a mesh go through one writer of this process, in the order in which they came; brokers beside it wait
for the counter. A message that fails unexpectedly must not take its neighbours along: then the writer runs every
frame alone, and that frame message by message.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from claudemesh.broker.model import (
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
from claudemesh.broker.stores.postgres.writers import MeshWriters, lock_counters
from claudemesh.kernel.errors import (
    DestinationNotFound,
    IntegrityError,
    MeshError,
    NotSubscribed,
    Revoked,
    StoreUnavailable,
)
from claudemesh.kernel.fingerprint import Fingerprint, Kind
from claudemesh.storage.postgres import Connection, Database, Record
from claudemesh.storage.postgres.errors import is_the_stores_fault
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "accept.sql")

_Key = tuple[int, str]  # sender, client message id


class PostgresAcceptStore:
    def __init__(self, database: Database, mint: Callable[[], str], writers: MeshWriters) -> None:
        self._database = database
        self._mint = mint
        self._writers = writers

    async def standing(self, sender_id: int, client_message_ids: Sequence[str]) -> dict[str, StandingMessage]:
        if not client_message_ids:
            return {}
        senders = [sender_id] * len(client_message_ids)
        rows = await self._database.fetch(_SQL["standing"], senders, client_message_ids)
        return {row[1]: _standing_message(row) for row in rows}

    async def accept(self, batch: Batch) -> list[AcceptOutcome]:
        writer = self._writers.of(batch.sender.mesh_id)
        return await writer.submit(self._accept, batch, weight=len(batch.messages), alone=self._accept_with_care)

    async def retire(
        self, sender: Sender, client_message_id: str, now_ms: int, expires_at: int | None
    ) -> Duplicate | None:
        row = (sender.member_id, client_message_id, sender.mesh_id, now_ms, expires_at)
        if await self._writers.of(sender.mesh_id).submit(_retire, row):
            return None
        stands = (await self.standing(sender.member_id, [client_message_id]))[client_message_id]
        return derive_duplicate(stands) if stands.state is DedupeState.ACCEPTED else None

    # --- in a writer's transaction -----------------------------------------------------------------

    async def _accept(self, connection: Connection, batches: Sequence[Batch]) -> list[list[AcceptOutcome]]:
        offers = [_Offer(batch, message, self._mint()) for batch in batches for message in batch.messages]
        await _apply(connection, offers)
        outcomes = (_settled(offer) for offer in offers)
        return [[next(outcomes) for _ in batch.messages] for batch in batches]

    async def _accept_with_care(
        self, connection: Connection, batches: Sequence[Batch]
    ) -> list[list[AcceptOutcome]]:
        """Accept what failed as a whole, a savepoint for each message: only the one at fault fails."""
        return [await self._one_by_one(connection, batch) for batch in batches]

    async def _one_by_one(self, connection: Connection, batch: Batch) -> list[AcceptOutcome]:
        deferrals = Deferrals()
        outcomes: list[AcceptOutcome] = []
        for message in batch.messages:
            outcome = deferrals.judge(message.destination) or await self._accept_one(connection, batch, message)
            deferrals.note(message.destination, outcome)
            outcomes.append(outcome)
        return outcomes

    async def _accept_one(self, connection: Connection, batch: Batch, message: Message) -> AcceptOutcome:
        single = Batch(batch.sender, (message,), batch.now_ms, batch.expires_at)
        try:
            async with connection.transaction():
                return (await self._accept(connection, [single]))[0][0]
        except Exception as error:
            if is_the_stores_fault(error):
                raise
            outcome = MeshError("the message could not be stored", error=type(error).__name__)
            outcome.__cause__ = error
            return outcome


# --- one transaction -------------------------------------------------------------------------------


async def _retire(connection: Connection, rows: Sequence[tuple[object, ...]]) -> list[bool]:
    return [bool(await connection.fetch(_SQL["retire"], *row)) for row in rows]


@dataclass(slots=True, eq=False)
class _Offer:
    """A message, the id it will have, and what becomes of it."""

    batch: Batch
    message: Message
    broker_message_id: str
    outcome: AcceptOutcome | None = None
    history_id: int = 0

    @property
    def key(self) -> _Key:
        return self.batch.sender.member_id, self.message.client_message_id

    @property
    def mesh_id(self) -> int:
        return self.batch.sender.mesh_id

    def to_standing(self) -> StandingMessage:
        """Return what stands under the id once this is committed."""
        return StandingMessage(
            DedupeState.ACCEPTED,
            self.message.fingerprint,
            self.broker_message_id,
            self.history_id,
            True,  # noqa: FBT003  its history is available
            self.batch.now_ms,
        )


def _settled(offer: _Offer) -> AcceptOutcome:
    if offer.outcome is None:
        raise IntegrityError("an accept came to no outcome")
    return offer.outcome


async def _apply(connection: Connection, offers: Sequence[_Offer]) -> None:
    """Give each offer its outcome, in order. Of one id twice the second is judged by what became of the first."""
    if not offers:
        return
    first: dict[_Key, _Offer] = {}
    for offer in offers:
        first.setdefault(offer.key, offer)
    standing = await _claim(connection, list(first.values()))
    claimed = [offer for offer in offers if offer.key not in standing]
    counters = await lock_counters(connection, [offer.batch.sender for offer in claimed]) if claimed else {}
    resolved = _Resolved(await connection.fetch(_SQL["resolve"], *_asked(offers, claimed)))
    taken: dict[_Key, tuple[_Offer, Destination]] = {}
    for offer in offers:
        if not resolved.is_in_force(offer.batch.sender):  # told so also about what was accepted before
            offer.outcome = Revoked()
        elif offer.key in standing:
            offer.outcome = judge_standing(standing[offer.key], offer.message)
        elif offer.key in taken:
            offer.outcome = judge_standing(taken[offer.key][0].to_standing(), offer.message)
        else:
            destination = resolved.find(offer.batch.sender, offer.message)
            if isinstance(destination, MeshError):
                offer.outcome = destination
            else:
                _number(offer, destination, counters)
                taken[offer.key] = offer, destination
    await _release(connection, [one for key, one in first.items() if key not in standing], taken)
    if taken:
        await _write(connection, list(taken.values()))


async def _claim(connection: Connection, offers: Sequence[_Offer]) -> dict[_Key, StandingMessage]:
    """Use the ids that are free; return what stands under the others."""
    rows = await connection.fetch(_SQL["claim"], *_columns(_claim_row(offer) for offer in offers))
    if len(rows) == len(offers):
        return {}
    won = {row[0] for row in rows}
    lost = [offer.key for offer in offers if offer.broker_message_id not in won]
    # A statement of its own: whoever was first may have committed after the last one began.
    found = {
        (row[0], row[1]): _standing_message(row)
        for row in await connection.fetch(_SQL["standing"], *_columns(lost))
    }
    if len(found) < len(lost):
        raise StoreUnavailable("an id was used and forgotten in the same moment")
    return found


def _number(offer: _Offer, destination: Destination, last: dict[int, int]) -> None:
    """Give it the next place in the order of its mesh."""
    if offer.mesh_id not in last:
        raise IntegrityError(f"mesh {offer.mesh_id} has no history counter")
    last[offer.mesh_id] = offer.history_id = last[offer.mesh_id] + 1
    offer.outcome = _accepted(offer, destination)


async def _release(
    connection: Connection, claimed: Sequence[_Offer], taken: dict[_Key, tuple[_Offer, Destination]]
) -> None:
    """Free the ids of what was refused; one may be used by what was accepted under it later in this transaction.

    Nobody else comes between: until the commit they wait for this transaction, whatever it does with the id.
    """
    refused = [offer for offer in claimed if not isinstance(offer.outcome, Accepted)]
    if not refused:
        return
    await connection.execute(_SQL["release"], *_columns(offer.key for offer in refused))
    later = [taken[offer.key][0] for offer in refused if offer.key in taken]
    if later:
        await connection.fetch(_SQL["claim"], *_columns(_claim_row(offer) for offer in later))


async def _write(connection: Connection, taken: Sequence[tuple[_Offer, Destination]]) -> None:
    await connection.execute(_SQL["write"], *_columns(_row(offer, place) for offer, place in taken))
    await _write_rest(connection, taken)


def _accepted(offer: _Offer, destination: Destination, answered: Moved | None = None) -> Accepted:
    recipients: tuple[int, ...] = ()
    if offer.message.kind is Kind.TOPIC:
        recipients = destination.recipients(offer.batch.sender.member_id)
    elif offer.message.kind is Kind.DM:
        recipients = (destination.id,)
    return Accepted(offer.broker_message_id, offer.history_id, recipients, answered, destination.to_session)


async def _write_rest(connection: Connection, taken: Sequence[tuple[_Offer, Destination]]) -> None:
    """Write what only some messages have: mentions, and what they answer."""
    mentions = [
        (offer.mesh_id, offer.history_id, mentioned) for offer, _ in taken for mentioned in offer.message.mentions
    ]
    if mentions:
        await connection.execute(_SQL["write_mentions"], *_columns(mentions))
    replies = [(offer, destination) for offer, destination in taken if offer.message.reply_to]
    if not replies:
        return
    asked = _columns(
        (offer.message.reply_to, offer.mesh_id, offer.batch.sender.member_id, offer.batch.now_ms)
        for offer, _ in replies
    )
    for place, sender_id, client_message_id in await connection.fetch(_SQL["mark_acted"], *asked):
        offer, destination = replies[place - 1]
        offer.outcome = _accepted(offer, destination, Moved(sender_id, client_message_id))


class _Resolved:
    """What `resolve` found."""

    def __init__(self, rows: Iterable[Record]) -> None:
        self._senders: set[tuple[int, int]] = set()
        self._found: dict[tuple[int, str, str], Destination] = {}
        for what, mesh_id, ref, id_, to_session, subscribers in rows:
            if what == "sender":
                self._senders.add((mesh_id, id_))
            else:
                self._found[mesh_id, what, ref] = Destination(id_, to_session, tuple(subscribers or ()))

    def is_in_force(self, sender: Sender) -> bool:
        return (sender.mesh_id, sender.member_id) in self._senders

    def find(self, sender: Sender, message: Message) -> Destination | MeshError:
        kind = message.kind
        found = self._found.get((sender.mesh_id, kind.value, message.ref))
        if found is None:
            return DestinationNotFound(f"there is no such {'member' if kind is Kind.DM else kind.value}")
        if kind is Kind.TOPIC and sender.member_id not in found.subscribers:
            return NotSubscribed()
        return found


# --- rows ------------------------------------------------------------------------------------------


def _columns(rows: Iterable[Sequence[object]]) -> list[tuple[object, ...]]:
    """Turn rows into the arrays that `unnest` makes rows of again."""
    return list(zip(*rows, strict=True))


def _asked(offers: Iterable[_Offer], claimed: Iterable[_Offer]) -> list[object]:
    senders = list({offer.batch.sender.member_id for offer in offers})
    wanted: defaultdict[Kind, set[tuple[int, str]]] = defaultdict(set)
    for offer in claimed:
        wanted[offer.message.kind].add((offer.mesh_id, offer.message.ref))
    asked: list[object] = [senders]
    for kind in (Kind.DM, Kind.TOPIC, Kind.QUEUE):
        asked += [[mesh_id for mesh_id, _ in wanted[kind]], [ref for _, ref in wanted[kind]]]
    return asked


def _claim_row(offer: _Offer) -> tuple[object, ...]:
    batch, message = offer.batch, offer.message
    return (
        batch.sender.member_id,
        message.client_message_id,
        batch.sender.mesh_id,
        message.fingerprint,
        offer.broker_message_id,
        batch.now_ms,
        batch.expires_at,
    )


def _row(offer: _Offer, destination: Destination) -> tuple[object, ...]:
    batch, message = offer.batch, offer.message
    return (
        batch.sender.mesh_id,
        offer.history_id,
        offer.broker_message_id,
        batch.sender.member_id,
        message.client_message_id,
        message.kind.value,
        batch.now_ms,
        message.sender_seq,
        destination.id,
        message.ref,
        destination.to_session,
        message.reply_to,
        message.priority.value,
        message.meta,
        message.encoding,
        message.body,
    )


def _standing_message(row: Record) -> StandingMessage:
    _, _, state, fingerprint, broker_message_id, history_id, history_available, first_seen_at = row
    return StandingMessage(
        DedupeState(state),
        Fingerprint(fingerprint or b""),
        broker_message_id,
        history_id,
        history_available,
        first_seen_at,
    )
