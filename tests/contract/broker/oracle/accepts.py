"""Who may use an id, and what a message that is taken leaves."""

from collections.abc import Sequence

from claudemesh.broker.model import (
    NO_RECIPIENT,
    Accepted,
    AcceptOutcome,
    Batch,
    DedupeState,
    Duplicate,
    Message,
    Moved,
    Sender,
    StandingMessage,
)
from claudemesh.broker.policy import SENDER_SEQ_MAX, Deferrals, derive_duplicate, judge_standing
from claudemesh.kernel.errors import DestinationNotFound, MeshError, NotSubscribed
from claudemesh.kernel.fingerprint import Fingerprint, Kind
from tests.contract.broker.oracle.world import Job, Kept, Slip, Used, World


class OracleAcceptStore:
    def __init__(self, world: World) -> None:
        self._world = world

    async def standing(self, sender_id: int, client_message_ids: Sequence[str]) -> dict[str, StandingMessage]:
        used = {id_: self._world.used.get((sender_id, id_)) for id_ in client_message_ids}
        return {id_: one.standing for id_, one in used.items() if one is not None}

    async def accept(self, batch: Batch) -> list[AcceptOutcome]:
        if len(batch.messages) == 1:
            return [self._accept(batch, batch.messages[0])]  # if it breaks, so does the call
        deferrals = Deferrals()
        outcomes: list[AcceptOutcome] = []
        for message in batch.messages:
            outcome = deferrals.judge(message.destination) or self._accept_or_break(batch, message)
            deferrals.note(message.destination, outcome)
            outcomes.append(outcome)
        return outcomes

    async def retire(
        self, sender: Sender, client_message_id: str, now_ms: int, expires_at: int | None
    ) -> Duplicate | None:
        key = (sender.member_id, client_message_id)
        given_up = StandingMessage(DedupeState.RETIRED, Fingerprint(b""), None, None, False, now_ms)  # noqa: FBT003
        used = self._world.used.setdefault(key, Used(sender.mesh_id, given_up, expires_at))
        return derive_duplicate(used.standing) if used.standing.state is DedupeState.ACCEPTED else None

    def _accept_or_break(self, batch: Batch, message: Message) -> AcceptOutcome:
        try:
            return self._accept(batch, message)
        except OverflowError:
            return MeshError("the message could not be stored")

    def _accept(self, batch: Batch, message: Message) -> AcceptOutcome:
        world, sender = self._world, batch.sender
        try:
            world.check_in_force(sender)
            used = world.used.get((sender.member_id, message.client_message_id))
            if used is not None:
                return judge_standing(used.standing, message)
            recipients = self._recipients(sender, message)
        except MeshError as refused:
            return refused
        if message.sender_seq is not None and message.sender_seq > SENDER_SEQ_MAX:
            raise OverflowError
        answered = self._answer(sender, message.reply_to, batch.now_ms)
        kept = self._keep(batch, message, recipients)
        return Accepted(kept.broker_message_id, kept.history_id, recipients, answered, kept.to_session)

    def _recipients(self, sender: Sender, message: Message) -> tuple[int, ...]:
        world, place = self._world, (sender.mesh_id, message.ref)
        if message.kind is Kind.QUEUE and place in world.queues:
            return ()
        if message.kind is Kind.TOPIC and place in world.topics:
            subscribers = world.topics[place].subscribers
            if sender.member_id not in subscribers:
                raise NotSubscribed
            return tuple(id_ for id_ in subscribers if id_ != sender.member_id)
        if message.kind is Kind.DM and place in world.keys:
            recipient = world.members[world.keys[place]]
            if recipient.revoked_at is None:
                return (recipient.id,)
        raise DestinationNotFound

    def _answer(self, sender: Sender, reply_to: str, now_ms: int) -> Moved | None:
        """Note the first reply of a recipient; to a queue's message, of who handed it over."""
        replied = self._world.find(reply_to)
        if replied is None:
            return None
        slip = replied.slips.get(sender.member_id)
        if (job := replied.job) is not None and job.is_acked and job.lease.owner == str(sender.member_id):
            slip = replied.worked[0]
        if slip is None or slip.acted_at is not None:
            return None
        slip.acted_at = now_ms
        return Moved(replied.sender_id, replied.message.client_message_id)

    def _keep(self, batch: Batch, message: Message, recipients: tuple[int, ...]) -> Kept:
        world, mesh_id, sender_id = self._world, batch.sender.mesh_id, batch.sender.member_id
        history_id = world.last[mesh_id] = world.last[mesh_id] + 1
        is_job = message.kind is Kind.QUEUE
        to_session = message.ref if (mesh_id, message.ref) in world.session_keys else None
        kept = Kept(
            mesh_id=mesh_id,
            history_id=history_id,
            broker_message_id=f"{mesh_id:013}{history_id:013}",  # as long as a ULID: pages are cut by their bytes
            sender_id=sender_id,
            message=message,
            accepted_at=batch.now_ms,
            to_session=to_session if message.kind is Kind.DM else None,
            slips={recipient: Slip() for recipient in ([NO_RECIPIENT] if is_job else recipients)},
            job=Job() if is_job else None,
        )
        world.kept[mesh_id, history_id] = kept
        standing = StandingMessage(
            DedupeState.ACCEPTED,
            message.fingerprint,
            kept.broker_message_id,
            history_id,
            True,  # noqa: FBT003  its history is available
            batch.now_ms,
        )
        world.used[sender_id, message.client_message_id] = Used(mesh_id, standing, batch.expires_at)
        return kept
