"""One file of the archive: messages in the order they were received, and the index of their words.

It is written by one process before anybody is told of it, and never changes after that: so it needs no journal, and
readers need no care.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite.connection import connect
from claudemesh.storage.sqlite.errors import translated
from claudemesh.storage.sqlite.words import match_all

_SQL: Final = load_queries(files("claudemesh.pipeline") / "shardfile.sql")


class Document(NamedTuple):
    """A message, with the columns in the order of the file."""

    seq: int
    client_message_id: str
    broker_message_id: str
    history_id: int
    sender_pubkey: str
    sender_name: str
    topic: str | None
    priority: str
    accepted_at: int
    received_at: int
    body: str
    meta: str | None  # JSON
    reply_to: str


class Shard(msgspec.Struct, frozen=True):
    """What is known of a file without opening it."""

    file: str
    documents: int
    last_received_at: int


def write(path: Path, documents: Iterable[tuple[Any, ...]]) -> Shard:
    """Write a file that only its owner reads, and make it durable. The documents come in the order received."""
    os.mknod(path, stat.S_IFREG | 0o600)
    with translated(), closing(connect(path, read_only=False)) as connection:
        connection.pragma("journal_mode", "off")
        connection.pragma("synchronous", "off")  # once, below
        with connection:
            connection.execute(_SQL["create"])
            connection.executemany(_SQL["insert"], documents)
            connection.execute(_SQL["index_words"])
        last: list[Any] = connection.execute(_SQL["last"]).fetchall()
    with path.open("rb") as file:
        os.fsync(file.fileno())
    documents_written, last_received_at = last[0] if last else (0, 0)
    return Shard(path.name, documents_written, last_received_at)


def search(path: Path, words: str, after: tuple[int, int], limit: int) -> list[Document]:
    """Return what holds all the words and came after that (received_at, seq), oldest first."""
    bindings = {"words": match_all(words), "received_at": after[0], "seq": after[1], "limit": limit}
    with translated(), closing(connect(path, read_only=True)) as connection:
        found: Iterable[Any] = connection.execute(_SQL["search"], bindings)
        return [Document(*row) for row in found]
