"""The pump of one connection: from the store to the socket, in history order, never more than the window holds.

It is told after commits that concern its member, and then looks into the store, from its cursor on. A look that
finds nothing, and during which nothing was told, shows that it has caught up: what it is offered next is pushed as
it is. Whenever it cannot be sure, it looks.

Only a look moves the cursor. What was pushed as offered is remembered beside it, and passed over by the next look.
So in whatever order offers come, or if they never come, nothing is skipped: the next look begins before it. Told in
the order of commits, as by one writer, it pushes in that order; what is told late is pushed late. A consumer that
does not acknowledge fills its window, and then costs nothing more: the rest waits in the store.

A push without an ack counts as a failed attempt only if the socket showed life long after it; it is then pushed
again, and in the end given up. A connection that ends has counted nothing: the next begins with all that is open.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from claudemesh.broker.model import Parcel, Sender
from claudemesh.broker.policy import ATTEMPT_AFTER_MS, is_attempt
from claudemesh.broker.ports import DeliveryStore
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime import points
from claudemesh.wire.frames import render_deliver

BEFORE_PUSH: Final = points.declare("broker.before_push")

WINDOW_COUNT: Final = 1_024
WINDOW_BYTES: Final = 4 * 1024 * 1024
PAGE_COUNT: Final = 256
PAGE_BYTES: Final = 1024 * 1024

ACKS_TOGETHER: Final = 4_096  # in one transaction: the writer belongs to the senders

OFFERED_MAX: Final = 16  # that wait to be pushed as they are; more are read from the store
AHEAD_MAX: Final = 1_024  # that were pushed as they were offered, until the store is looked into again

RECHECK_MS: Final = 5_000  # how soon to look again after a store that failed, or a socket that showed no life


@dataclass(frozen=True, slots=True)
class Pushed:
    parcel: Parcel
    at_ms: int  # monotonic


class Pump:
    def __init__(  # noqa: PLR0913  its parts, by name
        self,
        store: DeliveryStore,
        recipient: Sender,
        *,
        clock: Clock,
        push: Callable[[str], Awaitable[None]],
        last_life_ms: Callable[[], int],
        wants: Callable[[Parcel], bool],
        gave_up: Callable[[Sequence[int]], None],
    ) -> None:
        self._store = store
        self._recipient = recipient
        self._clock = clock
        self._push = push
        self._last_life_ms = last_life_ms
        self._wants = wants
        self._gave_up = gave_up
        self._bell = asyncio.Event()
        self._is_active = False
        self._is_paused = False
        self._cursor = 0  # everything open up to here was seen by a look, and pushed if it is this one's
        self._ahead: set[int] = set()  # pushed as offered, beyond the cursor
        self._window: dict[int, Pushed] = {}  # pushed, not acknowledged; oldest push first
        self._window_bytes = 0
        self._has_caught_up = False  # all that is open and was told is pushed or offered
        self._offered: list[Parcel] = []

    def wake(self) -> None:
        """Look into the store: there may be more."""
        self._has_caught_up = False
        self._offered.clear()
        self._bell.set()

    def offer(self, parcel: Parcel) -> None:
        """Take what was committed just now; push it without a look if nothing is known to come before it."""
        if parcel.history_id <= self._cursor:
            return  # a look into the store was quicker
        is_late = bool(self._offered) and parcel.history_id < self._offered[-1].history_id
        is_full = len(self._offered) >= OFFERED_MAX or len(self._ahead) >= AHEAD_MAX
        if not self._has_caught_up or is_late or is_full:
            self.wake()
            return
        self._offered.append(parcel)
        self._bell.set()

    def set_active(self, *, active: bool) -> None:
        """Begin to deliver, with all that is open; or stop."""
        if active and not self._is_active:
            self._cursor, self._ahead, self._window, self._window_bytes = 0, set(), {}, 0
        self._is_active = active
        self.wake()

    def rewind(self) -> None:
        """Look again at all that is open: something that another connection was to get may be this one's now."""
        self._cursor = 0
        self.wake()

    def set_paused(self, *, paused: bool) -> None:
        """Wait for an inbox that is full: nothing is pushed, and nothing counts as an attempt."""
        now = self._clock.monotonic_ms()
        self._window = {id_: Pushed(pushed.parcel, now) for id_, pushed in self._window.items()}
        self._is_paused = paused
        self._bell.set()

    def acked(self, history_ids: Sequence[int]) -> list[Parcel]:
        """Make room; return what was in the window. Whether it is true is for the store to say."""
        found = [self._drop(id_).parcel for id_ in history_ids if id_ in self._window]
        if found:
            self._bell.set()
        return found

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._bell.clear()
            try:
                has_moved = await self._count_attempts() or await self._push_page()
                wait_ms = self._due_in_ms()
            except MeshError:  # the store is busy or full: what waits there waits on
                has_moved, wait_ms = False, RECHECK_MS
            if not has_moved:
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                        await self._bell.wait()

    # --- pushing -----------------------------------------------------------------------------------

    async def _push_page(self) -> bool:
        room, room_bytes = WINDOW_COUNT - len(self._window), WINDOW_BYTES - self._window_bytes
        if not self._is_active or self._is_paused or room <= 0 or room_bytes <= 0:
            return False
        page = await self._next_page(min(room, PAGE_COUNT), min(room_bytes, PAGE_BYTES))
        if not page or not self._is_active:
            return False
        fresh = [parcel for parcel in page if self._is_new(parcel) and self._wants(parcel)]
        now = self._clock.monotonic_ms()
        for parcel in fresh:  # before they are on the wire: the ack may be quicker than this task
            self._window[parcel.history_id] = Pushed(parcel, now)
            self._window_bytes += len(parcel.payload)
            if parcel.history_id > self._cursor:
                self._ahead.add(parcel.history_id)
        if fresh:
            points.reach(BEFORE_PUSH)
            await self._push(render_deliver(parcel.payload for parcel in fresh))
        return True

    async def _next_page(self, count_max: int, bytes_max: int) -> list[Parcel]:
        if self._has_caught_up:
            offered, self._offered = self._offered, []
            if len(offered) <= count_max and sum(len(parcel.payload) for parcel in offered) <= bytes_max:
                return offered
            self._has_caught_up = False
        after = self._cursor
        page = await self._store.page(self._recipient, after, count_max, bytes_max)
        if self._cursor != after:
            return []  # it was told to begin anew, and has rung the bell
        # Whoever told something meanwhile has rung the bell: then nobody knows whether this look saw it.
        self._has_caught_up = not page and not self._bell.is_set()
        if page:
            self._cursor = page[-1].history_id
        else:
            self._ahead.clear()  # all of it is acknowledged, or behind the cursor: no look will show it again
        return page

    def _is_new(self, parcel: Parcel) -> bool:
        return parcel.history_id not in self._window and parcel.history_id not in self._ahead

    def _drop(self, history_id: int) -> Pushed:
        pushed = self._window.pop(history_id)
        self._window_bytes -= len(pushed.parcel.payload)
        return pushed

    # --- attempts ----------------------------------------------------------------------------------

    async def _count_attempts(self) -> bool:
        """Count what was not acknowledged although the socket lived, and push it again. True if there was any."""
        if not self._is_active or self._is_paused:
            return False
        life = self._last_life_ms()
        overdue = [id_ for id_, pushed in self._window.items() if is_attempt(pushed.at_ms, life)]
        if not overdue:
            return False
        dead = await self._store.count_attempts(self._recipient, overdue, self._clock.wall_ms())
        for id_ in overdue:
            if id_ in self._window:  # else its ack came meanwhile
                self._drop(id_)
        self._ahead.difference_update(overdue)
        self._cursor = min(self._cursor, min(overdue) - 1)
        self.wake()
        if dead:
            self._gave_up(dead)
        return True

    def _due_in_ms(self) -> int | None:
        """Return when the next attempt may have to be counted; None if none is under way."""
        oldest = next(iter(self._window.values()), None)
        if oldest is None or not self._is_active or self._is_paused:
            return None
        due_in_ms = oldest.at_ms + ATTEMPT_AFTER_MS - self._clock.monotonic_ms()
        return due_in_ms if due_in_ms > 0 else RECHECK_MS


class AckBook:
    """Collects acknowledgements and writes them down in as few commits as they come in."""

    def __init__(
        self, store: DeliveryStore, recipient: Sender, clock: Clock, written: Callable[[list[Parcel]], None]
    ) -> None:
        self._store = store
        self._recipient = recipient
        self._clock = clock
        self._written = written
        self._ids: dict[int, Parcel] = {}
        self._bell = asyncio.Event()

    def note(self, parcels: Sequence[Parcel]) -> None:
        """Take acknowledgements in, of what this connection pushed: no more than its window can wait here."""
        self._ids |= {parcel.history_id: parcel for parcel in parcels}
        if parcels:
            self._bell.set()

    async def run(self) -> None:
        while True:
            await self._bell.wait()
            self._bell.clear()
            try:
                await self.flush()
            except MeshError:
                await asyncio.sleep(RECHECK_MS / 1000)
                self._bell.set()

    async def flush(self) -> None:
        """Write down what there is, some at a time; what fails is still there."""
        while self._ids:
            taken = dict(islice(self._ids.items(), ACKS_TOGETHER))
            await self._store.ack(self._recipient, tuple(taken), self._clock.wall_ms())
            for id_ in taken:
                self._ids.pop(id_, None)
            self._written(list(taken.values()))
