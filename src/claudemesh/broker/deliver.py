"""The pump of one connection: from the store to the socket, in history order, never more than the window holds.

It is told after commits that concern its member, and then reads the store, from behind what it pushed last. A read
that finds nothing, and during which nothing was told, shows that it has caught up: since commits are told in their
order, what it is offered next is what comes next, and is pushed as it is. Whenever it cannot be sure, it reads. So
what it pushes is always committed, and in order. A consumer that does not acknowledge fills its window, and then
costs nothing more: the rest waits in the store.

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
        self._cursor = 0  # everything open up to here was pushed, or is in the window
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
        """Take what was committed just now, in the order of the commits."""
        if parcel.history_id <= self._cursor:
            return  # a look into the store was quicker
        if not self._has_caught_up or len(self._offered) >= OFFERED_MAX:
            self.wake()
            return
        self._offered.append(parcel)
        self._bell.set()

    def set_active(self, *, active: bool) -> None:
        """Begin to deliver, with all that is open; or stop."""
        if active and not self._is_active:
            self._cursor, self._window, self._window_bytes = 0, {}, 0
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
            except MeshError:  # the store is busy or full: what waits there waits on
                has_moved = False
            if not has_moved:
                await self._wait()

    # --- pushing -----------------------------------------------------------------------------------

    async def _push_page(self) -> bool:
        room, room_bytes = WINDOW_COUNT - len(self._window), WINDOW_BYTES - self._window_bytes
        if not self._is_active or self._is_paused or room <= 0 or room_bytes <= 0:
            return False
        page = await self._next_page(min(room, PAGE_COUNT), min(room_bytes, PAGE_BYTES))
        if not page or not self._is_active:
            return False
        self._cursor = page[-1].history_id
        fresh = [parcel for parcel in page if parcel.history_id not in self._window and self._wants(parcel)]
        now = self._clock.monotonic_ms()
        for parcel in fresh:  # before they are on the wire: the ack may be quicker than this task
            self._window[parcel.history_id] = Pushed(parcel, now)
            self._window_bytes += len(parcel.payload)
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
        page = await self._store.page(self._recipient, self._cursor, count_max, bytes_max)
        # Whoever told something meanwhile has rung the bell: then nobody knows whether this look saw it.
        self._has_caught_up = not page and not self._bell.is_set()
        return page

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
        self._cursor = min(self._cursor, min(overdue) - 1)
        self.wake()
        if dead:
            self._gave_up(dead)
        return True

    async def _wait(self) -> None:
        oldest = next(iter(self._window.values()), None)
        wait_ms: int | None = None
        if oldest is not None and self._is_active and not self._is_paused:
            due_in_ms = oldest.at_ms + ATTEMPT_AFTER_MS - self._clock.monotonic_ms()
            wait_ms = due_in_ms if due_in_ms > 0 else RECHECK_MS
        with suppress(TimeoutError):
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await self._bell.wait()


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
