"""inbox.db: what reached this member, each message once, in the order it came."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, TypeVar

import apsw
import orjson

from claudemesh.daemon.ports import (
    Happened,
    InboxFilter,
    InboxMessage,
    InboxSweep,
    InboxTraffic,
    Pace,
    SpansAsked,
    TimelineEntry,
    Waiting,
    Waits,
)
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.fingerprint import Kind
from claudemesh.storage.migrate import load_migrations
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database, Schema
from claudemesh.storage.sqlite.room import refusal_beyond
from claudemesh.storage.sqlite.store import SqliteStore
from claudemesh.storage.sqlite.words import match_all
from claudemesh.wire.frames import DeliverItem

_HERE: Final = files("claudemesh.daemon.stores.sqlite")
_SQL: Final = load_queries(_HERE / "inbox.sql")
PAGE_BYTES: Final = 8 * 1024 * 1024  # of bodies; a page ends with the message that reaches it
SWEPT_UPTO: Final = "swept_upto"  # no event up to this one is sure to be there
PRESENCE_SEQ: Final = "presence_seq"  # up to which of the broker's numbers was told who comes and goes
RESTORING: Final = "restoring"  # up to which history id, while it is not over

SCHEMA: Final = Schema(0x636D6962, load_migrations(_HERE / "migrations" / "inbox"))  # "cmib"


Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class _Arrival:
    items: Sequence[DeliverItem]
    received_at: int


@dataclass(frozen=True, slots=True)
class _Restoration:
    items: Sequence[DeliverItem]
    received_at: int
    upto: int | None  # None when there is no more


@dataclass(frozen=True, slots=True)
class _Comings:
    happened: Sequence[Happened]
    upto: int | None  # None where the broker numbers nothing


class SqliteInboxStore(SqliteStore):
    schema, queries = SCHEMA, _SQL

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._limit_bytes = sys.maxsize

    def limit(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes

    async def receive(self, items: Sequence[DeliverItem], received_at: int) -> list[InboxMessage]:
        return await self._database.write(self._receive, _Arrival(tuple(items), received_at))

    def begin_restore(self) -> None:
        self._database.write_blocking(_note_restored, 0)

    async def restored_upto(self) -> int | None:
        return await self._recall_number(RESTORING)

    async def presence_seq(self) -> int | None:
        return await self._recall_number(PRESENCE_SEQ)

    async def _recall_number(self, name: str) -> int | None:
        def query(connection: apsw.Connection) -> int | None:
            rows: list[Any] = connection.execute(_SQL["recall"], (name,)).fetchall()
            return int(rows[0][0]) if rows else None

        return await self._database.read(query)

    async def restore(self, items: Sequence[DeliverItem], received_at: int, upto: int | None) -> None:
        await self._database.write(self._restore, _Restoration(tuple(items), received_at, upto))

    async def page(self, wanted: InboxFilter, after_seq: int, limit: int) -> list[InboxMessage]:
        return await self._database.read(lambda connection: _page(connection, wanted, after_seq, limit))

    async def find(self, broker_message_id: str) -> InboxMessage | None:
        def query(connection: apsw.Connection) -> InboxMessage | None:
            rows = connection.execute(_SQL["find"], (broker_message_id,)).fetchall()
            return _message(rows[0]) if rows else None

        return await self._database.read(query)

    async def append_events(self, happened: Sequence[Happened]) -> list[TimelineEntry]:
        outcomes = await self._database.write_many(self._append_events, happened)
        return [outcome for outcome in outcomes if isinstance(outcome, TimelineEntry)]

    async def append_presence(self, happened: Sequence[Happened], upto: int | None) -> list[TimelineEntry]:
        return await self._database.write(self._append_presence, _Comings(tuple(happened), upto))

    async def events(self, after_seq: int, limit: int) -> list[TimelineEntry]:
        def query(connection: apsw.Connection) -> list[TimelineEntry]:
            return _up_to_bytes(
                connection.execute(_SQL["events"], (after_seq, limit)),
                _entry,
                lambda entry: 0 if entry.message is None else len(entry.message.body),
            )

        return await self._database.read(query)

    async def mark_read(self, broker_message_ids: Sequence[str], at: int) -> int:
        return await self._database.write(_mark_read, (tuple(broker_message_ids), at))

    async def mark_read_upto(self, seq: int, at: int) -> int:
        return await self._database.write(_mark_read_upto, (seq, at))

    async def untold(self, limit: int) -> list[tuple[int, str]]:
        def query(connection: apsw.Connection) -> list[tuple[int, str]]:
            rows: list[Any] = connection.execute(_SQL["untold"], (limit,)).fetchall()
            return [(row[0], row[1]) for row in rows]

        return await self._database.read(query)

    async def told(self, seqs: Sequence[int]) -> None:
        await self._database.write_many(_told, seqs)

    async def traffic(self, asked: SpansAsked) -> InboxTraffic:
        def query(connection: apsw.Connection) -> InboxTraffic:
            received: list[Any] = connection.execute(_SQL["received"], asked._asdict()).fetchall()
            given_up: list[Any] = connection.execute(_SQL["given_up"], asked._asdict()).fetchall()
            return InboxTraffic([Pace(*row) for row in received], dict(given_up))

        return await self._database.read(query)

    async def sweep(self, sweep: InboxSweep) -> int:
        return await self._database.write(_sweep, sweep)

    async def unread(self) -> int:
        return await self._count("unread", ())

    async def waiting(self, priorities: Sequence[str], limit: int, characters: int) -> Waiting:
        def query(connection: apsw.Connection) -> Waiting:
            counted: list[Any] = connection.execute(_SQL["unread_by_priority"]).fetchall()
            found: list[Waits] = []
            for priority in priorities:
                bindings = {"priority": priority, "limit": limit - len(found), "characters": characters}
                found += [Waits(*row) for row in connection.execute(_SQL["waiting"], bindings)]
            return Waiting(found, dict(counted))

        return await self._database.read(query)

    async def unread_of(self, session_pubkey: str) -> int:
        return await self._count("unread_of", (session_pubkey,))

    async def _count(self, name: str, bindings: tuple[str, ...]) -> int:
        def query(connection: apsw.Connection) -> int:
            row: Any = connection.execute(_SQL[name], bindings).fetchall()[0]
            return int(row[0])

        return await self._database.read(query)

    # --- what takes more room, on the writer's connection ------------------------------------------

    def _receive(
        self, connection: apsw.Connection, arrivals: Sequence[_Arrival]
    ) -> Sequence[list[InboxMessage] | MeshError]:
        full = refusal_beyond(connection, self._limit_bytes)
        return [full or _store_new(connection, one.items, one.received_at, "message") for one in arrivals]

    def _restore(
        self, connection: apsw.Connection, restorations: Sequence[_Restoration]
    ) -> Sequence[MeshError | None]:
        full = refusal_beyond(connection, self._limit_bytes)
        for restoration in restorations if full is None else ():
            _restore(connection, restoration)
        return [full] * len(restorations)

    def _append_events(
        self, connection: apsw.Connection, happened: Sequence[Happened]
    ) -> Sequence[TimelineEntry | MeshError]:
        full = refusal_beyond(connection, self._limit_bytes)
        return [full] * len(happened) if full else _append_events(connection, happened)

    def _append_presence(
        self, connection: apsw.Connection, comings: Sequence[_Comings]
    ) -> Sequence[list[TimelineEntry] | MeshError]:
        full = refusal_beyond(connection, self._limit_bytes)
        return [full or _append_comings(connection, one) for one in comings]


def _store_new(
    connection: apsw.Connection, items: Sequence[DeliverItem], received_at: int, kind: str
) -> list[InboxMessage]:
    """Store what is not held yet, each under the number of its event, and its words in the index of words.

    The index follows by a statement of ours and not by a trigger, under which it writes itself out with every row.
    """
    fresh: dict[tuple[str, str], DeliverItem] = {}
    for item in items:
        known_by = (item.sender_id, item.client_message_id)
        if not connection.execute(_SQL["is_held"], known_by).fetchall():
            fresh.setdefault(known_by, item)
    numbered = [*enumerate(fresh.values(), start=_last_event(connection) + 1)]
    connection.executemany(_SQL["insert_event"], [(seq, kind, received_at, None) for seq, _ in numbered])
    connection.executemany(_SQL["insert"], [_columns(seq, item, received_at) for seq, item in numbered])
    connection.executemany(_SQL["index_words"], [(seq, item.body) for seq, item in numbered])
    return [_as_message(seq, item, received_at) for seq, item in numbered]


def _restore(connection: apsw.Connection, restoration: _Restoration) -> None:
    _store_new(connection, restoration.items, restoration.received_at, "restored")
    if restoration.upto is None:
        connection.execute(_SQL["drop_remembered"], (RESTORING,))
    else:
        _note_restored(connection, [restoration.upto])


def _note_restored(connection: apsw.Connection, history_ids: Sequence[int]) -> list[None]:
    connection.executemany(_SQL["remember"], [(RESTORING, str(history_id)) for history_id in history_ids])
    return [None] * len(history_ids)


def _append_events(connection: apsw.Connection, happened: Sequence[Happened]) -> list[TimelineEntry]:
    numbered = [*enumerate(happened, start=_last_event(connection) + 1)]
    rows = [(seq, event.type, event.at, orjson.dumps(event.data).decode()) for seq, event in numbered]
    connection.executemany(_SQL["insert_event"], rows)
    return [
        TimelineEntry(seq=seq, type=event.type, at=event.at, data=event.data, message=None)
        for seq, event in numbered
    ]


def _append_comings(connection: apsw.Connection, comings: _Comings) -> list[TimelineEntry]:
    if comings.upto is not None:
        connection.execute(_SQL["remember"], (PRESENCE_SEQ, str(comings.upto)))
    return _append_events(connection, comings.happened)


def _last_event(connection: apsw.Connection) -> int:
    row: Any = connection.execute(_SQL["last_event"]).fetchall()[0]
    return int(row[0])


def _mark_read(connection: apsw.Connection, marks: Sequence[tuple[Sequence[str], int]]) -> list[int]:
    return [
        sum(len(connection.execute(_SQL["mark_read"], (one, at)).fetchall()) for one in broker_message_ids)
        for broker_message_ids, at in marks
    ]


def _mark_read_upto(connection: apsw.Connection, marks: Sequence[tuple[int, int]]) -> list[int]:
    return [len(connection.execute(_SQL["mark_read_upto"], mark).fetchall()) for mark in marks]


def _sweep(connection: apsw.Connection, sweeps: Sequence[InboxSweep]) -> list[int]:
    return [_sweep_one(connection, sweep) for sweep in sweeps]


def _sweep_one(connection: apsw.Connection, sweep: InboxSweep) -> int:
    old: list[Any] = connection.execute(_SQL["old"], (sweep.before, sweep.limit)).fetchall()
    messages: list[Any] = []
    gone = 0
    for (seq,) in old:
        messages += connection.execute(_SQL["delete_message"], (seq,)).fetchall()
        gone += len(connection.execute(_SQL["delete_event"], (seq,)).fetchall())
    connection.executemany(_SQL["bury"], [(sender, key, sweep.now) for _, _, sender, key in messages])
    connection.executemany(_SQL["unindex_words"], [(seq, body) for seq, body, _, _ in messages])
    if gone:
        connection.execute(_SQL["remember"], (SWEPT_UPTO, str(old[-1][0])))
    connection.execute(_SQL["forget"], (sweep.forget_before,))
    return gone


def _told(connection: apsw.Connection, seqs: Sequence[int]) -> list[None]:
    connection.executemany(_SQL["told"], [(seq,) for seq in seqs])
    return [None] * len(seqs)


def _entry(row: Sequence[Any]) -> TimelineEntry:
    seq, kind, at, data, *message = row
    return TimelineEntry(
        seq=seq,
        type=kind,
        at=at,
        data=None if data is None else orjson.loads(data),
        message=None if message[0] is None else _message([seq, *message]),
    )


def _columns(seq: int, item: DeliverItem, received_at: int) -> tuple[int | str | None, ...]:
    return (
        seq,
        item.sender_id,
        item.client_message_id,
        item.broker_message_id,
        item.history_id,
        item.sender_pubkey,
        item.sender_name,
        _topic(item),
        item.body,
        None if item.meta is None else orjson.dumps(item.meta).decode(),
        item.priority,
        item.reply_to,
        item.to_session,
        item.accepted_at,
        received_at,
    )


def _topic(item: DeliverItem) -> str | None:
    return item.ref if item.kind is Kind.TOPIC else None


def _as_message(seq: int, item: DeliverItem, received_at: int) -> InboxMessage:
    return InboxMessage(
        seq=seq,
        client_message_id=item.client_message_id,
        broker_message_id=item.broker_message_id,
        history_id=item.history_id,
        sender_pubkey=item.sender_pubkey,
        sender_name=item.sender_name,
        topic=_topic(item),
        body=item.body,
        meta=item.meta,
        priority=item.priority,
        reply_to=item.reply_to,
        accepted_at=item.accepted_at,
        received_at=received_at,
        read_at=None,
        to_session=item.to_session,
    )


def _page(connection: apsw.Connection, wanted: InboxFilter, after_seq: int, limit: int) -> list[InboxMessage]:
    bindings = {
        "after": after_seq,
        "limit": limit,
        "since": wanted.since_ms,
        "unread": wanted.unread,
        "topic": wanted.topic,
        "sender": wanted.sender,
        "mentions": wanted.mentions,
        "mentions_name": wanted.mentions_name,
        "words": None if wanted.words is None else match_all(wanted.words),
    }
    name = "page" if wanted.words is None else "search"
    return _up_to_bytes(connection.execute(_SQL[name], bindings), _message, lambda message: len(message.body))


def _up_to_bytes(
    cursor: apsw.Cursor, parse: Callable[[Sequence[Any]], Parsed], size: Callable[[Parsed], int]
) -> list[Parsed]:
    """Read rows until they are a page's worth of bytes: at least one, if there is any."""
    found: list[Parsed] = []
    left = PAGE_BYTES
    for row in cursor:
        found.append(parse(row))
        left -= size(found[-1])
        if left <= 0:
            break
    cursor.close(force=True)  # a query that was not read to its end would hold back the WAL
    return found


def _message(row: Sequence[Any]) -> InboxMessage:
    (seq, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, topic, body, *rest) = row
    meta, priority, reply_to, accepted_at, received_at, read_at, to_session = rest
    return InboxMessage(
        seq=seq,
        client_message_id=client_message_id,
        broker_message_id=broker_message_id,
        history_id=history_id,
        sender_pubkey=sender_pubkey,
        sender_name=sender_name,
        topic=topic,
        body=body,
        meta=None if meta is None else orjson.loads(meta),
        priority=priority,
        reply_to=reply_to,
        accepted_at=accepted_at,
        received_at=received_at,
        read_at=read_at,
        to_session=to_session,
    )
