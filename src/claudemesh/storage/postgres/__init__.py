"""PostgreSQL through asyncpg: bounded connections, group commit in lanes, migrations that cannot half land.

connection   how a connection is made, and what makes it fit for our promises
errors       what a driver's error means to us
lane         writers that share one connection, and a commit
database     the lanes and the pool of one store
schema       how a database gets to the version this program knows
"""

from claudemesh.storage.postgres.connection import Connection, Endpoint, Record
from claudemesh.storage.postgres.database import Database
from claudemesh.storage.postgres.lane import Lane
from claudemesh.storage.postgres.schema import Schema

__all__ = ["Connection", "Database", "Endpoint", "Lane", "Record", "Schema"]
