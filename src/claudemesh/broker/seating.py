"""How this broker's connections come to their seats and give them up, and how it learns what became of others."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from claudemesh.broker.events import KeeperChanged, SeatsLost
from claudemesh.broker.hub import Hub
from claudemesh.broker.model import Identity, Seat, Unseated
from claudemesh.broker.policy import BROKER_LEASE_MS
from claudemesh.broker.ports import SeatStore
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.observe import Observer

CLOSE_RESTART: Final = 1012  # a daemon comes back by itself, at some random moment
UNKNOWN_MS: Final = 30_000  # for which a seat may be nobody's here: somebody is just sitting down


class Seating:
    def __init__(self, store: SeatStore, hub: Hub, board: Switchboard, clock: Clock, observer: Observer) -> None:
        self._store = store
        self._hub = hub
        self._board = board
        self._clock = clock
        self._observer = observer
        self._leaving: set[int] = set()
        self._unknown: dict[int, int] = {}  # seats that are nobody's here, and since when
        self._beaten_at = clock.monotonic_ms()
        self.is_keeper = False  # of all brokers on this store, the one that sweeps and checks

    async def admit(self, identity: Identity, join: Callable[[Seat], None]) -> None:
        """Take a seat and join with it; raises what either does. Whoever is refused has none."""
        seated = await self._store.take(identity)
        for gone in seated.displaced:
            self._board.publish(Unseated(gone.token, gone.meeting))
        try:
            join(seated.seat)
        except BaseException:
            await self.leave(seated.seat)
            raise

    async def leave(self, seat: Seat) -> None:
        """Give it up: at once, or later if the store does not answer now."""
        self._leaving.add(seat.token)
        with suppress(MeshError):
            await self._give_up({seat.token})

    async def catch_up(self) -> None:
        """Give up what could not be given up when its connection ended."""
        if self._leaving:
            await self._give_up({*self._leaving})

    async def beat(self) -> None:
        """Say that this broker lives, and act on what that shows."""
        began_ms = self._clock.monotonic_ms()
        try:
            beat = await self._store.beat()
        except MeshError:
            if not self._board.is_alone and self._clock.monotonic_ms() - self._beaten_at > BROKER_LEASE_MS:
                self._send_away(self._hub.tokens())  # others have their seats by now, or will
            raise
        self._beaten_at = began_ms
        if beat.is_keeper != self.is_keeper:
            self.is_keeper = beat.is_keeper
            self._observer.publish(KeeperChanged(beat.is_keeper))
        if beat.is_forgotten:
            self._send_away(self._hub.tokens())
        if beat.bereft:
            self._board.rewind(beat.bereft)

    async def look_over(self) -> None:
        """Compare the connections here with the seats in the store: either may have gone without the other.

        A connection without its seat would wait for ever; a seat without its connection (its commit was not
        answered) would keep what it is to get from everybody else.
        """
        seated = self._hub.tokens()
        standing = await self._store.standing()
        self._send_away(seated - standing)
        now = self._clock.monotonic_ms()
        nobodys = standing - seated - self._hub.tokens() - self._leaving
        self._unknown = {token: self._unknown.get(token, now) for token in nobodys}
        overdue = {token for token, since in self._unknown.items() if now - since >= UNKNOWN_MS}
        if overdue:
            await self._give_up(overdue)

    def _send_away(self, tokens: set[int]) -> None:
        if tokens:
            self._observer.publish(SeatsLost(len(tokens)))
            self._hub.put_out(tokens, CLOSE_RESTART, "seat_lost")

    async def _give_up(self, tokens: set[int]) -> None:
        members = await self._store.leave(tokens)
        self._leaving -= tokens
        if members:
            self._board.rewind(members)  # only now does the store say that it is another's
