"""A copy without Spark: the same moments and the same statements, read one after the other."""

from typing import Any

from claudemesh.pipeline.shapes import Growth
from claudemesh.pipeline.sources.connection import read_share
from claudemesh.pipeline.sources.model import Moment, Position, Store, fields

Rows = dict[str, list[dict[str, Any]]]


class Copy:
    """What was copied of a store, pull by pull."""

    def __init__(self, store: Store, *, bodies: bool = False) -> None:
        self._store = store
        self._bodies = bodies
        self.position: Position | None = None
        self.rows: Rows = {table.name: [] for table in store.kind.wanted(Growth.APPEND, bodies=bodies)}
        self.wholes: Rows = {}
        self.counts: dict[str, int] = {}

    def pull(self) -> int:
        """Copy what is new; return how many rows that were."""
        before = sum(map(len, self.rows.values()))
        since = self.position
        for moment in self._store.moments():
            if self.position is None or moment.has_news(self.position):
                self.read(moment, self.position, moment.position)
                self.position = moment.position
            if moment.is_cut:
                self.counts = dict(moment.count(since, self.counts))
                whole = self._store.kind.wanted(Growth.WHOLE, bodies=True)
                self.wholes = {table.name: moment.whole(table).to_pylist() for table in whole}
        return sum(map(len, self.rows.values())) - before

    def read(self, moment: Moment, since: Position | None, upto: Position) -> None:
        for table in self._store.kind.wanted(Growth.APPEND, bodies=self._bodies):
            reading = moment.reading(table, since, upto, 3)
            for number in range(len(reading.statements) if reading else 0):
                assert reading is not None
                batches = read_share(reading, number, fields(table))
                self.rows[table.name] += [row for batch in batches for row in batch.to_pylist()]

    def values(self, table: str, column: str) -> list[Any]:
        return sorted(row[column] for row in self.rows[table])
