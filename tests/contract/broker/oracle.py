"""What an accept and a delivery should be, in plain dicts and without any engine."""

from dataclasses import dataclass, field

from claudemesh.broker.model import Message, Sender
from claudemesh.kernel.fingerprint import Kind


@dataclass
class Stored:
    history_id: int
    message: Message
    sender_id: int


@dataclass
class Oracle:
    members: dict[str, int]  # public key -> member
    last: int = 0
    used: dict[tuple[int, str], Stored | None] = field(default_factory=dict)  # None: retired
    topics: dict[str, set[int]] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    waiting: dict[int, dict[int, str]] = field(default_factory=dict)  # member -> history id -> body

    def accept(self, sender: Sender, messages: tuple[Message, ...]) -> list[object]:
        return [self._accept(sender.member_id, message) for message in messages]

    def _accept(self, sender_id: int, message: Message) -> object:
        key = (sender_id, message.client_message_id)
        if key in self.used:
            stands = self.used[key]
            if stands is None:
                return "id_retired"
            return ("duplicate", stands.history_id) if _same(stands.message, message) else "idempotency_key_reused"
        known = {Kind.DM: self.members, Kind.TOPIC: self.topics, Kind.QUEUE: self.queues}[message.kind]
        if message.ref not in known:
            return "destination_not_found"
        if message.kind is Kind.TOPIC and sender_id not in self.topics[message.ref]:
            return "not_subscribed"
        recipients: set[int] = set()
        if message.kind is Kind.DM:
            recipients = {self.members[message.ref]}
        elif message.kind is Kind.TOPIC:
            recipients = self.topics[message.ref] - {sender_id}
        self.last += 1
        self.used[key] = Stored(self.last, message, sender_id)
        for recipient in recipients:
            self.waiting.setdefault(recipient, {})[self.last] = message.body
        return ("accepted", self.last, frozenset(recipients))

    def retire(self, sender: Sender, id_: str) -> int | None:
        stands = self.used.setdefault((sender.member_id, id_), None)
        return None if stands is None else stands.history_id

    def ack(self, member: Sender, history_ids: list[int]) -> None:
        for history_id in history_ids:
            self.waiting.get(member.member_id, {}).pop(history_id, None)

    def page(self, member: Sender, after: int, count: int) -> list[tuple[int, str]]:
        waiting = self.waiting.get(member.member_id, {})
        return [(id_, waiting[id_]) for id_ in sorted(waiting) if id_ > after][:count]


def _same(one: Message, other: Message) -> bool:
    fields = ("kind", "ref", "body", "reply_to", "priority", "meta")
    return all(getattr(one, name) == getattr(other, name) for name in fields)
