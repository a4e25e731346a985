"""Who gets what waits for a key, and the lease that shows it is there."""

from collections.abc import Callable, Collection

from claudemesh.broker.model import Beat, Bulletin, Seat
from claudemesh.broker.presence.model import Arrival, Departure, Seated
from claudemesh.broker.presence.policy import is_left_to_member
from claudemesh.broker.stores.sqlite import presence
from claudemesh.broker.stores.sqlite.chairs import Chairs
from claudemesh.broker.stores.sqlite.leaseclock import LeaseClock
from claudemesh.broker.stores.sqlite.presence import Took
from claudemesh.storage.sqlite import Database


class SqliteSeatStore:
    def __init__(
        self, database: Database, leases: LeaseClock, chairs: Chairs, mint: Callable[[], str], lease_ttl_ms: int
    ) -> None:
        self._database = database
        self._leases = leases
        self._chairs = chairs
        self._mint = mint
        self._ttl_ms = lease_ttl_ms

    async def start(self) -> None:
        await self._database.write(presence.orphan, presence.Orphan(self._leases.stamp(), self._ttl_ms))

    async def take(self, arrival: Arrival) -> Seated:
        identity = arrival.identity
        seat = Seat(identity.sender, identity.session_pubkey, self._chairs.next_token())
        asked = presence.Take(arrival, seat.token, self._mint(), self._leases.stamp(), self._ttl_ms)
        took: presence.Taken = await self._database.write(presence.take, asked)
        if not isinstance(took, Took):
            raise took
        # Without a pause from here to the caller: the hub learns of connections in the order of their tokens.
        attach = took.attach
        self._chairs.take_away(one.token for one in attach.displaced)
        bereft = {*presence.forget(self._chairs, took.changed)}
        if is_left_to_member(attach, arrival):
            bereft.add(identity.member.id)
        self._chairs.give(seat, took.uid, presence_only=identity.is_presence_only)
        return Seated(
            seat=seat,
            presence_uid=took.uid,
            lease_token=attach.lease.token,
            is_resumed=attach.resumed,
            displaced=attach.displaced,
            met=attach.met,
            events=took.changed.events,
            bereft=sorted(bereft),
        )

    async def leave(self, departures: Collection[Departure]) -> list[int]:
        leaving = presence.Leave(tuple(departures), self._leases.stamp(), self._ttl_ms)
        await self._database.write(presence.leave, leaving)
        seats = self._chairs.take_away(departure.seat for departure in departures)
        return [seat.sender.member_id for seat in seats]

    async def standing(self) -> set[int]:
        return self._chairs.tokens()

    async def beat(self) -> Beat:
        await self._leases.keep()
        return Beat(is_keeper=True)


class AloneBus:
    """Nobody is there to be told, and nobody tells."""

    is_alone = True

    def publish(self, bulletin: Bulletin) -> None: ...

    def listen(self, *_listeners: object) -> None: ...
