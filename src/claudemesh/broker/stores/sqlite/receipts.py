"""How far a message came, from the rows themselves: nothing here remembers what was pushed."""

from collections.abc import Sequence
from importlib.resources import files

import apsw
import orjson

from claudemesh.broker.model import DeliveryState, MessageReceipt, Progress, RecipientReceipt, Sender
from claudemesh.broker.policy import derive_counts, derive_least, derive_message_state, derive_since
from claudemesh.broker.stores.sqlite.rows import Row, fetch, fetch_one
from claudemesh.kernel.fingerprint import Kind
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "receipts.sql")

_NOWHERE: Row = (None, None)
_STATE, _TIMES = 2, slice(3, 7)  # of a row of `recipients`


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
            by_message: dict[tuple[str, str], dict[DeliveryState, tuple[int, int]]] = {}
            for client_id, broker_id, accepted_at, state, count, *times in fetch(
                connection, _SQL["progress"], asked
            ):
                found = by_message.setdefault((client_id, broker_id), {})
                found[DeliveryState(state)] = (count, derive_since(DeliveryState(state), accepted_at, times))
            return [_progress(*ids, found) for ids, found in by_message.items()]

        return await self._database.read(read)

    async def trace(self, member: Sender, broker_message_id: str) -> MessageReceipt | None:
        def read(connection: apsw.Connection) -> MessageReceipt | None:
            asked = (member.member_id, broker_message_id, member.mesh_id)
            row = fetch_one(connection, _SQL["shared_by_broker_id"], asked)
            return None if row is None else _receipt(connection, member.mesh_id, row)

        return await self._database.read(read)


def _receipt(connection: apsw.Connection, mesh_id: int, row: Row) -> MessageReceipt:
    client_message_id, broker_message_id, history_id, history_available, accepted_at = row
    where: Row | None = fetch_one(connection, _SQL["destination"], (mesh_id, history_id))
    kind, ref = where or _NOWHERE
    rows = fetch(connection, _SQL["recipients"], (mesh_id, history_id))
    recipients = [_recipient(one) for one in rows]
    state = derive_message_state(recipients)
    since = [derive_since(state, accepted_at, one[_TIMES]) for one in rows if one[_STATE] == state]
    return MessageReceipt(
        client_message_id=client_message_id,
        broker_message_id=broker_message_id,
        history_id=history_id,
        kind=None if kind is None else Kind(kind),
        ref=ref,
        accepted_at=accepted_at,
        history_available=bool(history_available),
        state=state,
        at=max(since, default=accepted_at),  # when the last recipient in it came to it
        counts=derive_counts(recipients),
        recipients=recipients,
    )


def _progress(
    client_message_id: str, broker_message_id: str, found: dict[DeliveryState, tuple[int, int]]
) -> Progress:
    state = derive_least(found)
    return Progress(
        client_message_id=client_message_id,
        broker_message_id=broker_message_id,
        state=state,
        at=found[state][1],
        counts={one: count for one, (count, _) in found.items()},
    )


def _recipient(row: Row) -> RecipientReceipt:
    name, pubkey, state, delivered_at, read_at, acted_at, dead_at, dead_reason, attempts = row
    return RecipientReceipt(
        name=name,
        pubkey=pubkey,
        state=DeliveryState(state),
        delivered_at=delivered_at,
        read_at=read_at,
        acted_at=acted_at,
        dead_at=dead_at,
        dead_reason=dead_reason,
        attempts=attempts,
    )
