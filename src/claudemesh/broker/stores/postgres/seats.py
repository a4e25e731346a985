"""Which connection gets what waits for a key, over all brokers of the database; and which brokers those are."""

from collections.abc import Callable, Collection
from importlib.resources import files

from claudemesh.broker.model import Beat, Displaced, Identity, Meeting, Seat, Seated
from claudemesh.broker.policy import BROKER_LEASE_MS, judge_meeting
from claudemesh.broker.ports import AlreadyConnected
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import Revoked, StoreUnavailable
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.postgres.database import column
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "seats.sql")


class PostgresSeatStore:
    def __init__(self, database: Database, clock: Clock, others_run: Callable[[bool], None]) -> None:
        self._database = database
        self._clock = clock
        self._others_run = others_run
        self._beaten_at = clock.monotonic_ms()
        self.broker_id = 0

    async def register(self) -> None:
        """Begin: from now on it has to beat."""
        self.broker_id = await self._database.transact(_register)
        self._beaten_at = self._clock.monotonic_ms()
        self._others_run(await self._database.transact(self._has_others))

    async def aclose(self) -> None:
        await self._database.fetch(_SQL["unregister"], self.broker_id)

    async def take(self, identity: Identity) -> Seated:
        return await self._database.transact(lambda connection: self._take(connection, identity))

    async def leave(self, tokens: Collection[int]) -> list[int]:
        return column(await self._database.fetch(_SQL["leave"], [*tokens]))

    async def standing(self) -> set[int]:
        return {*column(await self._database.fetch(_SQL["of_broker"], self.broker_id))}

    async def present(self, mesh_id: int) -> set[int]:
        return {*column(await self._database.fetch(_SQL["present"], mesh_id))}

    async def beat(self) -> Beat:
        now = self._clock.monotonic_ms()
        # Whoever was itself silent for too long cannot know whether the others were, or the database was away.
        may_reap = now - self._beaten_at < BROKER_LEASE_MS
        beat, self.broker_id, others_run = await self._database.transact(
            lambda connection: self._beat(connection, may_reap)
        )
        self._beaten_at = now
        self._others_run(others_run)
        return beat

    # --- in a transaction --------------------------------------------------------------------------

    async def _take(self, connection: Connection, identity: Identity) -> Seated:
        sender, session_pubkey = identity.sender, identity.session_pubkey or ""
        if not await connection.fetch(_SQL["hold_member"], sender.member_id, sender.mesh_id):
            raise Revoked
        displaced = []
        for token, instance_id, is_silent in await connection.fetch(
            _SQL["standing"], sender.member_id, session_pubkey, self.broker_id
        ):
            meeting = judge_meeting(identity.mesh.policy, instance_id, identity.instance_id, is_silent=is_silent)
            if meeting is Meeting.REFUSED:
                raise AlreadyConnected
            if meeting is not Meeting.SHARED:
                displaced.append(Displaced(token, meeting))
        if displaced:
            await connection.execute(_SQL["leave"], [one.token for one in displaced])
        row = (self.broker_id, sender.mesh_id, sender.member_id, session_pubkey, identity.instance_id)
        token = await connection.fetchval(_SQL["take"], *row)
        if token is None:
            raise StoreUnavailable("this broker was silent for too long, and is about to begin anew")
        return Seated(Seat(sender, identity.session_pubkey, token), displaced)

    async def _beat(self, connection: Connection, may_reap: bool) -> tuple[Beat, int, bool]:  # noqa: FBT001  named
        broker_id = self.broker_id
        is_forgotten = not await connection.fetch(_SQL["renew"], broker_id, BROKER_LEASE_MS)
        if is_forgotten:
            broker_id = await _register(connection)
        bereft = column(await connection.fetch(_SQL["reap"])) if may_reap else []
        is_keeper = bool(await connection.fetch(_SQL["keep"], broker_id, BROKER_LEASE_MS))
        others_run = bool(await connection.fetchval(_SQL["others"], broker_id))
        return Beat(is_keeper, is_forgotten, bereft), broker_id, others_run

    async def _has_others(self, connection: Connection) -> bool:
        return bool(await connection.fetchval(_SQL["others"], self.broker_id))


async def _register(connection: Connection) -> int:
    return int(await connection.fetchval(_SQL["register"], BROKER_LEASE_MS))
