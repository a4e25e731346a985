"""How this broker's connections come to their seats and give them up, and how it learns what became of others."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from claudemesh.broker.events import ConnectionsMet, KeeperChanged, SeatsLost
from claudemesh.broker.hub import Hub
from claudemesh.broker.model import Meeting
from claudemesh.broker.policy import BROKER_LEASE_MS
from claudemesh.broker.ports import AlreadyConnected, SeatStore
from claudemesh.broker.presence.herald import Herald
from claudemesh.broker.presence.model import Arrival, Departure, Met, Seated, Settled
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.observe import Observer

CLOSE_RESTART: Final = 1012  # a daemon comes back by itself, at some random moment
UNKNOWN_MS: Final = 30_000  # for which a seat may be nobody's here: somebody is just sitting down


class Seating:
    def __init__(  # noqa: PLR0913, PLR0917  its parts
        self, store: SeatStore, hub: Hub, board: Switchboard, herald: Herald, clock: Clock, observer: Observer
    ) -> None:
        self._store = store
        self._hub = hub
        self._board = board
        self._herald = herald
        self._clock = clock
        self._observer = observer
        self._leaving: dict[int, tuple[Departure, int]] = {}  # by seat, and since when
        self._unknown: dict[int, int] = {}  # seats that are nobody's here, and since when
        self._beaten_at = clock.monotonic_ms()
        self.is_keeper = False  # of all brokers on this store, the one that sweeps and checks

    async def admit(self, arrival: Arrival, join: Callable[[Seated], None]) -> None:
        """Take a seat and join with it; raises what either does. Whoever is refused has none."""
        try:
            seated = await self._store.take(arrival)
        except AlreadyConnected as refused:
            self._tell_meeting(arrival, Met(refused.instance_id, Meeting.REFUSED))
            raise
        for met in seated.met:
            self._tell_meeting(arrival, met)
        for gone in seated.displaced:
            self._board.unseat(gone.token, gone.meeting)
        try:
            join(seated)
        except BaseException:
            await self.leave(Departure(seated.seat.token))
            raise
        finally:
            self._herald.tell(Settled(seated.events, seated.bereft))

    async def leave(self, departure: Departure) -> None:
        """Give a seat up: at once, or later if the store does not answer now."""
        self._leaving[departure.seat] = (departure, self._clock.monotonic_ms())
        with suppress(MeshError):
            await self._give_up([departure])

    async def catch_up(self) -> None:
        """Give up what could not be given up when its connection ended."""
        now = self._clock.monotonic_ms()
        late = [replace(one, silent_ms=one.silent_ms + now - since) for one, since in self._leaving.values()]
        if late:
            await self._give_up(late)

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
        nobodys = standing - seated - self._hub.tokens() - self._leaving.keys()
        self._unknown = {token: self._unknown.get(token, now) for token in nobodys}
        overdue = {token for token, since in self._unknown.items() if now - since >= UNKNOWN_MS}
        if overdue:
            await self._give_up([Departure(token) for token in sorted(overdue)])

    def _send_away(self, tokens: set[int]) -> None:
        if tokens:
            self._observer.publish(SeatsLost(len(tokens)))
            self._hub.put_out(tokens, CLOSE_RESTART, "seat_lost")

    def _tell_meeting(self, arrival: Arrival, met: Met) -> None:
        mesh, member, new = arrival.identity.mesh, arrival.identity.member, arrival.identity.instance_id
        self._observer.publish(ConnectionsMet(mesh.uid, member.uid, met.instance_id, new, met.meeting.value))

    async def _give_up(self, departures: Sequence[Departure]) -> None:
        members = await self._store.leave(departures)
        for departure in departures:
            self._leaving.pop(departure.seat, None)
        if members:
            self._board.rewind(members)  # only now does the store say that it is another's
