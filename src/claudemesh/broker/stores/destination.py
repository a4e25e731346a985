"""Where a message of an accept goes, once it has been looked up."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a message goes: `id` is the member's, the topic's or the queue's; a topic has its subscribers."""

    id: int
    to_session: str | None = None
    subscribers: tuple[int, ...] = ()
    others: dict[int, tuple[int, ...]] = field(default_factory=dict)  # without one of them, by that one

    def recipients(self, sender_id: int) -> tuple[int, ...]:
        found = self.others.get(sender_id)
        if found is None:
            found = self.others[sender_id] = tuple(id_ for id_ in self.subscribers if id_ != sender_id)
        return found
