"""The sender: takes what waits in an outbox to the other side, in order, and writes down what became of it.

The order rule: at most one batch per destination is unanswered (`lanes.py`); the other side applies it in order
and, after an answer that is not final, defers the rest for that destination; a row that has to wait holds back its
own destination only. What is too old is given up beside all that.

What nobody expected, while an answer is read or settled, costs the rows that it is about and no others: they are
tried again after a backoff. What a store says of itself is never taken for that: it ends the loop.

A row is claimed in a commit before it goes out. Whatever happens then, the next start knows that its outcome is
unknown, and tries again under the same id. A sender at rest asks for its claim as soon as it hears of a row, which
is before that is stored: row and claim then share one commit, and the message is a sync sooner at its destination.

What differs from one outbox to the other is below `Sender`: how rows are carried, what an answer means, which rows
are too old.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Sequence
from contextlib import suppress
from typing import ClassVar, Final, Generic, TypeVar

import msgspec

from claudemesh.kernel.errors import DependencyError, IntegrityError, MeshError
from claudemesh.kernel.retry import BACKOFF_BASE_MS, BACKOFF_CAP_MS, derive_backoff_ms
from claudemesh.outbox.lanes import Lanes
from claudemesh.outbox.model import NO_LIMIT, ClaimAsked, Claimed, ClaimedRow, D, Settlement
from claudemesh.outbox.ports import SendingStore
from claudemesh.runtime import points
from claudemesh.runtime.world import World

LANES_MAX: Final = 256
ROWS_MAX: Final = 256
BYTES_MAX: Final = 512 * 1024  # of a batch, unless its first row is larger
RESTART_WAIT_MAX_MS: Final = 5 * BACKOFF_CAP_MS  # beyond it the clock was stepped, and nobody asked for that
OVERDUE_EVERY_MS: Final = 60_000
UNEXPECTED: Final = "internal_error"  # the error of a row whose answer nobody could make anything of

AFTER_CLAIM: Final = points.declare("outbox.after_claim")
BEFORE_SETTLE: Final = points.declare("outbox.before_settle")

L = TypeVar("L")  # the link: what rows are carried over, while it stands
O = TypeVar("O")  # noqa: E741  an outcome: what the other side answered to one row
S = TypeVar("S", bound=Settlement)


class Sender(ABC, Generic[D, L, O, S]):
    rows_each_max: ClassVar[int] = NO_LIMIT  # of one destination in one batch
    unanswered_max: ClassVar[int] = NO_LIMIT  # destinations that are out at once
    only_tried_are_overdue: ClassVar[bool] = False

    def __init__(self, outbox: SendingStore[D, S], world: World) -> None:
        self._outbox = outbox
        self._clock = world.clock
        self._roll = world.roll
        self._steady_ms = world.steady_ms
        self._lanes: Lanes[D] = Lanes()
        self._link: L | None = None
        self._wake = asyncio.Event()
        self._beside: asyncio.TaskGroup | None = None  # what runs beside the loop, while it runs
        self._claims = 0  # how many are under way
        self._accepted = 0  # how many rows the other side took since the start
        self._stuck: set[D] = set()  # lanes that are held: their oldest row is too old
        self._overdue_due_ms = 0
        self._is_giving_up = False

    # --- what differs from one outbox to the other -------------------------------------------------

    @property
    @abstractmethod
    def too_old_before(self) -> int:
        """What was accepted before this instant is too old to be sent."""

    @abstractmethod
    async def give_up(self, link: L | None) -> set[D]:
        """Go through all that is too old, once; return where a row still waits to be asked about."""

    @abstractmethod
    async def carry(self, link: L, rows: Sequence[ClaimedRow[D]]) -> Sequence[O]:
        """Send them, and return what is answered to each; a MeshError says that nobody knows."""

    @abstractmethod
    def is_taken(self, outcome: O) -> bool:
        """Say whether the other side has the row."""

    @abstractmethod
    def read(self, row: ClaimedRow[D], outcome: O | None, *, others_pass: bool) -> tuple[S, int | None]:
        """Return what becomes of a row, and how long its destination has to wait; None if it has not.

        No outcome is no answer: the connection is gone, and coming back has a backoff of its own.
        """

    @abstractmethod
    def tell(self, settled: Sequence[tuple[ClaimedRow[D], O | None, S]]) -> None:
        """Publish what became of these rows."""

    @abstractmethod
    def warn(self, code: str, detail: str) -> None:
        """Publish that something is not as it should be."""

    def carried_apart(self, rows: Sequence[ClaimedRow[D]]) -> list[list[ClaimedRow[D]]]:
        """Return what was claimed together as it is carried: all in one, unless a slow one would hold up others."""
        return [list(rows)]

    # --- what others tell it -----------------------------------------------------------------------

    def queued(self, destinations: Collection[D]) -> None:
        """Go for them at once if the sender is at rest; else whatever it waits for wakes it, and it finds them."""
        for destination in destinations:
            self._lanes.note(destination)
        self._go_at_once(destinations)

    def connected(self, link: L) -> None:
        self._link = link
        self._overdue_due_ms = 0  # whatever waits to be asked about can be now
        self._wake.set()

    def hurry(self) -> None:
        """Try at once what waits for its backoff."""
        self._lanes.hurry()
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
        """Work until cancelled. What nobody expected ends it, and with it the process: the next start recovers."""
        async with asyncio.TaskGroup() as beside:
            self._beside = beside
            try:
                while True:
                    await self._pause()
                    self._look_for_the_overdue(beside)
                    link = self._link
                    lanes = [] if link is None else self._take()
                    if link is not None and lanes:
                        await self._set_out(link, beside, lanes, self._claim(lanes))
            finally:
                self._beside = None  # whoever tells of a row from here on must not fail at that

    def _take(self, among: Collection[D] | None = None) -> list[D]:
        room = min(LANES_MAX, self.unanswered_max - self._lanes.busy)
        return self._lanes.take(self._clock.monotonic_ms(), room, among) if room > 0 else []

    async def _pause(self) -> None:
        now = self._clock.monotonic_ms()
        may_send = self._link is not None and self._lanes.busy < self.unanswered_max
        wake_ms = self._lanes.next_wake_ms() if may_send else None
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
        try:
            waiting = await self.give_up(self._link)
        except DependencyError as error:  # a full disk, say: another time, and until then it holds nobody else up
            self.warn("give_up_deferred", str(error))
            waiting = set(self._stuck)
        for destination in self._stuck - waiting:
            self._lanes.release(destination, has_more=True)
        self._stuck &= waiting
        self._is_giving_up = False
        self._wake.set()

    def _go_at_once(self, destinations: Collection[D]) -> None:
        """Ask for the claim here and now, without the loop: it then shares the commit of what was just written."""
        if self._link is None or self._beside is None or self._claims:
            return
        lanes = self._take(destinations)
        if lanes:
            self._beside.create_task(self._set_out(self._link, self._beside, lanes, self._claim(lanes)))

    def _claim(self, lanes: Sequence[D]) -> Awaitable[Claimed[D]]:
        self._claims += 1
        return self._outbox.claim(
            ClaimAsked(
                destinations=tuple(lanes),
                rows_max=ROWS_MAX,
                bytes_max=BYTES_MAX,
                accepted_since=self.too_old_before,
                rows_each_max=self.rows_each_max,
                only_tried_are_overdue=self.only_tried_are_overdue,
            )
        )

    async def _set_out(
        self, link: L, beside: asyncio.TaskGroup, lanes: Sequence[D], claim: Awaitable[Claimed[D]]
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
            for rows in self.carried_apart(claimed.rows):
                beside.create_task(self._carry(link, rows, claimed.more))
        if self._lanes.next_wake_ms() is not None:
            self._wake.set()

    # --- one batch ---------------------------------------------------------------------------------

    async def _carry(self, link: L, rows: Sequence[ClaimedRow[D]], more: Collection[D]) -> None:
        accepted_before = self._accepted
        outcomes = await self._outcomes(link, rows)
        points.reach(BEFORE_SETTLE)
        self._accepted += sum(self._has(outcome) for outcome in outcomes or ())
        settlements, waits = self._read(rows, outcomes, others_pass=self._accepted > accepted_before)
        settling = self._outbox.settle(settlements)
        lanes = tuple(dict.fromkeys(row.destination for row in rows))
        now = self._clock.monotonic_ms()
        for lane in lanes:
            has_more = lane in more or lane in waits
            self._lanes.release(lane, has_more=has_more, not_before_ms=now + waits.get(lane, 0))
        self._go_at_once(lanes)  # the claim comes after the settling, so it finds these rows settled
        self._wake.set()
        settled = await self._write_down(rows, settlements, settling)
        triples = zip(rows, outcomes or [None] * len(rows), settled, strict=True)
        self.tell([(row, outcome, settlement) for row, outcome, settlement in triples if settlement is not None])

    async def _outcomes(self, link: L, rows: Sequence[ClaimedRow[D]]) -> Sequence[O | None] | None:
        """Return what is answered to each; None if carrying them failed as nobody expected."""
        try:
            outcomes = await self.carry(link, rows)
        except MeshError:
            if self._link is link:
                self._link = None  # it is gone, whether or not its owner has noticed
            return [None] * len(rows)
        except Exception as error:  # noqa: BLE001  whatever it is, all others go on
            self._warn_of("carry_failed", rows, error)
            return None
        if len(outcomes) != len(rows):
            self.warn("send_result_malformed", f"{len(rows)} sent, {len(outcomes)} answered")
            return [None] * len(rows)
        return outcomes

    def _has(self, outcome: O | None) -> bool:
        try:
            return outcome is not None and self.is_taken(outcome)
        except Exception:  # noqa: BLE001  then it cannot be read either, and that is told
            return False

    def _read(
        self, rows: Sequence[ClaimedRow[D]], outcomes: Sequence[O | None] | None, *, others_pass: bool
    ) -> tuple[list[S], dict[D, int]]:
        """Return what becomes of each row, and how long which destinations have to wait: as their first says."""
        settlements: list[S] = []
        waits: dict[D, int] = {}
        for place, row in enumerate(rows):
            settlement, wait_ms = (
                self._undone(row)
                if outcomes is None
                else self._read_one(row, outcomes[place], others_pass=others_pass)
            )
            if wait_ms is not None:
                waits.setdefault(row.destination, wait_ms)
            settlements.append(settlement)
        return settlements, waits

    def _read_one(self, row: ClaimedRow[D], outcome: O | None, *, others_pass: bool) -> tuple[S, int | None]:
        try:
            return self.read(row, outcome, others_pass=others_pass)
        except IntegrityError:
            raise
        except Exception as error:  # noqa: BLE001  an answer may be anything, and only its own row pays for that
            self._warn_of("answer_not_read", [row], error)
            return self._undone(row)

    def _undone(self, row: ClaimedRow[D]) -> tuple[S, int]:
        """Return what becomes of a row of which nobody knows what came of it, although the link stands."""
        settlement, _ = self.read(row, None, others_pass=False)
        wait_ms = derive_backoff_ms(row.attempts + 1, self._roll())
        return msgspec.structs.replace(
            settlement, next_attempt_at=settlement.at + wait_ms, last_error=UNEXPECTED
        ), wait_ms

    async def _write_down(
        self, rows: Sequence[ClaimedRow[D]], settlements: Sequence[S], settling: Awaitable[list[bool]]
    ) -> list[S | None]:
        """Return what was written down of each row; None if it was moved meanwhile.

        A settlement that its store fails at, for a reason that is none of the store's own, is not tried again. Its
        row is put back instead; if not even that can be written, it is the store, and that is never hidden.
        """
        lanes = tuple(dict.fromkeys(row.destination for row in rows))
        try:
            held = await self._settled(settlements, settling, lanes)
        except MeshError:
            raise
        except Exception as error:  # noqa: BLE001  as above
            if len(rows) > 1:  # only the one at fault is put back
                apart = [
                    await self._write_down([row], [settlement], self._outbox.settle([settlement]))
                    for row, settlement in zip(rows, settlements, strict=True)
                ]
                self.queued(lanes)  # a claim that came in between found them out, and forgot their lanes
                return [one for each in apart for one in each]
            self._warn_of("answer_not_settled", rows, error)
            undone, wait_ms = self._undone(rows[0])
            settlements = [undone]
            held = await self._settled(settlements, self._outbox.settle(settlements), lanes)
            self._lanes.note(lanes[0], self._clock.monotonic_ms() + wait_ms)
            self._wake.set()
        return [settlement if is_held else None for settlement, is_held in zip(settlements, held, strict=True)]

    async def _settled(
        self, settlements: Sequence[S], settling: Awaitable[list[bool]], lanes: Collection[D]
    ) -> list[bool]:
        """Wait for it, and settle again for as long as the store has no room: until then these rows hold all up."""
        attempts = 0
        while True:
            try:
                return await settling
            except DependencyError as error:
                attempts += 1
                self.warn("settle_deferred", str(error))
                await asyncio.sleep(derive_backoff_ms(attempts, self._roll()) / 1000)
                settling = self._outbox.settle(settlements)
                self.queued(lanes)  # those behind them, which found them unsettled

    def _warn_of(self, code: str, rows: Sequence[ClaimedRow[D]], error: Exception) -> None:
        """Say which rows, what and where; never the error's own words, which may be the other side's."""
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        place = "" if at is None else f" in {at.tb_frame.f_code.co_qualname}, line {at.tb_lineno}"
        self.warn(code, f"row {', '.join(str(row.seq) for row in rows[:8])}: {type(error).__name__}{place}")
