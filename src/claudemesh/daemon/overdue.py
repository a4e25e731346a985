"""Rows that are too old to be sent: they are given up, beside the sending and never in its way.

One that was tried may have arrived, so the broker is asked first to close its id. While there is nobody to ask, the
row waits and holds back its own destination only. When it has waited for an hour, since it came of age or since the
start, whichever was later, its outcome is unknown.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from claudemesh.daemon.events import tell_settled
from claudemesh.daemon.model import ClaimedRow, Destination, Settlement
from claudemesh.daemon.ports import BrokerLink, OutboxStore
from claudemesh.kernel.clock import HOUR_MS
from claudemesh.kernel.errors import BrokerUnreachable, DependencyError, MeshError
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.runtime.world import World
from claudemesh.wire.frames import retire_args

PAGE: Final = 256
RETIRES_MAX: Final = 16  # calls under way at once
WAIT_FOR_BROKER_MS: Final = HOUR_MS


class _Retired(msgspec.Struct, frozen=True):
    """The broker's answer: what it had accepted under the id, or that nothing will be."""

    accepted: bool
    broker_message_id: str | None = None
    history_id: int | None = None


class Overdue:
    def __init__(self, outbox: OutboxStore, world: World, max_age_ms: Callable[[], int]) -> None:
        self._outbox = outbox
        self._observer = world.observer
        self._steady_ms = world.steady_ms
        self._max_age_ms = max_age_ms
        self._started = world.steady_ms()
        self._asking = asyncio.Semaphore(RETIRES_MAX)

    @property
    def before(self) -> int:
        """What was accepted before this instant is too old."""
        return self._steady_ms() - self._max_age_ms()

    async def give_up(self, link: BrokerLink | None) -> set[Destination]:
        """Go through all that is too old, once; return where a row still waits to be asked about."""
        waiting: set[Destination] = set()
        after = (0, 0)
        while rows := await self._outbox.overdue(self.before, after, PAGE):
            after = (rows[-1].enqueued_at, rows[-1].seq)
            verdicts = await asyncio.gather(*(self._judge(row, link) for row in rows))
            waiting.update(row.destination for row, verdict in zip(rows, verdicts, strict=True) if verdict is None)
            judged = [(row, verdict) for row, verdict in zip(rows, verdicts, strict=True) if verdict is not None]
            try:
                held = await self._outbox.settle([verdict for _, verdict in judged])
            except DependencyError:  # a full disk, say: another time
                waiting.update(row.destination for row, _ in judged)
                continue
            tell_settled(self._observer, [pair for pair, is_held in zip(judged, held, strict=True) if is_held])
        return waiting

    async def _judge(self, row: ClaimedRow, link: BrokerLink | None) -> Settlement | None:
        """Return what becomes of a row; None if the broker has to be asked, and cannot be yet."""
        if row.attempts == 0:
            return self._given_up(row, "max_age_exceeded")
        try:
            retired = await self._retire(row, link)
        except DependencyError:  # not there, or silent
            came_of_age = row.enqueued_at + self._max_age_ms()
            is_late = self._steady_ms() >= max(came_of_age, self._started) + WAIT_FOR_BROKER_MS
            return self._given_up(row, "outcome_unknown") if is_late else None
        except MeshError:  # it was asked, and will not say
            return self._given_up(row, "outcome_unknown")
        if not retired.accepted:
            return self._given_up(row, "max_age_exceeded")
        return Settlement(
            seq=row.seq,
            event=OutboxEvent.ACCEPTED,
            at=self._steady_ms(),
            broker_message_id=retired.broker_message_id,
            history_id=retired.history_id,
        )

    async def _retire(self, row: ClaimedRow, link: BrokerLink | None) -> "_Retired":
        if link is None:
            raise BrokerUnreachable("this daemon is not connected to its broker")
        async with self._asking:
            answer = await link.call("retire", retire_args(row.client_message_id, row.payload))
        try:
            return msgspec.convert(answer, _Retired)
        except msgspec.ValidationError as error:
            raise MeshError(f"the broker's answer to a retire: {error}") from error

    def _given_up(self, row: ClaimedRow, reason: str) -> Settlement:
        return Settlement(
            seq=row.seq, event=OutboxEvent.EXPIRED, at=self._steady_ms(), attempted=False, last_error=reason
        )
