"""What the lake holds: for every kind of store its tables, their columns, and how they grow.

A table is named as in the store that it is copied from. An append-only table is copied row by row, each row once;
a small one that changes is copied whole with every cut. To add a store: a kind here, its statements in `sources/`,
and a function over its frames in `jobs/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias
from zlib import crc32

Type: TypeAlias = Literal["bigint", "string", "binary"]


class Growth(StrEnum):
    APPEND = "append"  # rows are written once and never change; whatever retention takes leaves a tombstone
    WHOLE = "whole"  # few rows, which may change: all of them, as they are at the cut


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: Mapping[str, Type]
    growth: Growth = Growth.APPEND
    is_body: bool = False  # what people wrote: only in a lake that was asked to hold it


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store."""

    name: str
    tables: tuple[Table, ...]
    forgets: bool = False  # rows go without a tombstone: what was copied of them once is all there is

    @property
    def version(self) -> int:
        """Tell one form of the tables from another: a copy in another one is read anew."""
        return crc32(repr(self.tables).encode())

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    def wanted(self, growth: Growth, *, bodies: bool) -> tuple[Table, ...]:
        return tuple(one for one in self.tables if one.growth is growth and (bodies or not one.is_body))


def _columns(**types: Type) -> dict[str, Type]:
    return types


BROKER: Final = Kind(
    "broker",
    (
        Table(
            "client_message_dedupe",  # accepted ids
            _columns(
                sender_id="bigint",
                client_message_id="string",
                mesh_id="bigint",
                broker_message_id="string",
                request_fingerprint="binary",
                first_seen_at="bigint",
                expires_at="bigint",
            ),
        ),
        Table(
            "message_history",
            _columns(
                mesh_id="bigint",
                history_id="bigint",
                broker_message_id="string",
                sender_id="bigint",
                client_message_id="string",
                kind="string",
                accepted_at="bigint",
                sender_seq="bigint",
            ),
        ),
        Table(
            "topic_message",
            _columns(
                mesh_id="bigint",
                history_id="bigint",
                topic_id="bigint",
                priority="string",
                encoding="string",
                body_bytes="bigint",
            ),
        ),
        Table(
            "message_queue",
            _columns(
                mesh_id="bigint",
                history_id="bigint",
                recipient_id="bigint",
                queue_id="bigint",
                priority="string",
                encoding="string",
                body_bytes="bigint",
            ),
        ),
        Table("delivery_queue", _columns(mesh_id="bigint", history_id="bigint", recipient_id="bigint")),
        Table("mention_index", _columns(mesh_id="bigint", history_id="bigint", mentioned="string")),
        Table("queue_lease", _columns(mesh_id="bigint", history_id="bigint", queue_id="bigint")),
        Table(
            "delivery_event",
            _columns(
                id="bigint",
                mesh_id="bigint",
                history_id="bigint",
                recipient_id="bigint",
                what="string",
                at="bigint",
                attempts="bigint",
                reason="string",
            ),
        ),
        Table(
            "tombstone",
            _columns(
                id="bigint",
                what="string",
                mesh_id="bigint",
                sender_id="bigint",
                client_message_id="string",
                broker_message_id="string",
                history_id="bigint",
                deleted_at="bigint",
            ),
        ),
        Table(
            "body",
            _columns(mesh_id="bigint", history_id="bigint", encoding="string", body="string"),
            is_body=True,
        ),
        Table(
            "retired_id",  # ids that were given up before they were accepted
            _columns(
                sender_id="bigint",
                client_message_id="string",
                mesh_id="bigint",
                first_seen_at="bigint",
                expires_at="bigint",
            ),
            Growth.WHOLE,
        ),
        Table(
            "mesh",
            _columns(id="bigint", uid="string", slug="string", sends_per_window="bigint", created_at="bigint"),
            Growth.WHOLE,
        ),
        Table(
            "member",
            _columns(
                id="bigint",
                uid="string",
                mesh_id="bigint",
                name="string",
                pubkey="string",
                role="string",
                joined_at="bigint",
                revoked_at="bigint",
            ),
            Growth.WHOLE,
        ),
        Table("topic", _columns(id="bigint", mesh_id="bigint", name="string"), Growth.WHOLE),
        Table("queue", _columns(id="bigint", mesh_id="bigint", name="string"), Growth.WHOLE),
        Table("history_counter", _columns(mesh_id="bigint", history_id="bigint"), Growth.WHOLE),
        Table(
            "history_jump",
            _columns(mesh_id="bigint", after_history_id="bigint", skipped="bigint", epoch="bigint"),
            Growth.WHOLE,
        ),
    ),
)

_OUTBOX: Final = _columns(
    seq="bigint",
    id="string",
    client_message_id="string",
    request_fingerprint="binary",
    to_asked="string",
    destination="string",
    enqueued_at="bigint",
    attempts="bigint",
    status="string",
    last_error="string",
    delivered_at="bigint",
    broker_message_id="string",
    history_id="bigint",
    aborted_at="bigint",
    superseded_by="string",
)

# Whose store it is, by ULIDs; no row, if nobody says.
_OWNER: Final = Table("owner", _columns(mesh="string", owner="string"), Growth.WHOLE)

OUTBOX: Final = Kind(
    "outbox",
    (
        Table("outbox", _OUTBOX),  # rows in a final state
        Table("outbox_open", _OUTBOX, Growth.WHOLE),  # all others
        _OWNER,
    ),
)

INBOX: Final = Kind(
    "inbox",
    (
        Table(
            "inbox",
            _columns(
                seq="bigint",
                sender_id="string",
                client_message_id="string",
                broker_message_id="string",
                history_id="bigint",
                sender_pubkey="string",
                sender_name="string",
                topic="string",
                priority="string",
                accepted_at="bigint",
                received_at="bigint",
            ),
        ),
        Table("event", _columns(seq="bigint", type="string", at="bigint")),
        Table("body", _columns(seq="bigint", body="string", meta="string", reply_to="string"), is_body=True),
        _OWNER,
    ),
    forgets=True,
)

KINDS: Final = {kind.name: kind for kind in (BROKER, OUTBOX, INBOX)}
