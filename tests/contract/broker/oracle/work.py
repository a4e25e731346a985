"""Work queues: one message to one worker, for a time, under a token. The rule of the lease is the kernel's."""

from claudemesh.broker.model import Acked, Claim, DeliveryState, Moved, Queue, Sender, Work
from claudemesh.broker.policy import QUEUE_RETURNS_MAX
from claudemesh.kernel.errors import DestinationNotFound, LeaseLost, NotFound
from claudemesh.kernel.fingerprint import Kind
from claudemesh.kernel.lease import Acquire, Fence, Granted, Lease, Lost, Renew, judge
from tests.contract.broker.oracle.world import Job, Kept, World


class OracleWorkStore:
    def __init__(self, world: World) -> None:
        self._world = world

    async def create_queue(self, sender: Sender, name: str, now_ms: int) -> bool:
        self._world.check_in_force(sender)
        is_new = (sender.mesh_id, name) not in self._world.queues
        self._world.queues.setdefault((sender.mesh_id, name), now_ms)
        return is_new

    async def queues(self, sender: Sender) -> list[Queue]:
        found = []
        for (mesh_id, name), created_at in sorted(self._world.queues.items()):
            if mesh_id == sender.mesh_id:
                held = [job.lease.owner is not None for _, job in self._unsettled(mesh_id, name)]
                found.append(
                    Queue(name=name, created_at=created_at, ready=held.count(False), leased=held.count(True))
                )
        return found

    async def work(self, sender: Sender, queue: str, lease_ttl_ms: int, now_ms: int) -> Work | None:
        self._world.check_in_force(sender)
        if (sender.mesh_id, queue) not in self._world.queues:
            raise DestinationNotFound
        self._take_back_expired(sender.mesh_id, queue, now_ms)
        for one, job in self._unsettled(sender.mesh_id, queue):
            verdict = judge(job.lease, Acquire(str(sender.member_id), lease_ttl_ms), self._world.lease_now())
            if isinstance(verdict, Granted):
                job.lease = verdict.lease
                one.worked[0].delivered_at, one.worked[0].attempts = now_ms, job.returns + 1
                return self._hand_out(one, job, lease_ttl_ms)
        return None

    async def ack(self, claim: Claim, now_ms: int, *, handed_over: bool = False) -> Acked:
        one, job = self._find(claim)
        slip, moved = one.worked[0], Moved(one.sender_id, one.message.client_message_id)
        holder = (str(claim.sender.member_id), claim.token)
        if not job.is_acked or holder != (job.lease.owner, job.lease.token):  # else it was said before
            self._check(job, Fence(*holder))
            job.is_settled = job.is_acked = True
        if not handed_over and slip.acted_at is None:
            slip.acted_at = now_ms
        return Acked(moved, DeliveryState.DELIVERED if slip.acted_at is None else DeliveryState.ACTED)

    async def nack(self, claim: Claim, now_ms: int) -> None:
        one, job = self._find(claim)
        self._check(job, Fence(str(claim.sender.member_id), claim.token))
        _give_back(one, now_ms)

    async def renew(self, claim: Claim, lease_ttl_ms: int) -> int:
        _, job = self._find(claim)
        job.lease = self._check(job, Renew(str(claim.sender.member_id), claim.token, lease_ttl_ms))
        return job.lease.expires_at_ms - self._world.lease_now()

    async def expire(self, now_ms: int) -> int:
        return sum(self._take_back_expired(mesh_id, name, now_ms) for mesh_id, name in self._world.queues)

    def _unsettled(self, mesh_id: int, queue: str) -> list[tuple[Kept, Job]]:
        return [
            (one, one.job)
            for one in self._world.of_mesh(mesh_id)
            if one.job is not None and not one.job.is_settled and one.message.ref == queue
        ]

    def _take_back_expired(self, mesh_id: int, queue: str, now_ms: int) -> int:
        now = self._world.lease_now()
        expired = [
            one
            for one, job in self._unsettled(mesh_id, queue)
            if job.lease.owner is not None and not job.lease.is_live(now)
        ]
        for one in expired:
            _give_back(one, now_ms)
        return len(expired)

    def _find(self, claim: Claim) -> tuple[Kept, Job]:
        self._world.check_in_force(claim.sender)
        one = self._world.find(claim.broker_message_id)
        place = (claim.sender.mesh_id, Kind.QUEUE, claim.queue)
        if one is None or one.job is None or (one.mesh_id, one.message.kind, one.message.ref) != place:
            raise NotFound
        return one, one.job

    def _check(self, job: Job, request: Fence | Renew) -> Lease:
        verdict = judge(job.lease, request, self._world.lease_now())
        if isinstance(verdict, Lost):
            raise LeaseLost(reason=verdict.because)
        if job.is_settled or not isinstance(verdict, Granted):
            raise LeaseLost(reason="settled")
        return verdict.lease

    def _hand_out(self, one: Kept, job: Job, lease_ttl_ms: int) -> Work:
        author = self._world.members[one.sender_id]
        return Work(
            sender_id=author.id,
            broker_message_id=one.broker_message_id,
            client_message_id=one.message.client_message_id,
            history_id=one.history_id,
            sender_pubkey=author.pubkey,
            sender_name=author.name,
            body=one.message.body,
            meta=one.message.meta,
            reply_to=one.message.reply_to,
            accepted_at=one.accepted_at,
            lease_token=job.lease.token,
            lease_ttl_ms=lease_ttl_ms,
            returns=job.returns,
        )


def _give_back(one: Kept, now_ms: int) -> None:
    slip, job = one.worked
    job.lease, job.returns = Lease(None, job.lease.token, 0), job.returns + 1
    slip.delivered_at = None
    if job.returns >= QUEUE_RETURNS_MAX:
        job.is_settled = True
        slip.bury(now_ms, "returns_exhausted")
