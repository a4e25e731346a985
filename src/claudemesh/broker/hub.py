"""Who is connected to this broker, and which connection gets a delivery.

Of each key the newest: the member's own gets what is for the member, a session's what names the session. When the
session is gone, that too is the member's.

Everything here happens on the event loop, so it needs no lock. What it knows is never evidence of anything:
receipts come from the store.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from claudemesh.broker.events import ConnectionsMet, MemberConnected, MembershipEnded
from claudemesh.broker.model import Fresh, Identity, Member, Moved, Parcel
from claudemesh.broker.parcels import render_fresh
from claudemesh.broker.policy import Meeting, judge_meeting
from claudemesh.runtime.observe import Observer
from claudemesh.wire import frames

_CLOSE_CODES: Final = {
    Meeting.REPLACED: frames.CLOSE_SESSION_REPLACED,
    Meeting.SUPERSEDED: frames.CLOSE_REPLACED_BY_NEWER,
}

_Key = tuple[int, str | None]  # member, and the session's key if it is a session's connection


class Live(Protocol):
    """A connection, as the others see it."""

    identity: Identity

    def close(self, code: int, reason: str) -> None:
        """Begin to close it; returns at once."""

    def wake(self) -> None:
        """There may be something to deliver."""

    def offer(self, parcel: Parcel) -> None:
        """Say that this was committed for it just now."""

    def set_active(self, active: bool) -> None:  # noqa: FBT001  a switch
        """Whether it is the one of its key that gets deliveries."""

    def rewind(self) -> None:
        """Look again at all that is open: what a session was to get is the member's now."""

    def tell(self, name: str, data: dict[str, Any]) -> None:
        """Say that something happened in the mesh; returns at once."""

    def hint(self, client_message_ids: Sequence[str]) -> None:
        """Something moved for these messages of the member's own."""


class AlreadyConnected(Exception):
    """The mesh prefers the oldest instance, and one stands."""


class MemberRevoked(Exception):
    """It was revoked while it proved who it is."""


class Hub:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._live: dict[_Key, list[Live]] = {}  # of each key, the oldest first
        self._keys: dict[int, set[_Key]] = {}  # of each member, the keys it is connected under
        self._revoked: set[int] = set()  # since this process began

    def join(self, connection: Live) -> None:
        """Add a proven connection, after judging it against those that stand under its key."""
        identity = connection.identity
        key = _key(identity)
        if key[0] in self._revoked:
            raise MemberRevoked
        for standing in tuple(self._live.get(key, ())):
            self._meet(standing, connection)
        self._live.setdefault(key, []).append(connection)
        self._keys.setdefault(key[0], set()).add(key)
        self._activate_newest(key)
        self._observer.publish(
            MemberConnected(
                identity.mesh.uid, identity.member.uid, identity.instance_id, identity.session_pubkey is not None
            )
        )

    def leave(self, connection: Live) -> None:
        """Forget it; may be called twice. The next newest gets the deliveries."""
        key = _key(connection.identity)
        standing = self._live.get(key, [])
        if connection in standing:
            standing.remove(connection)
            connection.set_active(False)
        if standing:
            self._activate_newest(key)
        elif self._live.pop(key, None) is not None:
            self._forget(key)

    def revoke(self, member: Member, by: Identity) -> None:
        """End all connections of a member who was revoked, and tell the others of its mesh."""
        self._revoked.add(member.id)  # a hello that is being judged may have read the store before
        for connection in self._of(member.id):
            self.leave(connection)
            connection.close(frames.CLOSE_UNAUTHENTICATED, frames.REASON_REVOKED)
        self._observer.publish(MembershipEnded(by.mesh.uid, member.uid, by.member.uid))
        self.announce(member.mesh_id, "member_left", {"name": member.name, "pubkey": member.pubkey})

    def committed(self, fresh: Sequence[Fresh]) -> None:
        """Tell who has something to get, in the order of the commits, and hint to those who were answered."""
        answered = [one.accepted.answered for one in fresh if one.accepted.answered is not None]
        # The posts of one topic share one tuple: with many subscribers, going through each would be felt.
        distinct = {id(one.accepted.recipients): one.accepted.recipients for one in fresh}
        members = {id_ for recipients in distinct.values() for id_ in recipients}
        connections = [connection for member_id in members for connection in self._of(member_id)]
        if len(fresh) == 1 and connections:  # of more, each reads its own share at once
            parcel = render_fresh(fresh[0])
            for connection in connections:
                connection.offer(parcel)
        else:
            for connection in connections:
                connection.wake()
        if answered:
            self.hint_all(answered)

    def hint(self, member_id: int, client_message_ids: Sequence[str]) -> None:
        for connection in self._of(member_id):
            connection.hint(client_message_ids)

    def is_live(self, member_id: int, session_pubkey: str) -> bool:
        """Say whether a session of the member is connected here."""
        return (member_id, session_pubkey) in self._live

    def announce(self, mesh_id: int, name: str, data: dict[str, Any]) -> None:
        """Tell everybody of a mesh who is connected here."""
        for connections in self._live.values():
            for connection in connections:
                if connection.identity.mesh.id == mesh_id:
                    connection.tell(name, data)

    def hint_all(self, moved: Iterable[Moved]) -> None:
        by_sender: dict[int, list[str]] = {}
        for one in moved:
            by_sender.setdefault(one.sender_id, []).append(one.client_message_id)
        for sender_id, ids in by_sender.items():
            self.hint(sender_id, ids)

    def connected(self, mesh_id: int) -> set[int]:
        """Return the members of a mesh who have a connection here."""
        return {
            connection.identity.member.id
            for connections in self._live.values()
            for connection in connections
            if connection.identity.mesh.id == mesh_id
        }

    def count(self) -> int:
        return sum(len(connections) for connections in self._live.values())

    def _meet(self, standing: Live, newcomer: Live) -> None:
        old, new = standing.identity, newcomer.identity
        meeting = judge_meeting(new.mesh.policy, old.instance_id, new.instance_id)
        self._observer.publish(
            ConnectionsMet(new.mesh.uid, new.member.uid, old.instance_id, new.instance_id, meeting.value)
        )
        if meeting is Meeting.REFUSED:
            raise AlreadyConnected
        if meeting is not Meeting.SHARED:
            self.leave(standing)  # at once: from here on it must not be given a delivery
            code = _CLOSE_CODES[meeting]
            standing.close(code, frames.CLOSE_WORDS[code])

    def _activate_newest(self, key: _Key) -> None:
        *older, newest = self._live[key]
        for connection in older:
            connection.set_active(False)
        newest.set_active(True)

    def _of(self, member_id: int) -> list[Live]:
        return [one for key in self._keys.get(member_id, ()) for one in self._live[key]]

    def _forget(self, key: _Key) -> None:
        """Nobody is connected under the key any more; what names a session goes to its member."""
        member_id, session = key
        keys = self._keys[member_id]
        keys.discard(key)
        if not keys:
            del self._keys[member_id]
        if session is not None:
            for connection in self._live.get((member_id, None), ()):
                connection.rewind()


def _key(identity: Identity) -> _Key:
    return identity.member.id, identity.session_pubkey
