"""The seats of the one broker of a file, in memory: they end with it. Leases are in the file (`presence`)."""

from collections.abc import Iterable
from itertools import count

from claudemesh.broker.model import Seat

_Key = tuple[int, str | None]  # member, and the session's key if it is a session's


class Chairs:
    def __init__(self, delivering: Iterable[tuple[int, str, str]]) -> None:
        """Begin with the sessions whose leases stand: member, key, lease."""
        self._numbers = count(1)
        self._seats: dict[_Key, dict[int, Seat]] = {}  # of each key by token
        self._by_token: dict[int, Seat] = {}
        self._delivering: dict[_Key, set[str]] = {}  # sessions that get what names them, also while they are away
        for member_id, session_pubkey, uid in delivering:
            self._delivering.setdefault((member_id, session_pubkey), set()).add(uid)

    def next_token(self) -> int:
        return next(self._numbers)

    def give(self, seat: Seat, uid: str, *, presence_only: bool) -> None:
        """Note a seat, and the lease that it carries."""
        self._by_token[seat.token] = seat
        if presence_only:  # it gets nothing, also if it did before
            self.end(seat.sender.member_id, seat.session_pubkey or "", uid)
            return
        self._seats.setdefault(_key(seat), {})[seat.token] = seat
        if seat.session_pubkey is not None:
            self._delivering.setdefault(_key(seat), set()).add(uid)

    def take_away(self, tokens: Iterable[int]) -> list[Seat]:
        """Take these seats away, if they stand; return those that did."""
        found = [seat for token in tokens if (seat := self._by_token.pop(token, None)) is not None]
        for seat in found:
            standing = self._seats.get(_key(seat), {})
            standing.pop(seat.token, None)
            if not standing:
                self._seats.pop(_key(seat), None)
        return found

    def end(self, member_id: int, session_pubkey: str, uid: str) -> None:
        """Note that a lease ended: what names its session is the member's now."""
        leases = self._delivering.get((member_id, session_pubkey), set())
        leases.discard(uid)
        if not leases:
            self._delivering.pop((member_id, session_pubkey), None)

    def unseat(self, member_id: int) -> None:
        """Take all seats of a member away."""
        self.take_away([token for token, seat in self._by_token.items() if seat.sender.member_id == member_id])

    def tokens(self) -> set[int]:
        return {*self._by_token}

    def is_held(self, seat: Seat) -> bool:
        """Say whether it is the newest of its key."""
        return max(self._seats.get(_key(seat), {}), default=None) == seat.token

    def gets(self, seat: Seat, to_session: str | None) -> bool:
        """Say whether what names this session, or none, is for this seat."""
        if seat.session_pubkey is not None:
            return to_session == seat.session_pubkey
        return to_session is None or (seat.sender.member_id, to_session) not in self._delivering


def _key(seat: Seat) -> _Key:
    return seat.sender.member_id, seat.session_pubkey
