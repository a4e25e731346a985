"""The pump of one connection: from the store to the socket, in history order, never more than the window holds.

It is told after commits that concern its member, and then looks into the store, from its cursor on. A look that
finds nothing, and during which nothing was told, shows that it has caught up: what it is offered next is pushed as
it is. Whenever it cannot be sure, it looks.

Only a look moves the cursor. What was pushed as offered is in the window, and passed over by the next look. So in
whatever order offers come, or if they never come, nothing is skipped: the next look begins before it. Told in the
order of commits, as by one writer, it pushes in that order; what is told late is pushed late.

A consumer that does not acknowledge fills its window, and then costs nothing more: the rest waits in the store.
What is acknowledged keeps its place in the window until that is written down, and is not pushed again meanwhile.

A push without an ack counts as a failed attempt only if the socket showed life long after it; it is then pushed
again, and in the end given up. A connection that ends has counted nothing: the next begins with all that is open.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from claudemesh.broker.model import Moved, Parcel, Seat, Sender
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
        seat: Seat,
        *,
        clock: Clock,
        push: Callable[[str], Awaitable[None]],
        last_life_ms: Callable[[], int],
        gave_up: Callable[[Sequence[int]], None],
    ) -> None:
        self._store = store
        self._seat = seat
        self._clock = clock
        self._push = push
        self._last_life_ms = last_life_ms
        self._gave_up = gave_up
        self._bell = asyncio.Event()
        self._is_active = False
        self._is_paused = False
        self._cursor = 0  # everything open up to here was seen by a look, and pushed if it is this one's
        self._begun = 0  # how often the cursor was set back: a look that was under way then says too little
        self._window: dict[int, Pushed] = {}  # pushed, not acknowledged; oldest push first
        self._window_bytes = 0
        self._unwritten: set[int] = set()  # acknowledged, and not written down yet
        self._just_written: set[int] = set()  # since the last look began: it may still have seen them open
        self._is_looking = False
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
        if not self._has_caught_up or is_late or len(self._offered) >= OFFERED_MAX:
            self.wake()
            return
        self._offered.append(parcel)
        self._bell.set()

    def set_active(self, *, active: bool) -> None:
        """Begin to deliver, with all that is open; or stop."""
        if active and not self._is_active:
            self._window, self._window_bytes = {}, 0
            self._set_back(0)
        self._is_active = active
        self.wake()

    def rewind(self) -> None:
        """Look again at all that is open: something that another connection was to get may be this one's now."""
        self._set_back(0)
        self.wake()

    def set_paused(self, *, paused: bool) -> None:
        """Wait for an inbox that is full: nothing is pushed, and nothing counts as an attempt."""
        now = self._clock.monotonic_ms()
        self._window = {id_: Pushed(pushed.parcel, now) for id_, pushed in self._window.items()}
        self._is_paused = paused
        # What was seen or offered so far may be nobody's any more when it goes on: it looks again.
        self._set_back(self._cursor)
        self.wake()

    def acked(self, history_ids: Sequence[int]) -> dict[int, Moved]:
        """Return what of it was in the window, and whose it was. Whether it is true is for the store to say."""
        found = [self._drop(id_).parcel for id_ in history_ids if id_ in self._window]
        if found:
            self._unwritten.update(parcel.history_id for parcel in found)
            self._bell.set()
        return {parcel.history_id: Moved(parcel.sender_id, parcel.client_message_id) for parcel in found}

    def written(self, history_ids: Iterable[int]) -> None:
        """Make room: the acknowledgements of these are written down."""
        was_full = self._room() <= 0
        self._unwritten.difference_update(history_ids)
        if self._is_looking:
            self._just_written.update(history_ids)
        if was_full:
            self._bell.set()

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
        """Push what comes next and has room; False if nothing came."""
        room, room_bytes = self._room(), WINDOW_BYTES - self._window_bytes
        if not self._is_active or self._is_paused or room <= 0 or room_bytes <= 0:
            return False
        page = await self._next_page(min(room, PAGE_COUNT), min(room_bytes, PAGE_BYTES))
        if page is None or not self._is_active:
            return False
        fresh = [parcel for parcel in page if self._is_new(parcel)]
        now = self._clock.monotonic_ms()
        for parcel in fresh:  # before they are on the wire: the ack may be quicker than this task
            self._window[parcel.history_id] = Pushed(parcel, now)
            self._window_bytes += len(parcel.payload)
        if fresh:
            points.reach(BEFORE_PUSH)
            await self._push(render_deliver(parcel.payload for parcel in fresh))
        return True

    async def _next_page(self, count_max: int, bytes_max: int) -> list[Parcel] | None:
        """Return what was offered or a look shows, which may all be another's; None if there is nothing to see."""
        if self._has_caught_up:
            offered, self._offered = self._offered, []
            if len(offered) <= count_max and sum(len(parcel.payload) for parcel in offered) <= bytes_max:
                return offered or None
            self._has_caught_up = False
        after, begun = self._cursor, self._begun
        self._is_looking, self._just_written = True, set()
        try:
            page = await self._store.page(self._seat, after, count_max, bytes_max)
        finally:
            self._is_looking = False
        if self._begun != begun:
            return None  # it was told to begin anew, and has rung the bell
        # Whoever told something meanwhile has rung the bell: then nobody knows whether this look saw it.
        self._has_caught_up = page.upto == after and not self._bell.is_set()
        self._cursor = page.upto
        return page.parcels if page.upto > after else None

    def _is_new(self, parcel: Parcel) -> bool:
        id_ = parcel.history_id
        return not (id_ in self._window or id_ in self._unwritten or id_ in self._just_written)

    def _room(self) -> int:
        return WINDOW_COUNT - len(self._window) - len(self._unwritten)

    def _set_back(self, cursor: int) -> None:
        self._cursor = cursor
        self._begun += 1

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
        dead = await self._store.count_attempts(self._seat, overdue, self._clock.wall_ms())
        for id_ in overdue:
            if id_ in self._window:  # else its ack came meanwhile
                self._drop(id_)
        self._set_back(min(self._cursor, min(overdue) - 1))
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
    """Collects acknowledgements and writes them down in as few commits as they come in.

    Of a message it keeps its id and whose it was, not more: the store may be unable to write for a long time.
    """

    def __init__(
        self,
        store: DeliveryStore,
        recipient: Sender,
        clock: Clock,
        written: Callable[[Mapping[int, Moved]], None],
    ) -> None:
        self._store = store
        self._recipient = recipient
        self._clock = clock
        self._written = written
        self._ids: dict[int, Moved] = {}
        self._bell = asyncio.Event()

    def note(self, acked: Mapping[int, Moved]) -> None:
        """Take acknowledgements in, of what this connection pushed: no more than its window can wait here."""
        self._ids |= acked
        if acked:
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
        """Write down what there is, which is a window at most; what fails is still there."""
        while self._ids:
            taken = dict(self._ids)
            await self._store.ack(self._recipient, tuple(taken), self._clock.wall_ms())
            for id_ in taken:
                self._ids.pop(id_, None)
            self._written(taken)
