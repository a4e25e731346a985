"""Who gets what waits for a key. In memory: the file has one broker at a time, and the seats end with it."""

from collections.abc import Collection
from itertools import count

from claudemesh.broker.model import Beat, Bulletin, Identity, Seat, Seated
from claudemesh.broker.stores.sqlite.directory import judge_in_force
from claudemesh.broker.stores.sqlite.leaseclock import LeaseClock
from claudemesh.storage.sqlite import Database

_Key = tuple[int, str | None]  # member, and the session's key if it is a session's


class SqliteSeatStore:
    def __init__(self, database: Database, leases: LeaseClock) -> None:
        self._database = database
        self._leases = leases
        self._tokens = count(1)
        self._seats: dict[_Key, dict[int, Seat]] = {}  # of each key by token, the oldest first

    async def take(self, identity: Identity) -> Seated:
        refusal = await self._database.read(lambda connection: judge_in_force(connection, identity.sender))
        if refusal is not None:
            raise refusal
        # Without a pause from here to the caller: the hub learns of connections in the order of their tokens.
        seat = Seat(identity.sender, identity.session_pubkey, next(self._tokens))
        self._seats.setdefault(_key(seat), {})[seat.token] = seat
        return Seated(seat)

    async def leave(self, tokens: Collection[int]) -> list[int]:
        seats = [seat for standing in self._seats.values() for seat in standing.values() if seat.token in tokens]
        for seat in seats:
            standing = self._seats[_key(seat)]
            del standing[seat.token]
            if not standing:
                del self._seats[_key(seat)]
        return [seat.sender.member_id for seat in seats]

    def unseat(self, member_id: int) -> None:
        """Take all seats of a member away."""
        for key in [key for key in self._seats if key[0] == member_id]:
            del self._seats[key]

    async def standing(self) -> set[int]:
        return {token for standing in self._seats.values() for token in standing}

    async def present(self, mesh_id: int) -> set[int]:
        seats = (seat for standing in self._seats.values() for seat in standing.values())
        return {seat.sender.member_id for seat in seats if seat.sender.mesh_id == mesh_id}

    async def beat(self) -> Beat:
        await self._leases.keep()
        return Beat(is_keeper=True)

    def is_held(self, seat: Seat) -> bool:
        """Say whether it is the newest of its key."""
        return next(reversed(self._seats.get(_key(seat), {})), None) == seat.token

    def gets(self, seat: Seat, to_session: str | None) -> bool:
        """Say whether what names this session, or none, is for this seat."""
        if seat.session_pubkey is not None:
            return to_session == seat.session_pubkey
        return to_session is None or (seat.sender.member_id, to_session) not in self._seats


class AloneBus:
    """Nobody is there to be told, and nobody tells."""

    is_alone = True

    def publish(self, bulletin: Bulletin) -> None: ...

    def listen(self, *_listeners: object) -> None: ...


def _key(seat: Seat) -> _Key:
    return seat.sender.member_id, seat.session_pubkey
