"""Who is connected to this broker, and which connection of a key gets the deliveries: the one with the newest seat.

Who has to go for whom is the store's to decide, where the leases are.

Everything here happens on the event loop, so it needs no lock. What it knows is never evidence of anything:
receipts come from the store, and so does what a connection may push.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from claudemesh.broker.events import MemberConnected
from claudemesh.broker.model import Identity, Meeting, Mesh, Parcel, Seat
from claudemesh.kernel.errors import Revoked
from claudemesh.runtime.observe import Observer
from claudemesh.wire import frames

_CLOSE_CODES: Final = {
    Meeting.REPLACED: frames.CLOSE_SESSION_REPLACED,
    Meeting.SUPERSEDED: frames.CLOSE_REPLACED_BY_NEWER,
}

# Member, the session's key if it is a session's connection, and whether it only shows that the session is there.
_Key = tuple[int, str | None, bool]


class Live(Protocol):
    """A connection, as the others see it."""

    identity: Identity
    seat: Seat

    def close(self, code: int, reason: str) -> None:
        """Begin to close it; returns at once."""

    def wake(self) -> None:
        """There may be something to deliver."""

    def offer(self, parcel: Parcel) -> None:
        """Say that this was committed for it just now."""

    def set_active(self, active: bool) -> None:  # noqa: FBT001  a switch
        """Whether it is the one of its key that gets deliveries."""

    def rewind(self) -> None:
        """Look again at all that is open: what another connection was to get may be this one's now."""

    def tell(self, text: str) -> None:
        """Say that something happened in the mesh, in a frame that is the same for all; returns at once."""

    def hint(self, client_message_ids: Sequence[str]) -> None:
        """Something moved for these messages of the member's own."""


class Hub:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._live: dict[_Key, list[Live]] = {}
        self._keys: dict[int, set[_Key]] = {}  # of each member, the keys it is connected under
        self._meshes: dict[int, dict[int, Live]] = {}  # those who are told what happens in a mesh, by their seats
        self._by_token: dict[int, Live] = {}
        self._revoked: set[int] = set()  # since this process began

    def join(self, connection: Live) -> None:
        """Add a proven connection that has a seat."""
        identity = connection.identity
        key = _key(identity)
        if key[0] in self._revoked:
            raise Revoked
        self._live.setdefault(key, []).append(connection)
        self._keys.setdefault(key[0], set()).add(key)
        self._by_token[connection.seat.token] = connection
        if not identity.is_presence_only:
            self._meshes.setdefault(identity.mesh.id, {})[connection.seat.token] = connection
        self._activate_newest(key)
        self._observer.publish(
            MemberConnected(
                identity.mesh.uid, identity.member.uid, identity.instance_id, identity.session_pubkey is not None
            )
        )

    def leave(self, connection: Live) -> None:
        """Forget it; may be called twice. The next newest gets the deliveries."""
        if self._by_token.pop(connection.seat.token, None) is None:
            return
        connection.set_active(False)
        told = self._meshes.get(connection.identity.mesh.id, {})
        if told.pop(connection.seat.token, None) is not None and not told:
            del self._meshes[connection.identity.mesh.id]
        key = _key(connection.identity)
        self._live[key].remove(connection)
        if self._live[key]:
            self._activate_newest(key)
            return
        del self._live[key]
        self._keys[key[0]].discard(key)
        if not self._keys[key[0]]:
            del self._keys[key[0]]

    def expel(self, member_id: int) -> None:
        """End all connections of a member who was revoked."""
        self._revoked.add(member_id)  # a hello that is being judged may have read the store before
        for connection in self.of(member_id):
            self._put_out(connection, frames.CLOSE_UNAUTHENTICATED, frames.REASON_REVOKED)

    def has(self, token: int) -> bool:
        return token in self._by_token

    def unseat(self, token: int, meeting: Meeting) -> None:
        """End the connection with this seat, if it is here: a newer one came under its key."""
        code = _CLOSE_CODES.get(meeting)
        if code is not None:
            self.put_out([token], code, frames.CLOSE_WORDS[code])

    def put_out(self, tokens: Iterable[int], code: int, reason: str) -> None:
        """End the connections that have these seats."""
        for token in tokens:
            if connection := self._by_token.get(token):
                self._put_out(connection, code, reason)

    def tokens(self) -> set[int]:
        return {*self._by_token}

    def of(self, member_id: int) -> list[Live]:
        return [one for key in self._keys.get(member_id, ()) for one in self._live[key]]

    def takers(self, member_id: int, to_session: str | None) -> list[Live]:
        """Return the connections that get what is for a member, or names this session of it, without asking."""
        return self._live.get((member_id, to_session, False), [])

    def in_mesh(self, mesh_id: int) -> list[Live]:
        """Return the connections that are told what happens in a mesh."""
        return [*self._meshes.get(mesh_id, {}).values()]

    def meshes(self) -> list[Mesh]:
        """Return the meshes of those who are connected, as each was when one of them came."""
        return [next(iter(told.values())).identity.mesh for told in self._meshes.values()]

    def everybody(self) -> list[Live]:
        return [*self._by_token.values()]

    def count(self) -> int:
        return len(self._by_token)

    def _put_out(self, connection: Live, code: int, reason: str) -> None:
        self.leave(connection)  # at once: from here on it must not be given a delivery
        connection.close(code, reason)

    def _activate_newest(self, key: _Key) -> None:
        newest = max(self._live[key], key=lambda connection: connection.seat.token)
        for connection in self._live[key]:
            connection.set_active(connection is newest)


def _key(identity: Identity) -> _Key:
    return identity.member.id, identity.session_pubkey, identity.is_presence_only
