"""Which brokers run on the database. One that does not beat in time is taken for dead, with its seats."""

from collections.abc import Callable
from importlib.resources import files

from claudemesh.broker.model import Beat
from claudemesh.broker.policy import BROKER_LEASE_MS
from claudemesh.kernel.clock import Clock
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.postgres.database import column
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "brokers.sql")


class LivingBroker:
    """The one that this process is. Its number is another after it was taken for dead."""

    def __init__(self, database: Database, clock: Clock, others_run: Callable[[bool], None]) -> None:
        self._database = database
        self._clock = clock
        self._others_run = others_run
        self._beaten_at = clock.monotonic_ms()
        self.id = 0

    async def register(self) -> None:
        """Begin: from now on it has to beat."""
        self.id = await self._database.transact(_register)
        self._beaten_at = self._clock.monotonic_ms()
        self._others_run(await self._database.transact(self._has_others))

    async def beat(self) -> Beat:
        now = self._clock.monotonic_ms()
        # Whoever was itself silent for too long cannot know whether the others were, or the database was away.
        may_reap = now - self._beaten_at < BROKER_LEASE_MS
        beat, self.id, others_run = await self._database.transact(
            lambda connection: self._beat(connection, may_reap)
        )
        self._beaten_at = now
        self._others_run(others_run)
        return beat

    async def aclose(self) -> None:
        await self._database.fetch(_SQL["unregister"], self.id)

    # --- in a transaction --------------------------------------------------------------------------

    async def _beat(self, connection: Connection, may_reap: bool) -> tuple[Beat, int, bool]:  # noqa: FBT001  named
        broker_id = self.id
        is_forgotten = not await connection.fetch(_SQL["renew"], broker_id, BROKER_LEASE_MS)
        if is_forgotten:
            broker_id = await _register(connection)
        bereft = column(await connection.fetch(_SQL["reap"])) if may_reap else []
        is_keeper = bool(await connection.fetch(_SQL["keep"], broker_id, BROKER_LEASE_MS))
        others_run = bool(await connection.fetchval(_SQL["others"], broker_id))
        return Beat(is_keeper, is_forgotten, bereft), broker_id, others_run

    async def _has_others(self, connection: Connection) -> bool:
        return bool(await connection.fetchval(_SQL["others"], self.id))


async def _register(connection: Connection) -> int:
    return int(await connection.fetchval(_SQL["register"], BROKER_LEASE_MS))
