"""Topics and who is subscribed to them."""

from collections.abc import Sequence
from importlib.resources import files

import apsw

from claudemesh.broker.model import Sender, Topic
from claudemesh.broker.stores.asks import TopicAsk
from claudemesh.broker.stores.sqlite.directory import judge_in_force
from claudemesh.broker.stores.sqlite.rows import fetch, run
from claudemesh.kernel.errors import DestinationNotFound, MeshError
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database

_SQL = load_queries(files(__package__) / "topics.sql")


class SqliteTopicStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_topic(self, sender: Sender, name: str, now_ms: int) -> bool:
        return await self._database.write(_create, TopicAsk(sender, name, now_ms))

    async def topics(self, sender: Sender) -> list[Topic]:
        def read(connection: apsw.Connection) -> list[Topic]:
            rows = fetch(connection, _SQL["topics"], (sender.mesh_id, sender.member_id))
            return [
                Topic(name=name, created_at=created_at, subscribers=subscribers, is_subscribed=bool(mine))
                for name, created_at, subscribers, mine in rows
            ]

        return await self._database.read(read)

    async def subscribe(self, sender: Sender, name: str) -> int:
        return await self._database.write(_subscribe, TopicAsk(sender, name))

    async def unsubscribe(self, sender: Sender, name: str, now_ms: int) -> bool:
        return await self._database.write(_unsubscribe, TopicAsk(sender, name, now_ms))


def _create(connection: apsw.Connection, asked: Sequence[TopicAsk]) -> list[bool | MeshError]:
    outcomes: list[bool | MeshError] = []
    for one in asked:
        row = (one.sender.mesh_id, one.name, one.sender.member_id, one.now_ms)
        refusal = judge_in_force(connection, one.sender)
        outcomes.append(refusal or run(connection, _SQL["create_topic"], row) > 0)
    return outcomes


def _subscribe(connection: apsw.Connection, asked: Sequence[TopicAsk]) -> list[int | MeshError]:
    outcomes: list[int | MeshError] = []
    for one in asked:
        found = _find(connection, one)
        if isinstance(found, MeshError):
            outcomes.append(found)
            continue
        topic_id, history_id = found
        connection.execute(_SQL["subscribe"], (topic_id, one.sender.member_id, history_id))
        since = fetch(connection, _SQL["subscribed_after"], (topic_id, one.sender.member_id))
        outcomes.append(since[0][0])
    return outcomes


def _unsubscribe(connection: apsw.Connection, asked: Sequence[TopicAsk]) -> list[bool | MeshError]:
    outcomes: list[bool | MeshError] = []
    for one in asked:
        found = _find(connection, one)
        if isinstance(found, MeshError):
            outcomes.append(found)
            continue
        values = (found[0], one.sender.member_id, one.now_ms)
        outcomes.append(run(connection, _SQL["unsubscribe"], values) > 0)
    return outcomes


def _find(connection: apsw.Connection, asked: TopicAsk) -> tuple[int, int] | MeshError:
    refusal = judge_in_force(connection, asked.sender)
    if refusal is not None:
        return refusal
    rows = fetch(connection, _SQL["topic_and_history"], (asked.sender.mesh_id, asked.name))
    return (rows[0][0], rows[0][1]) if rows else DestinationNotFound("there is no such topic")
