"""What waits for a member, and what became of it. Acks of all connections share a writer, and its commits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from claudemesh.broker.model import Backlog, Delivery, Moved, Page, Parcel, Seat, Sender
from claudemesh.broker.policy import ATTEMPTS_MAX, UNREAD_MAX
from claudemesh.broker.stores.rendered import Rendered, cut, to_page
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.postgres.database import column
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "deliveries.sql")

DEPTH_MAX: Final = 100_000  # a gauge that stands here says "very many"


@dataclass(frozen=True, slots=True)
class _Acks:
    recipient: Sender
    history_ids: tuple[int, ...]
    now_ms: int


class PostgresDeliveryStore:
    def __init__(self, database: Database, render: Callable[[Delivery], bytes]) -> None:
        self._database = database
        self._acks = database.writer()
        self._rendered = Rendered(render)

    def prime(self, mesh_id: int, parcels: Sequence[Parcel]) -> None:
        self._rendered.keep(mesh_id, parcels)

    def forget(self) -> None:
        """Read everything anew: the server is not the one it was."""
        self._rendered.clear()

    async def page(self, seat: Seat, after_history_id: int, count_max: int, bytes_max: int) -> Page:
        asked = (seat.sender.member_id, seat.session_pubkey or "", seat.token, after_history_id, count_max)
        rows = await self._database.fetch(_SQL["open"], *asked)
        if not rows:
            return Page([], after_history_id)
        parcels = await self._parcels(seat.sender.mesh_id, [row[0] for row in rows if row[1]])
        return to_page(parcels, bytes_max, rows[-1][0])

    async def replay(
        self, recipient: Sender, after_history_id: int, count_max: int, bytes_max: int
    ) -> list[Parcel]:
        asked = (recipient.mesh_id, recipient.member_id, after_history_id, count_max)
        ids = column(await self._database.fetch(_SQL["delivered"], *asked))
        return cut(await self._parcels(recipient.mesh_id, ids), bytes_max)

    async def ack(self, recipient: Sender, history_ids: Sequence[int], now_ms: int) -> None:
        await self._acks.submit(_ack, _Acks(recipient, tuple(history_ids), now_ms), weight=len(history_ids))

    async def count_attempts(self, seat: Seat, history_ids: Sequence[int], now_ms: int) -> list[int]:
        asked = (seat.sender.mesh_id, seat.sender.member_id, seat.session_pubkey or "", list({*history_ids}))
        rows = await self._database.fetch(_SQL["count_attempts"], *asked, seat.token, now_ms, ATTEMPTS_MAX)
        return sorted(history_id for history_id, is_dead in rows if is_dead)

    async def mark_read(self, recipient: Sender, broker_message_ids: Sequence[str], now_ms: int) -> list[Moved]:
        asked = (recipient.mesh_id, recipient.member_id, list({*broker_message_ids}), now_ms)
        return [Moved(*row) for row in await self._database.fetch(_SQL["mark_read"], *asked)]

    async def depth(self) -> int:
        return int((await self._database.fetch(_SQL["depth"], DEPTH_MAX))[0][0])

    async def backlogs(self, mesh_id: int) -> dict[int, Backlog]:
        rows = await self._database.fetch(_SQL["backlogs"], mesh_id, UNREAD_MAX)
        return {member_id: Backlog(*counted) for member_id, *counted in rows}

    async def _parcels(self, mesh_id: int, history_ids: Sequence[int]) -> list[Parcel]:
        """Return the parcels of those messages that are stored, in the order asked for."""
        found = self._rendered.find(mesh_id, history_ids)
        missing = [id_ for id_ in history_ids if id_ not in found]
        if missing:
            found |= self._rendered.add(mesh_id, await self._database.fetch(_SQL["messages"], mesh_id, missing))
        return [found[id_] for id_ in history_ids if id_ in found]


async def _ack(connection: Connection, acks: Sequence[_Acks]) -> list[None]:
    first: dict[tuple[int, int, int], int] = {}
    for one in acks:
        for history_id in one.history_ids:
            first.setdefault((one.recipient.mesh_id, history_id, one.recipient.member_id), one.now_ms)
    if first:
        meshes, ids, members = zip(*first, strict=True)
        await connection.execute(_SQL["ack"], meshes, ids, members, list(first.values()))
    return [None for _ in acks]
