"""How far a message came, from the rows themselves: nothing here remembers what was pushed."""

from collections.abc import Sequence
from importlib.resources import files

import apsw
import orjson

from claudemesh.broker.model import MessageReceipt, Progress, Sender
from claudemesh.broker.stores.rows import to_progress, to_receipt
from claudemesh.broker.stores.sqlite.rows import Row, fetch, fetch_one
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "receipts.sql")

_NOWHERE: Row = (None, None)


class SqliteReceiptStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def receipts(
        self, sender: Sender, client_message_ids: Sequence[str], broker_message_ids: Sequence[str]
    ) -> list[MessageReceipt]:
        def read(connection: apsw.Connection) -> list[MessageReceipt]:
            by_client = (sender.member_id, orjson.dumps(client_message_ids).decode())
            by_broker = (sender.member_id, orjson.dumps(broker_message_ids).decode())
            found = {
                row[1]: row
                for row in (
                    *fetch(connection, _SQL["own_by_client_id"], by_client),
                    *fetch(connection, _SQL["own_by_broker_id"], by_broker),
                )
            }
            return [_receipt(connection, sender.mesh_id, row) for row in found.values()]

        return await self._database.read(read)

    async def progress(self, sender: Sender, client_message_ids: Sequence[str]) -> list[Progress]:
        def read(connection: apsw.Connection) -> list[Progress]:
            asked = (sender.member_id, orjson.dumps(client_message_ids).decode())
            return to_progress(fetch(connection, _SQL["progress"], asked))

        return await self._database.read(read)

    async def trace(self, member: Sender, broker_message_id: str) -> MessageReceipt | None:
        def read(connection: apsw.Connection) -> MessageReceipt | None:
            asked = (member.member_id, broker_message_id, member.mesh_id)
            row = fetch_one(connection, _SQL["shared_by_broker_id"], asked)
            return None if row is None else _receipt(connection, member.mesh_id, row)

        return await self._database.read(read)


def _receipt(connection: apsw.Connection, mesh_id: int, row: Row) -> MessageReceipt:
    place = (mesh_id, row[2])
    where: Row | None = fetch_one(connection, _SQL["destination"], place)
    return to_receipt((*row, *(where or _NOWHERE)), fetch(connection, _SQL["recipients"], place))
