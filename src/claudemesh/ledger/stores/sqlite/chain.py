"""The hash chain: what is chained of a row, and the link that is written for it in the same transaction.

A message is chained with its jobs and steps, as they were posted. Of a step's life the chain has what the ledger
has a row for: its requeues, renewals and receipt.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

import apsw

from claudemesh.kernel.chain import GENESIS, derive_link
from claudemesh.kernel.errors import CassetteAltered, InvalidRequest, MessageCassetteError
from claudemesh.ledger.model import Link
from claudemesh.ledger.stores.sqlite import law
from claudemesh.ledger.stores.sqlite.rows import fetch, fetch_named, fetch_one
from claudemesh.storage.sqlfile import load_queries

_SQL: Final = load_queries(files(__package__) / "chain.sql")


def read_end(connection: apsw.Connection) -> Link:
    row = fetch_one(connection, _SQL["end"])
    return Link(*row) if row else Link(0, GENESIS)


def read_head(connection: apsw.Connection) -> tuple[str, Link]:
    """Return what a head is made of: the ledger's id, and the end of its chain."""
    if wrong := law.differences(connection):
        raise CassetteAltered("; ".join(wrong))
    if (law.read_version(connection) or 0) < law.CHAINED_SINCE:
        raise MessageCassetteError(f"a head needs version {law.CHAINED_SINCE}: `cortex cassette upgrade` first")
    return law.read_ledger_id(connection), read_end(connection)


def append(connection: apsw.Connection, kind: str, row_id: str) -> None:
    """Chain a row that this transaction has written."""
    end = read_end(connection)
    row = read_row(connection, kind, row_id)
    if row is None:
        raise LookupError(f"no {kind} {row_id} is there to be chained")
    values = (end.seq + 1, kind, row_id, end.hash, derive_link(end.hash, kind, row))
    connection.execute(_SQL["append"], values)


def append_all(connection: apsw.Connection) -> None:
    """Chain what a ledger has that had no chain: all messages, then all receipts."""
    for kind in ("message", "receipt"):
        for (row_id,) in fetch(connection, _SQL[f"unchained_{kind}s"]):
            append(connection, kind, row_id)


def read_row(connection: apsw.Connection, kind: str, row_id: str) -> dict[str, Any] | None:
    """Return a row as it is chained, or None if there is none."""
    rows = fetch_named(connection, _SQL[kind], (row_id,))
    if not rows:
        return None
    row = rows[0]
    if kind == "message":
        row["jobs"] = fetch_named(connection, _SQL["jobs"], (row_id,))
        row["steps"] = fetch_named(connection, _SQL["steps"], (row_id,))
    return row


def find_link(connection: apsw.Connection, seq: int) -> str | None:
    """Return the hash of a link; what the first is made of counts as the link before it."""
    row = fetch_one(connection, _SQL["link"], (seq,))
    return row[0] if row else GENESIS if seq == 0 else None


def audit(connection: apsw.Connection) -> Iterator[str]:
    """Compute every link anew, and say which is not what it should be."""
    previous, expected = GENESIS, 1
    for seq, kind, row_id, previous_hash, written in connection.execute(_SQL["links"]):
        if seq != expected:
            yield f"chain: link {expected} is missing"
            expected = seq
        if previous_hash != previous:
            yield f"chain: link {seq} does not follow the link before it"
        if written != _derive(connection, previous_hash, kind, row_id):
            yield f"chain: {kind} {row_id} is not what was chained as link {seq}"
        previous, expected = written, expected + 1


def _derive(connection: apsw.Connection, previous: str, kind: str, row_id: str) -> str | None:
    """Return the hash that the link should have; None, if the row is gone or cannot be chained."""
    try:
        row = read_row(connection, kind, row_id)
        return None if row is None else derive_link(previous, kind, row)
    except (InvalidRequest, KeyError, ValueError):  # no such kind, a number beyond all bounds, half a character
        return None
