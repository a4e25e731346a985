"""What a connection has that gets and sends messages: its pump, its sends, its acknowledgements, its hints."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from claudemesh.broker.deliver import AckBook, Pump
from claudemesh.broker.events import DeadLettered
from claudemesh.broker.hints import Hints
from claudemesh.broker.house import House
from claudemesh.broker.model import Identity, Moved, Seat
from claudemesh.broker.sending import Sending

Write = Callable[[str], Awaitable[None]]


class Desk:
    def __init__(  # noqa: PLR0913  its parts, by name
        self,
        house: House,
        identity: Identity,
        seat: Seat,
        *,
        write: Write,
        write_or_close: Write,
        last_life_ms: Callable[[], int],
    ) -> None:
        """Write by `write` from the connection's own tasks, and by `write_or_close` from those that outlive it."""
        self._house = house
        self._identity = identity
        self.sending = Sending(house.service, identity, house.spawn, write_or_close)
        self.pump = Pump(
            house.deliveries,
            seat,
            clock=house.clock,
            push=write,
            last_life_ms=last_life_ms,
            gave_up=self._tell_dead,
        )
        self.acks = AckBook(house.deliveries, identity.sender, house.clock, self._acks_written)
        self.hints = Hints(house.receipts, identity.sender, write)

    def start(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self.sending.run())
        group.create_task(self.acks.run())
        group.create_task(self.pump.run())
        group.create_task(self.hints.run())

    def note_acks(self, history_ids: Sequence[int]) -> None:
        self.acks.note(self.pump.acked(history_ids))

    def _acks_written(self, acked: Mapping[int, Moved]) -> None:
        self.pump.written(acked)
        self._house.board.hint_all(acked.values())

    def _tell_dead(self, history_ids: Sequence[int]) -> None:
        mesh, member = self._identity.mesh.uid, self._identity.member.uid
        self._house.observer.publish(DeadLettered(mesh, member, tuple(history_ids), "attempts_exhausted"))
