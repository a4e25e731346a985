"""Topics and who is subscribed to them. A subscription begins and ends at a place in the order: under its lock."""

from collections.abc import Sequence
from importlib.resources import files

from claudemesh.broker.model import Sender, Topic
from claudemesh.broker.stores.asks import TopicAsk
from claudemesh.broker.stores.postgres.writers import MeshWriters, lock_counters
from claudemesh.kernel.errors import DestinationNotFound, MeshError, Revoked
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "topics.sql")


class PostgresTopicStore:
    def __init__(self, database: Database, writers: MeshWriters) -> None:
        self._database = database
        self._writers = writers

    async def create_topic(self, sender: Sender, name: str, now_ms: int) -> bool:
        return await self._writers.of(sender.mesh_id).submit(_create, TopicAsk(sender, name, now_ms))

    async def topics(self, sender: Sender) -> list[Topic]:
        rows = await self._database.fetch(_SQL["topics"], sender.mesh_id, sender.member_id)
        return [
            Topic(name=name, created_at=created_at, subscribers=subscribers, is_subscribed=mine)
            for name, created_at, subscribers, mine in rows
        ]

    async def subscribe(self, sender: Sender, name: str) -> int:
        return await self._writers.of(sender.mesh_id).submit(_subscribe, TopicAsk(sender, name))

    async def unsubscribe(self, sender: Sender, name: str, now_ms: int) -> bool:
        return await self._writers.of(sender.mesh_id).submit(_unsubscribe, TopicAsk(sender, name, now_ms))


# --- in a writer's transaction -----------------------------------------------------------------------


async def judge_in_force(connection: Connection, sender: Sender) -> Revoked | None:
    """Refuse whoever was revoked since the hello; asked in the transaction that does what it wants."""
    is_in_force = await connection.fetchval(_SQL["is_in_force"], sender.member_id, sender.mesh_id)
    return None if is_in_force else Revoked()


async def _create(connection: Connection, asked: Sequence[TopicAsk]) -> list[bool | MeshError]:
    outcomes: list[bool | MeshError] = []
    for one in asked:
        row = (one.sender.mesh_id, one.name, one.sender.member_id, one.now_ms)
        refusal = await judge_in_force(connection, one.sender)
        outcomes.append(refusal or bool(await connection.fetch(_SQL["create_topic"], *row)))
    return outcomes


async def _subscribe(connection: Connection, asked: Sequence[TopicAsk]) -> list[int | MeshError]:
    last = await lock_counters(connection, (one.sender for one in asked))
    outcomes: list[int | MeshError] = []
    for one in asked:
        found = await _find(connection, one)
        if isinstance(found, MeshError):
            outcomes.append(found)
            continue
        row = (found, one.sender.member_id, last[one.sender.mesh_id])
        outcomes.append(await connection.fetchval(_SQL["subscribe"], *row))
    return outcomes


async def _unsubscribe(connection: Connection, asked: Sequence[TopicAsk]) -> list[bool | MeshError]:
    await lock_counters(connection, (one.sender for one in asked))
    outcomes: list[bool | MeshError] = []
    for one in asked:
        found = await _find(connection, one)
        if isinstance(found, MeshError):
            outcomes.append(found)
            continue
        values = (found, one.sender.member_id, one.now_ms)
        outcomes.append(bool(await connection.fetch(_SQL["unsubscribe"], *values)))
    return outcomes


async def _find(connection: Connection, asked: TopicAsk) -> int | MeshError:
    """Return the topic's number."""
    refusal = await judge_in_force(connection, asked.sender)
    if refusal is not None:
        return refusal
    topic_id: int | None = await connection.fetchval(_SQL["find_topic"], asked.sender.mesh_id, asked.name)
    return DestinationNotFound("there is no such topic") if topic_id is None else topic_id
