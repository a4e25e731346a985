"""The sender: takes what waits in the outbox to the broker, in order, and writes down what became of it.

The order rule: at most one batch per destination is unanswered (`lanes.py`); the broker applies it in order and,
after an answer that is not final, defers the rest for that destination; a row that has to wait holds back its own
destination only. What is too old is given up beside all that (`overdue.py`).

A row is claimed in a commit before it goes out. Whatever happens then, the next start knows that its outcome is
unknown, and tries again under the same id. A sender at rest asks for its claim as soon as it hears of a row, which
is before that is stored: row and claim then share one commit, and the message is a sync sooner at its destination.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

from claudemesh.daemon.events import HistoryPruned, Warned, tell_settled
from claudemesh.daemon.lanes import Lanes
from claudemesh.daemon.model import ClaimedRow, Destination, Settlement
from claudemesh.daemon.overdue import Overdue
from claudemesh.daemon.policy import read_outcome
from claudemesh.daemon.ports import BrokerLink, ClaimAsked, Claimed, OutboxStore
from claudemesh.kernel.errors import DependencyError, MeshError
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.kernel.retry import BACKOFF_BASE_MS, BACKOFF_CAP_MS, derive_backoff_ms
from claudemesh.runtime import points
from claudemesh.runtime.world import World
from claudemesh.wire.frames import Outcome

LANES_MAX: Final = 256
ROWS_MAX: Final = 256
BYTES_MAX: Final = 512 * 1024  # of a frame, unless its first row is larger
RESTART_WAIT_MAX_MS: Final = 5 * BACKOFF_CAP_MS  # beyond it the clock was stepped, and nobody asked for that
OVERDUE_EVERY_MS: Final = 60_000

AFTER_CLAIM: Final = points.declare("daemon.after_claim")
BEFORE_SETTLE: Final = points.declare("daemon.before_settle")

_NO_ANSWER: Final = Outcome(status=0, code="no_answer")


class Drain:
    def __init__(self, outbox: OutboxStore, world: World, max_age_ms: Callable[[], int]) -> None:
        self._outbox = outbox
        self._clock = world.clock
        self._roll = world.roll
        self._observer = world.observer
        self._steady_ms = world.steady_ms
        self._overdue = Overdue(outbox, world, max_age_ms)
        self._lanes = Lanes()
        self._link: BrokerLink | None = None
        self._wake = asyncio.Event()
        self._beside: asyncio.TaskGroup | None = None  # what runs beside the loop, while it runs
        self._claims = 0  # how many are under way
        self._accepted = 0  # how many rows the broker took since the start
        self._stuck: set[Destination] = set()  # lanes that are held: their oldest row is too old
        self._overdue_due_ms = 0
        self._is_giving_up = False

    # --- what others tell it -----------------------------------------------------------------------

    def queued(self, destinations: Collection[Destination]) -> None:
        """Go for them at once if the sender is at rest; else whatever it waits for wakes it, and it finds them."""
        for destination in destinations:
            self._lanes.note(destination)
        self._go_at_once(destinations)

    def connected(self, link: BrokerLink) -> None:
        self._link = link
        self._overdue_due_ms = 0  # whatever waits to be asked about can be now
        self._wake.set()

    def disconnected(self) -> None:
        self._link = None

    # --- the loop ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find what the last run left. A destination whose oldest row had to wait still has to."""
        steady, now = self._steady_ms(), self._clock.monotonic_ms()
        for backlog in await self._outbox.recover(steady + BACKOFF_BASE_MS):
            wait_ms = min(max(backlog.next_attempt_at - steady, 0), RESTART_WAIT_MAX_MS)
            self._lanes.note(backlog.destination, not_before_ms=now + wait_ms)

    async def run(self) -> None:
        """Work until cancelled. What nobody expected ends it, and with it the daemon: the next start recovers."""
        async with asyncio.TaskGroup() as beside:
            self._beside = beside
            try:
                while True:
                    await self._pause()
                    self._look_for_the_overdue(beside)
                    link = self._link
                    lanes = [] if link is None else self._lanes.take(self._clock.monotonic_ms(), LANES_MAX)
                    if link is not None and lanes:
                        await self._set_out(link, beside, lanes, self._claim(lanes))
            finally:
                self._beside = None  # whoever tells of a row from here on must not fail at that

    async def _pause(self) -> None:
        now = self._clock.monotonic_ms()
        wake_ms = self._lanes.next_wake_ms() if self._link is not None else None
        look_ms = now + OVERDUE_EVERY_MS if self._is_giving_up else self._overdue_due_ms
        until = look_ms if wake_ms is None else min(look_ms, wake_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(until - now, 0) / 1000):
                await self._wake.wait()
        self._wake.clear()

    def _look_for_the_overdue(self, beside: asyncio.TaskGroup) -> None:
        now = self._clock.monotonic_ms()
        if now >= self._overdue_due_ms and not self._is_giving_up:
            self._overdue_due_ms = now + OVERDUE_EVERY_MS
            self._is_giving_up = True
            beside.create_task(self._give_up_the_overdue())

    async def _give_up_the_overdue(self) -> None:
        waiting = await self._overdue.give_up(self._link)
        for destination in self._stuck - waiting:
            self._lanes.release(destination, has_more=True)
        self._stuck &= waiting
        self._is_giving_up = False
        self._wake.set()

    def _go_at_once(self, destinations: Collection[Destination]) -> None:
        """Ask for the claim here and now, without the loop: it then shares the commit of what was just written."""
        if self._link is None or self._beside is None or self._claims:
            return
        lanes = self._lanes.take(self._clock.monotonic_ms(), LANES_MAX, destinations)
        if lanes:
            self._beside.create_task(self._set_out(self._link, self._beside, lanes, self._claim(lanes)))

    def _claim(self, lanes: Sequence[Destination]) -> Awaitable[Claimed]:
        self._claims += 1
        return self._outbox.claim(
            ClaimAsked(
                destinations=tuple(lanes),
                rows_max=ROWS_MAX,
                bytes_max=BYTES_MAX,
                accepted_since=self._overdue.before,
            )
        )

    async def _set_out(
        self, link: BrokerLink, beside: asyncio.TaskGroup, lanes: Sequence[Destination], claim: Awaitable[Claimed]
    ) -> None:
        try:
            claimed = await claim
        except DependencyError:  # a full disk, say: nothing was claimed, and it may pass
            later = self._clock.monotonic_ms() + BACKOFF_BASE_MS
            for lane in lanes:
                self._lanes.release(lane, has_more=True, not_before_ms=later)
            self._wake.set()
            return
        finally:
            self._claims -= 1
        points.reach(AFTER_CLAIM)
        if claimed.stuck:
            self._stuck |= claimed.stuck
            self._overdue_due_ms = 0
            self._wake.set()
        out = {row.destination for row in claimed.rows}
        for lane in lanes:
            if lane not in out and lane not in claimed.stuck:  # nothing for it, or no room for it in this frame
                self._lanes.release(lane, has_more=lane in claimed.more)
        if claimed.rows:
            beside.create_task(self._carry(link, claimed))
        if self._lanes.next_wake_ms() is not None:
            self._wake.set()

    # --- one batch ---------------------------------------------------------------------------------

    async def _carry(self, link: BrokerLink, claimed: Claimed) -> None:
        rows, accepted_before = claimed.rows, self._accepted
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
        self._accepted += sum(outcome.status in (200, 201) for outcome in outcomes)
        settlements, waits = self._read(rows, outcomes, others_pass=self._accepted > accepted_before)
        settling = self._outbox.settle(settlements)
        lanes = tuple(dict.fromkeys(row.destination for row in rows))
        now = self._clock.monotonic_ms()
        for lane in lanes:
            has_more = lane in claimed.more or lane in waits
            self._lanes.release(lane, has_more=has_more, not_before_ms=now + waits.get(lane, 0))
        self._go_at_once(lanes)  # the claim comes after the settling, so it finds these rows settled
        self._wake.set()
        held = await self._write_down(settlements, settling, lanes)
        pairs = zip(rows, settlements, strict=True)
        tell_settled(self._observer, [pair for pair, is_held in zip(pairs, held, strict=True) if is_held])
        for row, outcome in zip(rows, outcomes, strict=True):
            if not outcome.history_available:
                self._observer.publish(HistoryPruned(row.client_message_id))

    def _read(
        self, rows: Sequence[ClaimedRow], outcomes: Sequence[Outcome], *, others_pass: bool
    ) -> tuple[list[Settlement], dict[Destination, int]]:
        """Return what becomes of each row, and how long which destinations have to wait."""
        now = self._steady_ms()
        settlements: list[Settlement] = []
        waits: dict[Destination, int] = {}
        for row, outcome in zip(rows, outcomes, strict=True):
            reading = read_outcome(outcome.status or None, outcome.code, row.server_errors, others_pass=others_pass)
            if reading.event is OutboxEvent.FAILED and row.destination not in waits:
                waits[row.destination] = self._backoff_ms(row, outcome)
            settlements.append(
                Settlement(
                    seq=row.seq,
                    event=reading.event,
                    at=now,
                    next_attempt_at=now + waits.get(row.destination, 0),
                    server_failed=reading.is_server_failure,
                    last_error=reading.last_error,
                    broker_message_id=outcome.broker_message_id,
                    history_id=outcome.history_id,
                )
            )
        return settlements, waits

    async def _write_down(
        self,
        settlements: Sequence[Settlement],
        settling: Awaitable[list[bool]],
        lanes: Collection[Destination],
    ) -> list[bool]:
        """Wait for it, and settle again for as long as the store has no room: until then these rows hold all up."""
        attempts = 0
        while True:
            try:
                return await settling
            except DependencyError as error:
                attempts += 1
                self._observer.publish(Warned("settle_deferred", str(error)))
                await asyncio.sleep(derive_backoff_ms(attempts, self._roll()) / 1000)
                settling = self._outbox.settle(settlements)
                self.queued(lanes)  # those behind them, which found them unsettled

    def _backoff_ms(self, row: ClaimedRow, outcome: Outcome) -> int:
        if outcome is _NO_ANSWER:
            return 0  # the connection is gone, and coming back has a backoff of its own
        return derive_backoff_ms(row.attempts + 1, self._roll(), outcome.retry_after_ms)
