"""The daemon's sender: messages go to the broker in frames, and what it answers is written down.

The loop is `outbox.sender`; here is how rows are carried, what an outcome means, and that rows which are too old
are given up with the broker's word (`overdue.py`).
"""

from collections.abc import Callable, Sequence
from typing import Final

from claudemesh.daemon.events import HistoryPruned, Warned, tell_settled
from claudemesh.daemon.model import ClaimedRow, Destination, Settlement
from claudemesh.daemon.overdue import Overdue
from claudemesh.daemon.ports import BrokerLink, OutboxStore
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.outbox.reading import read_outcome
from claudemesh.outbox.sender import Sender
from claudemesh.runtime.world import World
from claudemesh.wire.frames import Outcome

_NO_ANSWER: Final = Outcome(status=0, code="no_answer")


class Drain(Sender[Destination, BrokerLink, Outcome, Settlement]):
    def __init__(self, outbox: OutboxStore, world: World, max_age_ms: Callable[[], int]) -> None:
        super().__init__(outbox, world)
        self._observer = world.observer
        self._overdue = Overdue(outbox, world, max_age_ms)

    @property
    def too_old_before(self) -> int:
        return self._overdue.before

    async def give_up(self, link: BrokerLink | None) -> set[Destination]:
        return await self._overdue.give_up(link)

    async def carry(self, link: BrokerLink, rows: Sequence[ClaimedRow]) -> Sequence[Outcome]:
        return await (await link.send([row.payload for row in rows]))

    def is_taken(self, outcome: Outcome) -> bool:
        return outcome.status in (200, 201)

    def read(self, row: ClaimedRow, outcome: Outcome | None, *, others_pass: bool) -> tuple[Settlement, int | None]:
        now = self._steady_ms()
        told = outcome or _NO_ANSWER
        reading = read_outcome(told.status or None, told.code, row.server_errors, others_pass=others_pass)
        wait_ms = self._backoff_ms(row, outcome) if reading.event is OutboxEvent.FAILED else None
        settlement = Settlement(
            seq=row.seq,
            event=reading.event,
            at=now,
            next_attempt_at=now + (wait_ms or 0),
            server_failed=reading.is_server_failure,
            last_error=reading.last_error,
            broker_message_id=told.broker_message_id,
            history_id=told.history_id,
        )
        return settlement, wait_ms

    def tell(self, settled: Sequence[tuple[ClaimedRow, Outcome | None, Settlement]]) -> None:
        tell_settled(self._observer, [(row, settlement) for row, _, settlement in settled])
        for row, outcome, _ in settled:
            if outcome is not None and not outcome.history_available:
                self._observer.publish(HistoryPruned(row.client_message_id))

    def warn(self, code: str, detail: str) -> None:
        self._observer.publish(Warned(code, detail))

    def _backoff_ms(self, row: ClaimedRow, outcome: Outcome | None) -> int:
        if outcome is None:
            return 0  # the connection is gone, and coming back has a backoff of its own
        return derive_backoff_ms(row.attempts + 1, self._roll(), outcome.retry_after_ms)
