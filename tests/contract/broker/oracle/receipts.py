"""How far a message came."""

from collections.abc import Sequence

from claudemesh.broker.model import (
    NO_RECIPIENT,
    DedupeState,
    DeliveryState,
    MessageReceipt,
    Progress,
    RecipientReceipt,
    Sender,
    StandingMessage,
)
from claudemesh.broker.policy import derive_counts, derive_message_state, derive_since
from claudemesh.kernel.fingerprint import Kind
from tests.contract.broker.oracle.world import Kept, Slip, World


class OracleReceiptStore:
    def __init__(self, world: World) -> None:
        self._world = world

    async def receipts(
        self, sender: Sender, client_message_ids: Sequence[str], broker_message_ids: Sequence[str]
    ) -> list[MessageReceipt]:
        return [
            self._receipt(sender.mesh_id, id_, used.standing)
            for (sender_id, id_), used in self._world.used.items()
            if sender_id == sender.member_id and used.standing.state is DedupeState.ACCEPTED
            if id_ in client_message_ids
            or (used.standing.history_available and used.standing.broker_message_id in broker_message_ids)
        ]

    async def progress(self, sender: Sender, client_message_ids: Sequence[str]) -> list[Progress]:
        return [
            Progress(
                client_message_id=full.client_message_id,
                broker_message_id=full.broker_message_id,
                state=full.state,
                at=full.at,
                counts={DeliveryState(state): count for state, count in full.counts.items()},
            )
            for full in await self.receipts(sender, client_message_ids, [])
            if full.recipients
        ]

    async def trace(self, member: Sender, broker_message_id: str) -> MessageReceipt | None:
        one = self._world.find(broker_message_id)
        if one is None or one.mesh_id != member.mesh_id:
            return None
        took_part = member.member_id == one.sender_id or member.member_id in one.slips
        if not took_part and one.message.kind is not Kind.QUEUE:  # a queue's may become anybody's
            return None
        used = self._world.used[one.sender_id, one.message.client_message_id]
        return self._receipt(one.mesh_id, one.message.client_message_id, used.standing)

    def _receipt(self, mesh_id: int, client_message_id: str, standing: StandingMessage) -> MessageReceipt:
        assert standing.broker_message_id is not None
        assert standing.history_id is not None
        one = self._world.kept.get((mesh_id, standing.history_id))
        slips = sorted(one.slips.items()) if one is not None else []
        recipients = [self._recipient(one, recipient, slip) for recipient, slip in slips if one is not None]
        state, accepted_at = derive_message_state(recipients), standing.first_seen_at
        since = [_since(slip, accepted_at) for _, slip in slips if slip.state is state]
        return MessageReceipt(
            client_message_id=client_message_id,
            broker_message_id=standing.broker_message_id,
            history_id=standing.history_id,
            kind=None if one is None else one.message.kind,
            ref=None if one is None else one.message.ref,
            accepted_at=accepted_at,
            history_available=standing.history_available,
            state=state,
            at=max(since, default=accepted_at),  # when the last recipient in it came to it
            counts=derive_counts(recipients),
            recipients=recipients,
        )

    def _recipient(self, one: Kept, recipient: int, slip: Slip) -> RecipientReceipt:
        if recipient == NO_RECIPIENT:
            owner = one.worked[1].lease.owner
            member = None if owner is None else self._world.members[int(owner)]
        else:
            member = self._world.members[recipient]
        is_acked = one.job is not None and one.job.is_acked
        return RecipientReceipt(
            name=None if member is None else member.name,
            pubkey=None if member is None else member.pubkey,
            state=slip.state,
            delivered_at=slip.delivered_at,
            read_at=slip.read_at,
            acted_at=slip.acted_at,
            dead_at=slip.dead_at,
            dead_reason=slip.dead_reason,
            attempts=slip.attempts,
            handed_over=is_acked and slip.acted_at is None,
        )


def _since(slip: Slip, accepted_at: int) -> int:
    times = (slip.delivered_at, slip.read_at, slip.acted_at, slip.dead_at)
    return derive_since(slip.state, accepted_at, times)
