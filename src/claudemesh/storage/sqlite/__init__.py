"""SQLite as a durable store: one writer thread with group commit, read-only readers beside it.

`Database` is the whole of it for a caller; the other modules answer one question each:

    file         what must be true of the file on the disk
    connection   how a connection must be configured before it may be trusted
    schema       how a file gets to the version this program knows
    transactions who may end a transaction
    writer       how many callers share one commit, and what happens when it fails
    replies      how an outcome travels to whoever waits for it
    readers      how a query sees one unchanging moment
    store        what the stores that are one file each have in common
    room         how much a file may hold
    errors       what a driver's error means to us
    sync_guard   the first sync that fails ends the process
    words        how words that a person looks for are said to FTS5
"""

from claudemesh.storage.sqlite.database import Database
from claudemesh.storage.sqlite.schema import Schema

__all__ = ["Database", "Schema"]
