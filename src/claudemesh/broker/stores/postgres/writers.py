"""The writers of meshes: what is submitted for one mesh is applied in the order in which it came.

An accept and whatever changes where messages go share the writer of their mesh, so that of two calls of one task
the first is applied first. Brokers beside this one wait for the rows: the mesh's for its members, its counter's for
the order.
"""

from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from claudemesh.broker.model import Sender
from claudemesh.storage.postgres import Connection, Database, Writer
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "accept.sql")

WRITERS: Final = 2


class MeshWriters:
    def __init__(self, database: Database, count: int = WRITERS) -> None:
        self._writers = [database.writer() for _ in range(count)]

    def of(self, mesh_id: int) -> Writer:
        return self._writers[mesh_id % len(self._writers)]


async def lock_counters(connection: Connection, senders: Iterable[Sender]) -> dict[int, int]:
    """Take the orders of these meshes, and return where they stand. Read what depends on them afterwards."""
    meshes = sorted({sender.mesh_id for sender in senders})
    return {row[0]: row[1] for row in await connection.fetch(_SQL["lock_counters"], meshes)}
