"""The sender: takes what waits in the outbox to the broker, in order, and writes down what became of it.

The order rule: at most one batch per destination is unanswered (`lanes.py`); the broker applies it in order and,
after an answer that is not final, defers the rest for that destination; a row that has to wait holds back its own
destination only.

A row is claimed in a commit before it goes out. Whatever happens then, the next start knows that its outcome is
unknown, and tries again under the same id.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from claudemesh.daemon.events import RowDied, RowSettled, Warned
from claudemesh.daemon.lanes import Lanes
from claudemesh.daemon.model import ClaimedRow, Destination, Settlement
from claudemesh.daemon.policy import Reading, read_outcome
from claudemesh.daemon.ports import BrokerLink, ClaimAsked, OutboxStore
from claudemesh.kernel.errors import DependencyError, MeshError
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.kernel.retry import BACKOFF_BASE_MS, BACKOFF_CAP_MS, derive_backoff_ms
from claudemesh.runtime import points
from claudemesh.runtime.world import World
from claudemesh.wire.frames import Outcome, retire_args

LANES_MAX: Final = 256
ROWS_MAX: Final = 256
BYTES_MAX: Final = 512 * 1024  # of a frame, unless its first row is larger
RESTART_WAIT_MAX_MS: Final = 5 * BACKOFF_CAP_MS  # beyond it the clock was stepped, and nobody asked for that
OVERDUE_EVERY_MS: Final = 60_000
OVERDUE_MAX: Final = 256

AFTER_CLAIM: Final = points.declare("daemon.after_claim")
BEFORE_SETTLE: Final = points.declare("daemon.before_settle")

_NO_ANSWER: Final = Outcome(status=0, code="no_answer")


class Drain:
    def __init__(self, outbox: OutboxStore, world: World, max_age_ms: Callable[[], int]) -> None:
        self._outbox = outbox
        self._clock = world.clock
        self._roll = world.roll
        self._observer = world.observer
        self._max_age_ms = max_age_ms
        self._lanes = Lanes()
        self._link: BrokerLink | None = None
        self._wake = asyncio.Event()
        self._accepted = 0  # how many rows the broker took since the start
        self._overdue_due_ms = 0

    # --- what others tell it -----------------------------------------------------------------------

    def queued(self, destination: Destination) -> None:
        self._lanes.note(destination)
        self._wake.set()

    def connected(self, link: BrokerLink) -> None:
        self._link = link
        self._wake.set()

    def disconnected(self) -> None:
        self._link = None

    # --- the loop ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find what the last run left. A destination whose oldest row had to wait still has to."""
        wall, now = self._clock.wall_ms(), self._clock.monotonic_ms()
        for backlog in await self._outbox.recover(wall + BACKOFF_BASE_MS):
            wait_ms = min(max(backlog.next_attempt_at - wall, 0), RESTART_WAIT_MAX_MS)
            self._lanes.note(backlog.destination, not_before_ms=now + wait_ms)

    async def run(self) -> None:
        """Work until cancelled. What nobody expected ends it, and with it the daemon: the next start recovers."""
        async with asyncio.TaskGroup() as batches:
            while True:
                await self._pause()
                await self._give_up_the_overdue()
                link = self._link
                if link is not None:
                    await self._send_what_may_go(link, batches)

    async def _pause(self) -> None:
        now = self._clock.monotonic_ms()
        wake_ms = self._lanes.next_wake_ms() if self._link is not None else None
        until = min(self._overdue_due_ms, self._overdue_due_ms if wake_ms is None else wake_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(until - now, 0) / 1000):
                await self._wake.wait()
        self._wake.clear()

    async def _send_what_may_go(self, link: BrokerLink, batches: asyncio.TaskGroup) -> None:
        lanes = self._lanes.take(self._clock.monotonic_ms(), LANES_MAX)
        if not lanes:
            return
        try:
            claimed = await self._outbox.claim(
                ClaimAsked(
                    destinations=tuple(lanes),
                    rows_max=ROWS_MAX,
                    bytes_max=BYTES_MAX,
                    accepted_since=self._clock.wall_ms() - self._max_age_ms(),
                )
            )
        except DependencyError:  # a full disk, say: nothing was claimed, and it may pass
            later = self._clock.monotonic_ms() + BACKOFF_BASE_MS
            for lane in lanes:
                self._lanes.release(lane, has_more=True, not_before_ms=later)
            return
        points.reach(AFTER_CLAIM)
        if claimed.overdue:
            await self._give_up(claimed.overdue, link)
        out = {row.destination for row in claimed.rows}
        for lane in lanes:
            if lane not in out:  # nothing for it, or no room for it in this frame
                self._lanes.release(lane, has_more=bool(claimed.rows or claimed.overdue))
        if claimed.rows:
            batches.create_task(self._carry(link, claimed.rows))
        if self._lanes.next_wake_ms() is not None:
            self._wake.set()

    # --- one batch ---------------------------------------------------------------------------------

    async def _carry(self, link: BrokerLink, rows: Sequence[ClaimedRow]) -> None:
        accepted_before = self._accepted
        try:
            outcomes = await (await link.send([row.payload for row in rows]))
        except MeshError:
            outcomes = [_NO_ANSWER] * len(rows)
            if self._link is link:
                self._link = None  # it is gone, whether or not its owner has noticed
        if len(outcomes) != len(rows):
            self._observer.publish(Warned("send_result_malformed", f"{len(rows)} sent, {len(outcomes)} answered"))
            outcomes = [_NO_ANSWER] * len(rows)
        points.reach(BEFORE_SETTLE)
        await self._settle(rows, outcomes, accepted_before)

    async def _settle(self, rows: Sequence[ClaimedRow], outcomes: Sequence[Outcome], accepted_before: int) -> None:
        self._accepted += sum(outcome.status in (200, 201) for outcome in outcomes)
        others_pass = self._accepted > accepted_before
        settlements: list[Settlement] = []
        waits: dict[Destination, int] = {}
        for row, outcome in zip(rows, outcomes, strict=True):
            reading = read_outcome(outcome.status or None, outcome.code, row.server_errors, others_pass=others_pass)
            if reading.event is OutboxEvent.FAILED and row.destination not in waits:
                waits[row.destination] = self._backoff_ms(row, outcome)
            settlements.append(self._settlement(row, outcome, reading, waits.get(row.destination, 0)))
        held = await self._write_down(settlements)
        now = self._clock.monotonic_ms()
        for destination in dict.fromkeys(row.destination for row in rows):
            self._lanes.release(destination, has_more=True, not_before_ms=now + waits.get(destination, 0))
        self._wake.set()
        for row, outcome, settlement, is_held in zip(rows, outcomes, settlements, held, strict=True):
            if is_held:
                self._publish(row, settlement, history_available=outcome.history_available)

    async def _write_down(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Settle, however long the store has no room for it: until then the rows are nobody else's."""
        attempts = 0
        while True:
            try:
                return await self._outbox.settle(settlements)
            except DependencyError as error:
                attempts += 1
                self._observer.publish(Warned("settle_deferred", str(error)))
                await asyncio.sleep(derive_backoff_ms(attempts, self._roll()) / 1000)

    def _backoff_ms(self, row: ClaimedRow, outcome: Outcome) -> int:
        if outcome is _NO_ANSWER:
            return 0  # the connection is gone, and coming back has a backoff of its own
        return derive_backoff_ms(row.attempts + 1, self._roll(), outcome.retry_after_ms)

    def _settlement(self, row: ClaimedRow, outcome: Outcome, reading: Reading, wait_ms: int) -> Settlement:
        wall = self._clock.wall_ms()
        return Settlement(
            seq=row.seq,
            event=reading.event,
            at=wall,
            next_attempt_at=wall + wait_ms,
            server_failed=reading.is_server_failure,
            last_error=reading.last_error,
            broker_message_id=outcome.broker_message_id,
            history_id=outcome.history_id,
        )

    def _publish(self, row: ClaimedRow, settlement: Settlement, *, history_available: bool = True) -> None:
        told = RowSettled(row.client_message_id, settlement.event, settlement.last_error, history_available)
        self._observer.publish(told)
        if settlement.event in (OutboxEvent.REFUSED, OutboxEvent.EXPIRED):
            self._observer.publish(RowDied(row.client_message_id, settlement.last_error))
        if not history_available:
            self._observer.publish(Warned("history_pruned", f"{row.client_message_id} is no longer kept"))

    # --- rows that are too old ---------------------------------------------------------------------

    async def _give_up_the_overdue(self) -> None:
        now = self._clock.monotonic_ms()
        if now < self._overdue_due_ms:
            return
        self._overdue_due_ms = now + OVERDUE_EVERY_MS
        rows = await self._outbox.overdue(self._clock.wall_ms() - self._max_age_ms(), OVERDUE_MAX)
        if rows:
            await self._give_up(rows, self._link)
        if len(rows) == OVERDUE_MAX:
            self._overdue_due_ms = now

    async def _give_up(self, rows: Sequence[ClaimedRow], link: BrokerLink | None) -> None:
        """Give rows up. One that was tried may have arrived, so the broker is asked to close its id first."""
        settlements = [await self._verdict_on_overdue(row, link) for row in rows]
        held = await self._write_down(settlements)
        for row, settlement, is_held in zip(rows, settlements, held, strict=True):
            if is_held:
                self._publish(row, settlement)

    async def _verdict_on_overdue(self, row: ClaimedRow, link: BrokerLink | None) -> Settlement:
        wall = self._clock.wall_ms()
        given_up = Settlement(
            seq=row.seq, event=OutboxEvent.EXPIRED, at=wall, attempted=False, last_error="max_age_exceeded"
        )
        if row.attempts == 0:
            return given_up
        retired = await _retire(row, link)
        if retired is None:
            return replace(given_up, last_error="outcome_unknown")
        if not retired["accepted"]:
            return given_up
        return Settlement(
            seq=row.seq,
            event=OutboxEvent.ACCEPTED,
            at=wall,
            broker_message_id=retired["broker_message_id"],
            history_id=retired["history_id"],
        )


async def _retire(row: ClaimedRow, link: BrokerLink | None) -> dict[str, Any] | None:
    if link is None:
        return None
    try:
        retired: dict[str, Any] = await link.call("retire", retire_args(row.client_message_id, row.payload))
    except MeshError:
        return None
    return retired
