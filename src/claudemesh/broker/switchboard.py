"""Who is told what: those who are connected here at once, those of other brokers on this store by a bulletin.

A bulletin is only ever a hint, and may be lost: so connections look for themselves now and then.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from claudemesh.broker.events import BulletinPassed, MembershipEnded
from claudemesh.broker.hub import Hub, Live
from claudemesh.broker.model import (
    Announced,
    Budgeted,
    Bulletin,
    Dismissed,
    Expelled,
    Fresh,
    Hinted,
    Identity,
    Meeting,
    Member,
    Moved,
    Parcel,
    Rewound,
    Unseated,
    Woken,
)
from claudemesh.broker.parcels import render_fresh
from claudemesh.broker.ports import Bus
from claudemesh.runtime.observe import Observer
from claudemesh.wire import frames

LOOK_AGAIN_S: Final = 60.0
GOODBYE: Final = "goodbye"  # beside the code of an ordinary end
MISSED_S: Final = 0.5  # in which everybody looks again: not all at once, since they share a store

Prime = Callable[[int, Sequence[Parcel]], None]  # of a mesh: `DeliveryStore.prime`


class Switchboard:
    def __init__(self, hub: Hub, bus: Bus, observer: Observer, prime: Prime = lambda _mesh, _parcels: None) -> None:
        self._hub = hub
        self._bus = bus
        self._observer = observer
        self._hand_over = prime

    @property
    def is_alone(self) -> bool:
        return self._bus.is_alone

    # --- what happened here ------------------------------------------------------------------------

    def committed(self, fresh: Sequence[Fresh]) -> None:
        """Tell who has something to get, in the order of the commits, and hint to those who were answered."""
        answered = [one.accepted.answered for one in fresh if one.accepted.answered is not None]
        # The posts of one topic share one tuple: with many subscribers, going through each would be felt.
        distinct = {id(one.accepted.recipients): one.accepted.recipients for one in fresh}
        members = {id_ for recipients in distinct.values() for id_ in recipients}
        # Of more than one, each reads its own share at once. Beside other brokers nobody can say that nothing comes
        # before it: their commits are told late.
        if len(fresh) == 1 and self._bus.is_alone:
            self._offer(fresh[0], members)
        elif members:
            self._prime(fresh, {key for key, recipients in distinct.items() if any(map(self._hub.of, recipients))})
            self._tell(Woken([*members]))
        if answered:
            self.hint_all(answered)

    def hint(self, member_id: int, client_message_ids: Sequence[str]) -> None:
        self._tell(Hinted(member_id, [*client_message_ids]))

    def hint_all(self, moved: Iterable[Moved]) -> None:
        by_sender: dict[int, list[str]] = {}
        for one in moved:
            by_sender.setdefault(one.sender_id, []).append(one.client_message_id)
        for sender_id, ids in by_sender.items():
            self.hint(sender_id, ids)

    def announce(self, mesh_id: int, name: str, data: dict[str, Any]) -> None:
        """Tell everybody of a mesh who is connected."""
        self._tell(Announced(mesh_id, name, data))

    def tell_here(self, mesh_id: int, name: str, data: dict[str, Any]) -> None:
        """Tell those of a mesh who are connected to this broker."""
        self._apply(Announced(mesh_id, name, data))

    def dismiss(self, tokens: Sequence[int]) -> None:
        """End connections whose leases have ended: they said goodbye, or their member was put out."""
        if tokens:
            self._tell(Dismissed([*tokens]))

    def unseat(self, token: int, meeting: Meeting) -> None:
        """End the connection with this seat, whichever broker it is connected to."""
        if self._hub.has(token):
            self._hub.unseat(token, meeting)
        else:
            self.publish(Unseated(token, meeting))

    def revoke(self, member: Member, by: Identity) -> None:
        """End all connections of a member who was revoked, and tell the others of its mesh."""
        self._tell(Expelled(member.id))
        self._observer.publish(MembershipEnded(by.mesh.uid, member.uid, by.member.uid))
        self.announce(member.mesh_id, "member_left", {"name": member.name, "pubkey": member.pubkey})

    def rewind(self, members: Sequence[int]) -> None:
        """Have these members' connections look again: seats of theirs are gone, and not what those were to get."""
        self._tell(Rewound([*members]))

    def publish(self, bulletin: Bulletin) -> None:
        """Tell the other brokers only."""
        if not self._bus.is_alone:
            self._observer.publish(BulletinPassed("told"))
            self._bus.publish(bulletin)

    # --- what happened elsewhere -------------------------------------------------------------------

    def heard(self, bulletin: Bulletin) -> None:
        """Pass on what another broker tells, to those who are connected here."""
        self._observer.publish(BulletinPassed("heard"))
        self._apply(bulletin)

    def missed(self) -> None:
        """Something may have been told that was not heard: have everybody look."""
        self._look(MISSED_S)

    async def look_again(self) -> None:
        """Have everybody look every minute, evenly spread over it, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            self._look(LOOK_AGAIN_S)

    # --- and what is done about it -----------------------------------------------------------------

    def _tell(self, bulletin: Bulletin) -> None:
        self._apply(bulletin)
        self.publish(bulletin)

    def _apply(self, bulletin: Bulletin) -> None:  # noqa: C901  a line or two for each kind
        hub = self._hub
        match bulletin:
            case Woken(members):
                for connection in self._of(members):
                    connection.wake()
            case Rewound(members):
                for connection in self._of(members):
                    connection.rewind()
            case Hinted(member_id, client_message_ids):
                for connection in hub.of(member_id):
                    connection.hint(client_message_ids)
            case Announced(mesh_id, name, data):
                text = frames.render(frames.Event(name, data))
                for connection in hub.in_mesh(mesh_id):
                    connection.tell(text)
            case Expelled(member_id):
                hub.expel(member_id)
            case Dismissed(tokens):
                hub.put_out(tokens, frames.CLOSE_SESSION_REPLACED, GOODBYE)
            case Unseated(token, meeting):
                hub.unseat(token, meeting)
            case Budgeted():
                pass  # the accepts' business

    def _of(self, members: Iterable[int]) -> list[Live]:
        return [connection for member_id in members for connection in self._hub.of(member_id)]

    def _offer(self, fresh: Fresh, members: Iterable[int]) -> None:
        to_session = fresh.accepted.to_session
        takers = [one for id_ in members for one in self._hub.takers(id_, to_session)]
        if to_session is not None and not takers:  # whose it is now, the store knows: the session may come back
            self._apply(Woken([*members]))
        if takers:
            parcel = render_fresh(fresh)
            for connection in takers:
                connection.offer(parcel)

    def _prime(self, fresh: Sequence[Fresh], concerned: set[int]) -> None:
        """Hand the store what those who are connected here will ask it for."""
        wanted = [one for one in fresh if id(one.accepted.recipients) in concerned]
        if wanted:
            self._hand_over(wanted[0].author.mesh_id, [render_fresh(one) for one in wanted])

    def _look(self, within_s: float) -> None:
        loop, connections = asyncio.get_running_loop(), self._hub.everybody()
        for number, connection in enumerate(connections):
            loop.call_later(within_s * number / len(connections), connection.rewind)
