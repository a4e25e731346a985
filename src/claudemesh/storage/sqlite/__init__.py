"""SQLite as a durable store: one writer thread with group commit, read-only readers beside it.

`Database` is the whole of it for a caller; the other modules answer one question each:

    connection   how a connection must be configured before it may be trusted
    errors       what a driver's error means to us, and which one ends the process
    writer       how many callers share one commit, and what happens when it fails
    readers      how a query sees one unchanging moment
    schema       how a file gets to the version this program knows
"""

from claudemesh.storage.sqlite.database import Database
from claudemesh.storage.sqlite.schema import Schema

__all__ = ["Database", "Schema"]
