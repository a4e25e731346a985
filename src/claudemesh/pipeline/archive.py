"""The archive of messages, as its readers see it: neither a daemon nor Spark is needed to search it.

    <lake>/search/<source>/index.json   which files are the archive of an inbox; another set is published by rename
                           <id>.db      a part of its messages, oldest part first in the index (see `shardfile`)

A file that the index does not name is of a rebuild that is under way, or was cut short. These look alike, so there
is one rebuild at a time, which removes all of them at its end. A reader whose files went away looks at the index
again.
"""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from claudemesh.kernel.errors import InvalidRequest, NotFound, StoreCorrupt, StoreUnavailable
from claudemesh.pipeline import shardfile
from claudemesh.pipeline.shardfile import Document, Shard
from claudemesh.runtime import points
from claudemesh.runtime.home import InstanceLock, ensure_private_dir, read_private, sync_directory, write_private
from claudemesh.wire.instants import render_instant

Json = dict[str, Any]

INDEX: Final = "index.json"
_LOCK: Final = "lock"
LIMIT_MAX: Final = 1_000
REMEDY: Final = "`claudemesh pipeline ingest --bodies`, then `claudemesh pipeline run search`"
INDEX_READ: Final = points.declare("archive.index_read")


def read_index(directory: Path) -> list[Shard]:
    return msgspec.json.decode(read_private(directory / INDEX), type=list[Shard])


def rebuild(directory: Path, write: Callable[[], list[Shard]]) -> list[Shard]:
    """Put what `write` writes, oldest part first, in the place of all that there was: for readers at one moment."""
    ensure_private_dir(directory.parent)
    ensure_private_dir(directory)
    with InstanceLock(directory / _LOCK):
        try:
            shards = write()
            sync_directory(directory)  # before the index has their names
            write_private(directory / INDEX, msgspec.json.encode(shards))
        finally:
            _sweep(directory)
    return shards


def _sweep(directory: Path) -> None:
    """Remove what the index does not name."""
    kept = {INDEX, _LOCK}
    with suppress(FileNotFoundError):
        kept |= {shard.file for shard in read_index(directory)}
    for path in directory.iterdir():
        if path.name not in kept:
            path.unlink()


# --- searching -------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a message stands among all of the archive."""

    received_at: int
    source: str
    seq: int

    def seen_of(self, source: str) -> tuple[int, int]:
        """Return the last (received_at, seq) of a source that is not after this place."""
        if source == self.source:
            return self.received_at, self.seq
        return self.received_at, -1 if source > self.source else sys.maxsize


START: Final = Place(-1, "", 0)
_CURSOR: Final = re.compile(r"(?P<received_at>[0-9]{1,18})\.(?P<seq>[0-9]{1,18})\.(?P<source>.+)")


def search(lake: Path, words: str, limit: int, cursor: str | None = None) -> Json:
    """Return a page of the messages that hold all the words, of all inboxes in the lake, oldest first."""
    try:
        words.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("a text holds what is not Unicode") from error
    after = START if cursor is None else parse_cursor(cursor)
    directories = [index.parent for index in (lake / "search").glob(f"*/{INDEX}")]
    if not directories:
        raise NotFound(f"{lake} holds no archive of messages: {REMEDY}")
    size = min(limit, LIMIT_MAX)
    found = sorted(
        (Place(one.received_at, directory.name, one.seq), one)
        for directory in directories
        for one in _search_source(directory, words, after.seen_of(directory.name), size + 1)
    )
    shown = [_shown(place, document) for place, document in found[:size]]
    return {"messages": shown, "next_cursor": shown[-1]["cursor"] if len(found) > size else None}


def _search_source(directory: Path, words: str, after: tuple[int, int], limit: int) -> list[Document]:
    while True:
        shards = read_index(directory)
        points.reach(INDEX_READ)
        found: list[Document] = []
        try:
            for shard in shards:
                if shard.last_received_at >= after[0] and len(found) < limit:
                    found += shardfile.search(directory / shard.file, words, after, limit - len(found))
        except StoreUnavailable as error:
            if read_index(directory) == shards:
                raise StoreCorrupt(
                    f"a file of {directory} cannot be read: `claudemesh pipeline run search`"
                ) from error
        else:
            return found


def parse_cursor(text: str) -> Place:
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidRequest("this is not a cursor of the archive")
    return Place(int(found["received_at"]), found["source"], int(found["seq"]))


def _shown(place: Place, document: Document) -> Json:
    """Return a message as the daemon shows it."""
    return {
        "client_message_id": document.client_message_id,
        "broker_message_id": document.broker_message_id,
        "history_id": document.history_id,
        "from": document.sender_pubkey,
        "from_name": document.sender_name,
        "topic": document.topic,
        "body": document.body,
        "meta": None if document.meta is None else msgspec.json.decode(document.meta),
        "priority": document.priority,
        "reply_to_id": document.reply_to or None,
        "accepted_at": render_instant(document.accepted_at),
        "received_at": render_instant(document.received_at),
        "cursor": f"{place.received_at}.{place.seq}.{place.source}",
        "source": place.source,
    }
