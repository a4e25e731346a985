"""How far a message came, from the rows themselves: nothing here remembers what was pushed."""

from collections.abc import Sequence
from importlib.resources import files
from itertools import groupby

from claudemesh.broker.model import MessageReceipt, Progress, Sender
from claudemesh.broker.stores.rows import to_progress, to_receipt
from claudemesh.storage.postgres import Database
from claudemesh.storage.postgres.database import column
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "receipts.sql")

_MESSAGE = 7  # columns of a row of `receipts` before those of a recipient


class PostgresReceiptStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def receipts(
        self, sender: Sender, client_message_ids: Sequence[str], broker_message_ids: Sequence[str]
    ) -> list[MessageReceipt]:
        ids = dict.fromkeys(client_message_ids)
        if broker_message_ids:
            rows = await self._database.fetch(_SQL["own"], sender.member_id, broker_message_ids)
            ids |= dict.fromkeys(column(rows))
        return await self._receipts([sender.member_id] * len(ids), list(ids))

    async def progress(self, sender: Sender, client_message_ids: Sequence[str]) -> list[Progress]:
        ids = list(dict.fromkeys(client_message_ids))
        found = to_progress(await self._database.fetch(_SQL["progress"], sender.member_id, ids))
        return sorted(found, key=lambda one: ids.index(one.client_message_id))

    async def trace(self, member: Sender, broker_message_id: str) -> MessageReceipt | None:
        asked = (member.member_id, broker_message_id, member.mesh_id)
        found = await self._database.fetch(_SQL["shared"], *asked)
        receipts = await self._receipts(column(found, 0), column(found, 1))
        return receipts[0] if receipts else None

    async def _receipts(self, sender_ids: list[int], client_message_ids: list[str]) -> list[MessageReceipt]:
        if not client_message_ids:
            return []
        rows = await self._database.fetch(_SQL["receipts"], sender_ids, client_message_ids)
        return [
            to_receipt(message, [row[_MESSAGE + 1 :] for row in recipients if row[_MESSAGE]])
            for message, recipients in groupby((tuple(row) for row in rows), lambda row: row[:_MESSAGE])
        ]
