"""What waits for a seat, and what became of it."""

from collections.abc import Iterable, Sequence

from claudemesh.broker.model import Backlog, Delivery, DeliveryState, Moved, Page, Parcel, Seat, Sender
from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.policy import ATTEMPTS_MAX, UNREAD_MAX
from tests.contract.broker.oracle.seats import is_delivering, is_newest
from tests.contract.broker.oracle.world import Kept, Slip, World


class OracleDeliveryStore:
    def __init__(self, world: World) -> None:
        self._world = world

    def prime(self, mesh_id: int, parcels: Sequence[Parcel]) -> None: ...

    async def page(self, seat: Seat, after_history_id: int, count_max: int, bytes_max: int) -> Page:
        upto, size, parcels = after_history_id, 0, list[Parcel]()
        if is_newest(self._world, seat):
            waiting = [one for one, slip in self._world.to(seat.sender) if slip.is_open]
            for one in [one for one in waiting if one.history_id > after_history_id][:count_max]:
                if self._is_for(one, seat):
                    parcel = self._wrap(one)
                    size += len(parcel.payload)
                    if parcels and size > bytes_max:
                        break
                    parcels.append(parcel)
                upto = one.history_id
        return Page(parcels, upto)

    async def replay(
        self, recipient: Sender, after_history_id: int, count_max: int, bytes_max: int
    ) -> list[Parcel]:
        had = [one for one, slip in self._world.to(recipient) if slip.delivered_at is not None]
        parcels = [self._wrap(one) for one in had if one.history_id > after_history_id][:count_max]
        while len(parcels) > 1 and sum(len(parcel.payload) for parcel in parcels) > bytes_max:
            parcels.pop()
        return parcels

    async def ack(self, recipient: Sender, history_ids: Sequence[int], now_ms: int) -> None:
        for _, slip in self._named(recipient, history_ids):
            if slip.delivered_at is None:
                slip.delivered_at, slip.dead_at, slip.dead_reason = now_ms, None, None

    async def count_attempts(self, seat: Seat, history_ids: Sequence[int], now_ms: int) -> list[int]:
        dead = []
        if is_newest(self._world, seat):
            for one, slip in self._named(seat.sender, history_ids):
                if slip.is_open:
                    slip.attempts += 1
                    if slip.attempts >= ATTEMPTS_MAX:
                        slip.bury(now_ms, "attempts_exhausted")
                        dead.append(one.history_id)
        return dead

    async def mark_read(self, recipient: Sender, broker_message_ids: Sequence[str], now_ms: int) -> list[Moved]:
        moved = []
        for one, slip in self._world.to(recipient):
            if one.broker_message_id in broker_message_ids:
                slip.read_at = slip.read_at or now_ms
                moved.append(Moved(one.sender_id, one.message.client_message_id))
        if moved:
            self._world.read_at[recipient.member_id] = max(now_ms, self._world.read_at.get(recipient.member_id, 0))
        return moved

    async def depth(self) -> int:
        slips = [slip for one in self._world.kept.values() if one.job is None for slip in one.slips.values()]
        return sum(slip.is_open for slip in slips)

    async def backlogs(self, mesh_id: int) -> dict[int, Backlog]:
        members = [one for one in self._world.members.values() if one.mesh_id == mesh_id and one.revoked_at is None]
        found = {}
        for member in members:
            states = [slip.state for _, slip in self._world.to(Sender(mesh_id, member.id))]
            unread = min(UNREAD_MAX, states.count(DeliveryState.DELIVERED))
            read_at = self._world.read_at.get(member.id)
            found[member.id] = Backlog(states.count(DeliveryState.ACCEPTED), unread, read_at)
        return found

    def _named(self, recipient: Sender, history_ids: Sequence[int]) -> Iterable[tuple[Kept, Slip]]:
        return [(one, slip) for one, slip in self._world.to(recipient) if one.history_id in history_ids]

    def _is_for(self, one: Kept, seat: Seat) -> bool:
        if seat.session_pubkey is not None:
            return one.to_session == seat.session_pubkey
        return one.to_session is None or not is_delivering(self._world, seat.sender, one.to_session)

    def _wrap(self, one: Kept) -> Parcel:
        author, message = self._world.members[one.sender_id], one.message
        delivery = Delivery(
            history_id=one.history_id,
            broker_message_id=one.broker_message_id,
            client_message_id=message.client_message_id,
            sender_id=author.uid,
            sender_pubkey=author.pubkey,
            sender_name=author.name,
            kind=message.kind,
            ref=message.ref,
            body=message.body,
            accepted_at=one.accepted_at,
            reply_to=message.reply_to,
            priority=message.priority,
            meta=message.meta,
            encoding=message.encoding,
            to_session=one.to_session,
        )
        return Parcel(
            one.history_id, author.id, message.client_message_id, render_delivery(delivery), one.to_session
        )
