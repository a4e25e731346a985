"""What is done now and then: the broker's key, epochs, retention."""

from collections import Counter

import msgspec

from claudemesh.broker.model import DedupeState, PlanPage, PlanSwept, SweepPage, Swept, Violation
from claudemesh.broker.policy import EPOCH_SKIP
from tests.contract.broker.oracle.world import Kept, Used, World


class OracleUpkeepStore:
    def __init__(self, world: World) -> None:
        self._world = world

    async def broker_seed(self, fresh: bytes) -> bytes:
        if self._world.seed is None:
            self._world.seed = fresh
        return self._world.seed

    async def resume_seeds(self, fresh: bytes) -> list[bytes]:
        return [*self._world.resume_seeds] or await self.rotate_resume_seed(fresh)

    async def rotate_resume_seed(self, fresh: bytes) -> list[bytes]:
        self._world.resume_seeds = [fresh, *self._world.resume_seeds][:2]
        return [*self._world.resume_seeds]

    async def check(self) -> list[Violation]:
        return []  # what belongs to a message is one object: there is nothing that could be torn

    async def begin_epoch(self, now_ms: int) -> int:  # noqa: ARG002  the port's
        for mesh_id in self._world.last:
            self._world.last[mesh_id] += EPOCH_SKIP
            self._world.seqs[mesh_id] = self._world.seqs.get(mesh_id, 0) + EPOCH_SKIP
        for stay in self._world.open_stays():
            stay.token += 1 << 20  # no resume token of before is good any more
        self._world.epoch += 1
        return self._world.epoch

    async def meshes(self) -> list[int]:
        return sorted(self._world.meshes)

    async def sweep_messages(self, page: SweepPage) -> Swept:
        rest = [one for one in self._world.of_mesh(page.mesh_id) if one.history_id > page.after_history_id]
        deleted = buried = 0
        last = page.after_history_id
        for one in rest[: page.limit]:
            if one.accepted_at >= page.before_ms:
                return Swept(deleted, buried, last, is_done=True)
            last = one.history_id
            buried += _bury(one, page.now_ms)
            if not _is_fresh_grave(one, page.buried_before_ms):
                self._delete(one)
                deleted += 1
        return Swept(deleted, buried, last, is_done=len(rest) < page.limit)

    async def sweep_planned(self, page: PlanPage) -> PlanSwept:
        counts: Counter[str] = Counter()
        for history_id, broker_message_id in page.planned:
            one = self._world.kept.get((page.mesh_id, history_id))
            if one is None:
                counts["gone"] += 1
            elif one.broker_message_id != broker_message_id or one.accepted_at >= page.before_ms:
                counts["refused"] += 1
            else:
                _bury(one, page.now_ms)
                is_kept = _is_fresh_grave(one, page.buried_before_ms)
                counts["buried" if is_kept else "deleted"] += 1
                if not is_kept:
                    self._delete(one)
        return PlanSwept(**counts)

    async def sweep_ids(self, now_ms: int, limit: int) -> int:
        gone = [key for key, used in self._world.used.items() if _is_over(used, now_ms)][:limit]
        for key in gone:
            del self._world.used[key]
        return len(gone)

    async def sweep_events(self, before_ms: int, limit: int) -> int:  # noqa: ARG002  the port's
        return 0  # it keeps no journal: what happened to a delivery is what its slip says

    def _delete(self, one: Kept) -> None:
        del self._world.kept[one.mesh_id, one.history_id]
        used = self._world.used[one.sender_id, one.message.client_message_id]
        used.standing = msgspec.structs.replace(used.standing, history_available=False)


def _bury(one: Kept, now_ms: int) -> int:
    """Make dead letters of those that somebody still waits for; return how many there were."""
    waiting = [
        slip
        for slip in one.slips.values()
        if slip.dead_at is None and (slip.delivered_at is None if one.job is None else not one.job.is_acked)
    ]
    for slip in waiting:
        slip.bury(now_ms, "retention")
    if waiting and one.job is not None:
        one.job.is_settled = True
    return len(waiting)


def _is_fresh_grave(one: Kept, buried_before_ms: int) -> bool:
    return any(
        slip.dead_reason == "retention" and slip.dead_at is not None and slip.dead_at > buried_before_ms
        for slip in one.slips.values()
    )


def _is_over(used: Used, now_ms: int) -> bool:
    if used.expires_at is None or used.expires_at > now_ms:
        return False
    return used.standing.state is DedupeState.RETIRED or not used.standing.history_available
