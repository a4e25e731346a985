"""Topics and who is subscribed to them."""

from claudemesh.broker.model import Sender, Topic
from claudemesh.kernel.errors import DestinationNotFound
from tests.contract.broker.oracle.world import TopicBook, World


class OracleTopicStore:
    def __init__(self, world: World) -> None:
        self._world = world

    async def create_topic(self, sender: Sender, name: str, now_ms: int) -> bool:
        self._world.check_in_force(sender)
        made = TopicBook(now_ms)
        return self._world.topics.setdefault((sender.mesh_id, name), made) is made

    async def topics(self, sender: Sender) -> list[Topic]:
        return [
            Topic(
                name=name,
                created_at=topic.created_at,
                subscribers=len(topic.subscribers),
                is_subscribed=sender.member_id in topic.subscribers,
            )
            for (mesh_id, name), topic in sorted(self._world.topics.items(), key=lambda item: item[0])
            if mesh_id == sender.mesh_id
        ]

    async def subscribe(self, sender: Sender, name: str) -> int:
        subscribers = self._find(sender, name).subscribers
        return subscribers.setdefault(sender.member_id, self._world.last[sender.mesh_id])

    async def unsubscribe(self, sender: Sender, name: str, now_ms: int) -> bool:  # noqa: ARG002  the port's
        return self._find(sender, name).subscribers.pop(sender.member_id, None) is not None

    def _find(self, sender: Sender, name: str) -> TopicBook:
        self._world.check_in_force(sender)
        topic = self._world.topics.get((sender.mesh_id, name))
        if topic is None:
            raise DestinationNotFound
        return topic
