"""How this broker's connections come to their seats and give them up, and how it learns what became of others."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from claudemesh.broker.events import KeeperChanged, SeatsLost
from claudemesh.broker.hub import Hub
from claudemesh.broker.model import Identity, Seat, Unseated
from claudemesh.broker.ports import SeatStore
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.observe import Observer

CLOSE_RESTART: Final = 1012  # a daemon comes back by itself, at some random moment


class Seating:
    def __init__(self, store: SeatStore, hub: Hub, board: Switchboard, observer: Observer) -> None:
        self._store = store
        self._hub = hub
        self._board = board
        self._observer = observer
        self._leaving: set[Seat] = set()
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
        """Give it up: at once, or after a beat if the store does not answer now."""
        self._leaving.add(seat)
        with suppress(MeshError):
            await self._give_up(seat)

    async def beat(self) -> None:
        """Say that this broker lives, and act on what that shows."""
        beat = await self._store.beat()
        if beat.is_keeper != self.is_keeper:
            self.is_keeper = beat.is_keeper
            self._observer.publish(KeeperChanged(beat.is_keeper))
        if beat.is_forgotten:
            self._send_away(self._hub.tokens())
        if beat.bereft:
            self._board.rewind(beat.bereft)
        for seat in tuple(self._leaving):
            await self._give_up(seat)

    async def look_over(self) -> None:
        """Send connections away whose seats are gone, and nobody told them: they would wait for ever."""
        seated = self._hub.tokens()
        self._send_away(seated - await self._store.standing())

    def _send_away(self, tokens: set[int]) -> None:
        if tokens:
            self._observer.publish(SeatsLost(len(tokens)))
            self._hub.put_out(tokens, CLOSE_RESTART, "seat_lost")

    async def _give_up(self, seat: Seat) -> None:
        await self._store.leave(seat)
        self._leaving.discard(seat)
        self._board.rewind([seat.sender.member_id])  # only now does the store say that it is another's
