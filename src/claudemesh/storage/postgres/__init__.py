"""PostgreSQL through asyncpg: bounded connections, group commit, migrations that cannot half land.

connection   how a connection is made, and what makes it fit for our promises
errors       what a driver's error means to us
writer       callers that share one connection, and a commit
database     the writers and the pool of one store
schema       how a database gets to the version this program knows
"""

from claudemesh.storage.postgres.connection import Connection, Endpoint, Record
from claudemesh.storage.postgres.database import Database
from claudemesh.storage.postgres.schema import Schema
from claudemesh.storage.postgres.writer import Writer

__all__ = ["Connection", "Database", "Endpoint", "Record", "Schema", "Writer"]
