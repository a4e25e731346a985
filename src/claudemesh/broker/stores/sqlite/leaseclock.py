"""The clock by which leases are judged: milliseconds during which a broker ran on this file.

A wall clock may step, and a lease must neither die of that nor live longer; so within a process the monotonic clock
counts. Between processes it stands still, as it does while the process does: a lease keeps over either what was
left of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import apsw

from claudemesh.broker.stores.sqlite.rows import fetch_one
from claudemesh.kernel.clock import Clock
from claudemesh.runtime.clock import steady
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "leaseclock.sql")


@dataclass(frozen=True, slots=True)
class Stamp:
    """One instant: of the lease clock, and as wall time that knows no steps within this process."""

    lease_ms: int
    wall_ms: int


class LeaseClock:
    def __init__(self, clock: Clock, database: Database) -> None:
        self._clock = clock
        self._database = database
        self._origin_ms = database.read_blocking(_read) - clock.monotonic_ms()
        self._steady_ms = steady(clock)

    def now_ms(self) -> int:
        return self._origin_ms + self._clock.monotonic_ms()

    def stamp(self) -> Stamp:
        return Stamp(self.now_ms(), self._steady_ms())

    def stand_still(self, ms: int) -> None:
        """Take back time during which this process did not run."""
        self._origin_ms -= ms

    async def keep(self) -> None:
        """Write it down. What passed since the last time is forgotten by a crash: leases gain that much."""
        await self._database.write(_write, self.now_ms())


def _read(connection: apsw.Connection) -> int:
    row = fetch_one(connection, _SQL["kept"])
    return 0 if row is None else int(row[0])


def _write(connection: apsw.Connection, instants: Sequence[int]) -> list[None]:
    connection.execute(_SQL["keep"], (str(max(instants)).encode(),))
    return [None for _ in instants]
