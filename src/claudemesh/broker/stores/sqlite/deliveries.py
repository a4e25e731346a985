"""What waits for a member, and what became of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice

import apsw
import orjson

from claudemesh.broker.model import Backlog, Delivery, Moved, Page, Parcel, Seat, Sender
from claudemesh.broker.policy import ATTEMPTS_MAX, UNREAD_MAX
from claudemesh.broker.stores.rendered import Rendered, cut
from claudemesh.broker.stores.sqlite.blocks import BLOCK, from_block, to_blocks
from claudemesh.broker.stores.sqlite.chairs import Chairs
from claudemesh.broker.stores.sqlite.rows import fetch, fetch_one, run
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "deliveries.sql")


@dataclass(frozen=True, slots=True)
class _Marks:
    """Something said of deliveries of one recipient."""

    recipient: Sender
    history_ids: tuple[int, ...]
    now_ms: int

    def rows(self) -> list[tuple[int, int, int, int]]:
        mesh_id, member_id, now = self.recipient.mesh_id, self.recipient.member_id, self.now_ms
        return [(mesh_id, history_id, member_id, now) for history_id in self.history_ids]


@dataclass(frozen=True, slots=True)
class _Read:
    recipient: Sender
    broker_message_ids: tuple[str, ...]
    now_ms: int


class SqliteDeliveryStore:
    def __init__(self, database: Database, chairs: Chairs, render: Callable[[Delivery], bytes]) -> None:
        self._database = database
        self._chairs = chairs
        self._rendered = Rendered(render)

    def prime(self, mesh_id: int, parcels: Sequence[Parcel]) -> None:
        self._rendered.keep(mesh_id, parcels)

    async def page(self, seat: Seat, after_history_id: int, count_max: int, bytes_max: int) -> Page:
        def read(connection: apsw.Connection) -> list[Parcel]:
            ids = _open_ids(connection, seat.sender.member_id, after_history_id, count_max)
            return cut(self._parcels(connection, seat.sender.mesh_id, ids), bytes_max)

        found = await self._database.read(read)
        # Asked after the read, without a pause to the caller's push: nobody can have come between.
        if not found or not self._chairs.is_held(seat):
            return Page([], after_history_id)
        return Page([one for one in found if self._chairs.gets(seat, one.to_session)], found[-1].history_id)

    async def replay(
        self, recipient: Sender, after_history_id: int, count_max: int, bytes_max: int
    ) -> list[Parcel]:
        def read(connection: apsw.Connection) -> list[Parcel]:
            bindings = (recipient.mesh_id, recipient.member_id, after_history_id, count_max)
            ids = [row[0] for row in fetch(connection, _SQL["delivered"], bindings)]
            return cut(self._parcels(connection, recipient.mesh_id, ids), bytes_max)

        return await self._database.read(read)

    async def ack(self, recipient: Sender, history_ids: Sequence[int], now_ms: int) -> None:
        await self._database.write(_ack, _Marks(recipient, tuple(history_ids), now_ms))

    async def count_attempts(self, seat: Seat, history_ids: Sequence[int], now_ms: int) -> list[int]:
        if not self._chairs.is_held(seat):
            return []
        return await self._database.write(_count_attempts, _Marks(seat.sender, tuple(history_ids), now_ms))

    async def mark_read(self, recipient: Sender, broker_message_ids: Sequence[str], now_ms: int) -> list[Moved]:
        return await self._database.write(_mark_read, _Read(recipient, tuple(broker_message_ids), now_ms))

    async def depth(self) -> int:
        return await self._database.read(_depth)

    async def backlogs(self, mesh_id: int) -> dict[int, Backlog]:
        return await self._database.read(lambda connection: _backlogs(connection, mesh_id))

    def _parcels(self, connection: apsw.Connection, mesh_id: int, history_ids: Sequence[int]) -> list[Parcel]:
        """Return those of the messages that are stored, in the order asked for."""
        found = self._rendered.find(mesh_id, history_ids)
        missing = [id_ for id_ in history_ids if id_ not in found]
        if missing:
            rows = fetch(connection, _SQL["messages"], (mesh_id, orjson.dumps(missing).decode()))
            found |= self._rendered.add(mesh_id, rows)
        return [found[id_] for id_ in history_ids if id_ in found]


def _backlogs(connection: apsw.Connection, mesh_id: int) -> dict[int, Backlog]:
    waiting: dict[int, int] = {}
    for member_id, bits in fetch(connection, _SQL["open_of_mesh"], (mesh_id,)):
        waiting[member_id] = waiting.get(member_id, 0) + bits.bit_count()
    rows = fetch(connection, _SQL["readers"], (mesh_id, UNREAD_MAX))
    return {
        member_id: Backlog(min(waiting.get(member_id, 0), UNREAD_MAX), unread, at) for member_id, unread, at in rows
    }


def _open_ids(connection: apsw.Connection, member_id: int, after: int, count_max: int) -> list[int]:
    # Each block holds at least one, except that the first may have none after the given id.
    rows = fetch(connection, _SQL["open_blocks"], (member_id, (after + 1) // BLOCK, count_max + 1))
    ids = (id_ for block, bits in rows for id_ in from_block(block, bits))
    return [*islice((id_ for id_ in ids if id_ > after), count_max)]


# --- on the writer's thread ------------------------------------------------------------------------


def _ack(connection: apsw.Connection, acks: Sequence[_Marks]) -> list[None]:
    connection.executemany(_SQL["ack"], [row for marks in acks for row in marks.rows()])
    by_member: dict[int, list[int]] = {}
    for marks in acks:
        by_member.setdefault(marks.recipient.member_id, []).extend(marks.history_ids)
    for member_id, history_ids in by_member.items():
        close(connection, member_id, history_ids)
    return [None for _ in acks]


def close(connection: apsw.Connection, member_id: int, history_ids: Sequence[int]) -> None:
    """Note that these wait for the member no more; whether they ever did does not matter."""
    blocks = to_blocks(history_ids)
    connection.executemany(_SQL["close"], [(member_id, block, bits) for block, bits in blocks.items()])
    connection.executemany(_SQL["forget_block"], [(member_id, block) for block in blocks])


def _count_attempts(connection: apsw.Connection, counted: Sequence[_Marks]) -> list[list[int]]:
    outcomes: list[list[int]] = []
    for marks in counted:
        dead = []
        for row in marks.rows():
            found = fetch(connection, _SQL["count_attempts"], row[:3])
            if found and found[0][0] >= ATTEMPTS_MAX:
                connection.execute(_SQL["give_up"], row)
                dead.append(row[1])
        close(connection, marks.recipient.member_id, dead)
        outcomes.append(dead)
    return outcomes


def _mark_read(connection: apsw.Connection, marks: Sequence[_Read]) -> list[list[Moved]]:
    return [_mark_one(connection, mark) for mark in marks]


def _mark_one(connection: apsw.Connection, mark: _Read) -> list[Moved]:
    mesh_id, member_id = mark.recipient.mesh_id, mark.recipient.member_id
    moved = []
    for broker_message_id in mark.broker_message_ids:
        found = fetch_one(connection, _SQL["find_message"], (broker_message_id, mesh_id))
        if found is not None:
            history_id, sender_id, client_message_id = found
            if run(connection, _SQL["mark_read"], (mesh_id, history_id, member_id, mark.now_ms)):
                moved.append(Moved(sender_id, client_message_id))
    if moved:
        connection.execute(_SQL["note_reading"], (member_id, mark.now_ms))
    return moved


def _depth(connection: apsw.Connection) -> int:
    return sum(bits.bit_count() for (bits,) in fetch(connection, _SQL["all_open"]))
