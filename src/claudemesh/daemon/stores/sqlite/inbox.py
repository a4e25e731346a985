"""inbox.db: what reached this member, each message once, in the order it came."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import apsw
import orjson

from claudemesh.daemon.ports import InboxFilter, InboxMessage
from claudemesh.kernel.fingerprint import Kind
from claudemesh.storage.migrate import load_migrations
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database, Schema
from claudemesh.wire.frames import DeliverItem

_HERE: Final = files("claudemesh.daemon.stores.sqlite")
_SQL: Final = load_queries(_HERE / "inbox.sql")
SCHEMA: Final = Schema(0x636D6962, load_migrations(_HERE / "migrations" / "inbox"))  # "cmib"


@dataclass(frozen=True, slots=True)
class _Arrival:
    items: Sequence[DeliverItem]
    received_at: int


class SqliteInboxStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: Path) -> "SqliteInboxStore":
        return cls(Database.open(path, SCHEMA))

    def close(self) -> None:
        self._database.close()

    async def receive(self, items: Sequence[DeliverItem], received_at: int) -> list[InboxMessage]:
        return await self._database.write(_receive, _Arrival(tuple(items), received_at))

    async def page(self, wanted: InboxFilter, after_seq: int, limit: int) -> list[InboxMessage]:
        return await self._database.read(lambda connection: _page(connection, wanted, after_seq, limit))

    async def find(self, broker_message_id: str) -> InboxMessage | None:
        def query(connection: apsw.Connection) -> InboxMessage | None:
            rows = connection.execute(_SQL["find"], (broker_message_id,)).fetchall()
            return _message(rows[0]) if rows else None

        return await self._database.read(query)

    async def bounds(self) -> tuple[str, int]:
        def query(connection: apsw.Connection) -> tuple[str, int]:
            row: Any = connection.execute(_SQL["bounds"]).fetchall()[0]
            return row[0], row[1]

        return await self._database.read(query)

    async def unread(self) -> int:
        def query(connection: apsw.Connection) -> int:
            row: Any = connection.execute(_SQL["unread"]).fetchall()[0]
            return int(row[0])

        return await self._database.read(query)


def _receive(connection: apsw.Connection, arrivals: Sequence[_Arrival]) -> list[list[InboxMessage]]:
    return [
        [
            _store(connection, item, arrival.received_at)
            for item in arrival.items
            if not connection.execute(_SQL["is_held"], (item.sender_id, item.client_message_id)).fetchall()
        ]
        for arrival in arrivals
    ]


def _store(connection: apsw.Connection, item: DeliverItem, received_at: int) -> InboxMessage:
    event: Any = connection.execute(_SQL["append_event"], ("message", received_at, None)).fetchall()[0]
    topic = item.ref if item.kind is Kind.TOPIC else None
    connection.execute(
        _SQL["insert"],
        (
            event[0],
            item.sender_id,
            item.client_message_id,
            item.broker_message_id,
            item.history_id,
            item.sender_pubkey,
            item.sender_name,
            topic,
            item.body,
            None if item.meta is None else orjson.dumps(item.meta).decode(),
            item.priority,
            item.reply_to,
            item.to_session,
            item.accepted_at,
            received_at,
        ),
    )
    return InboxMessage(
        seq=event[0],
        client_message_id=item.client_message_id,
        broker_message_id=item.broker_message_id,
        history_id=item.history_id,
        sender_pubkey=item.sender_pubkey,
        sender_name=item.sender_name,
        topic=topic,
        body=item.body,
        meta=item.meta,
        priority=item.priority,
        reply_to=item.reply_to,
        accepted_at=item.accepted_at,
        received_at=received_at,
        read_at=None,
    )


def _page(connection: apsw.Connection, wanted: InboxFilter, after_seq: int, limit: int) -> list[InboxMessage]:
    bindings = {
        "after": after_seq,
        "limit": limit,
        "since": wanted.since_ms,
        "topic": wanted.topic,
        "sender": wanted.sender,
        "mentions": wanted.mentions,
        "mentions_name": wanted.mentions_name,
        "words": None if wanted.words is None else _match_all(wanted.words),
    }
    name = "page" if wanted.words is None else "search"
    return [_message(row) for row in connection.execute(_SQL[name], bindings).fetchall()]


def _match_all(words: str) -> str:
    """Return FTS5's expression for "all of these words", each quoted, so that no word is read as an operator."""
    return " ".join('"' + word.replace('"', '""') + '"' for word in words.split())


def _message(row: Sequence[Any]) -> InboxMessage:
    (seq, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, topic, body, *rest) = row
    meta, priority, reply_to, accepted_at, received_at, read_at = rest
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
    )
