"""The accept: messages of one connection through the phases of `policy.ACCEPT_PHASES`, in order.

Frames of one connection go through `admit` one after the other (B0 and B1), and the transaction of each (B2 and B3)
is under way while the next is admitted. They are committed in the order in which they came, and each is answered
when it is done.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from claudemesh.broker.events import BatchAccepted, FingerprintDrifted, LimiterFailed
from claudemesh.broker.model import (
    Accepted,
    AcceptOutcome,
    Batch,
    Budgeted,
    Duplicate,
    Fresh,
    Identity,
    Mesh,
    Message,
    StandingMessage,
)
from claudemesh.broker.policy import (
    Deferrals,
    Phase,
    derive_phase,
    is_transient,
    judge_drift,
    judge_size,
    judge_standing,
)
from claudemesh.broker.ports import AcceptStore, Limiter
from claudemesh.kernel.clock import DAY_MS, Clock
from claudemesh.kernel.errors import IdempotencyConflict, IdRetired, MeshError, RateLimited
from claudemesh.kernel.fingerprint import prefix
from claudemesh.runtime import points
from claudemesh.runtime.observe import Observer

AFTER_ACCEPT: Final = points.declare("broker.after_accept")

Told = Callable[[Sequence[Fresh]], None]  # what was committed, for those whom it concerns


@dataclass(frozen=True, slots=True)
class Presented:
    """One item of a frame: a message with the fingerprint its sender claims, or why it is none."""

    message: Message | None
    claimed_fingerprint: str
    refusal: MeshError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptSettings:
    inline_bytes: int
    sends_per_window: int
    dedupe_days: int | None  # None: for ever


@dataclass(slots=True)
class Admitted:
    """A frame after B0 and B1: what is answered already, and what goes into the transaction."""

    identity: Identity
    outcomes: list[AcceptOutcome | None]
    batch: Batch
    places: list[int]  # of the batch's messages among the outcomes


class AcceptService:
    def __init__(  # noqa: PLR0913  its parts, by name
        self,
        store: AcceptStore,
        limiter: Limiter,
        settings: AcceptSettings,
        *,
        clock: Clock,
        observer: Observer,
        told: Told,
    ) -> None:
        self._store = store
        self._limiter = limiter
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._told = told
        self._budgets: dict[int, int | None] = {}  # by mesh, as last read or told

    async def accept(self, identity: Identity, items: Sequence[Presented]) -> list[AcceptOutcome]:
        """Return an outcome for each item, in their order."""
        return await self.commit((await self.admit(identity, [items]))[0])

    async def admit(self, identity: Identity, frames: Sequence[Sequence[Presented]]) -> list[Admitted]:
        """Take some frames of one connection through B0 and B1: one look at the store, one at the budget."""
        items = [item for frame in frames for item in frame]
        ids = [item.message.client_message_id for item in items if item.message]
        standing = await self._store.standing(identity.member.id, ids)
        outcomes = [self._judge(identity, item, standing) for item in items]
        await self._consume(identity, items, outcomes)
        found = iter(outcomes)
        return [self._admit(identity, frame, list(islice(found, len(frame)))) for frame in frames]

    async def commit(self, admitted: Admitted) -> list[AcceptOutcome]:
        """Take it through B2 and B3, and wake who has something to get. Applied in the order of the calls."""
        outcomes = admitted.outcomes
        if admitted.batch.messages:
            applied = await self._apply(admitted.batch)
            for place, outcome in zip(admitted.places, applied, strict=True):
                outcomes[place] = outcome
            points.reach(AFTER_ACCEPT)
            self._tell(admitted, applied)  # without a pause since the commit: they are told in its order
        found = [outcome for outcome in outcomes if outcome is not None]
        self._publish(admitted, found)
        return found

    def expires_at(self, now_ms: int) -> int | None:
        days = self._settings.dedupe_days
        return None if days is None else now_ms + days * DAY_MS

    def set_budget(self, budget: Budgeted) -> None:
        """Go by the mesh's new budget from now on."""
        self._budgets[budget.mesh] = budget.sends_per_window

    def learn(self, mesh: Mesh) -> None:
        """Go by what the store says of the mesh: a change may have been told and not heard."""
        self._budgets[mesh.id] = mesh.sends_per_window

    # --- B0 and B1 ---------------------------------------------------------------------------------

    def _admit(
        self, identity: Identity, frame: Sequence[Presented], outcomes: list[AcceptOutcome | None]
    ) -> Admitted:
        deferrals = Deferrals()
        places: list[int] = []
        for place, (item, outcome) in enumerate(zip(frame, outcomes, strict=True)):
            if item.message is None:
                continue
            if outcome is not None:
                deferrals.note(item.message.destination, outcome)
            elif (deferred := deferrals.judge(item.message.destination)) is not None:
                outcomes[place] = deferred
            else:
                places.append(place)
        now = self._clock.wall_ms()
        messages = tuple(message for place in places if (message := frame[place].message))
        batch = Batch(identity.sender, messages, now, self.expires_at(now))
        return Admitted(identity, outcomes, batch, places)

    def _judge(
        self, identity: Identity, item: Presented, standing: dict[str, StandingMessage]
    ) -> AcceptOutcome | None:
        message = item.message
        if message is None:
            return item.refusal
        stands = standing.get(message.client_message_id)
        if stands is not None:  # before anything that can refuse: a retry of what was accepted is never refused
            return judge_standing(stands, message)
        drift = judge_drift(message, item.claimed_fingerprint)
        if drift is not None:
            self._observer.publish(
                FingerprintDrifted(identity.member.uid, message.client_message_id, prefix(message.fingerprint))
            )
            return drift
        return judge_size(message, self._settings.inline_bytes)

    async def _consume(
        self, identity: Identity, items: Sequence[Presented], outcomes: list[AcceptOutcome | None]
    ) -> None:
        """Ask for the budget of those that nothing has answered yet, in one call."""
        places = [place for place, outcome in enumerate(outcomes) if outcome is None]
        ids = [message.client_message_id for place in places if (message := items[place].message)]
        if not ids:
            return
        mesh = identity.mesh
        limit = self._budgets.get(mesh.id, mesh.sends_per_window) or self._settings.sends_per_window
        try:
            waits = await self._limiter.consume(mesh.uid, identity.member.uid, ids, limit)
        except MeshError as error:  # only theirs: what stands under its id is answered all the same
            for place in places:
                outcomes[place] = error
            self._observer.publish(LimiterFailed(error.detail, len(places)))
            return
        for place, wait_ms in zip(places, waits, strict=True):
            if wait_ms is not None:
                outcomes[place] = RateLimited("the budget of this window is used up", retry_after_ms=wait_ms)

    # --- B2 and B3 ---------------------------------------------------------------------------------

    async def _apply(self, batch: Batch) -> Sequence[AcceptOutcome]:
        try:
            return await self._store.accept(batch)
        except MeshError as error:  # the store's own trouble: nobody can say what became of any of them
            return [error for _ in batch.messages]
        except Exception as error:  # noqa: BLE001  a mistake of ours must not leave a sender without an answer
            failed = MeshError("the messages could not be stored", error=type(error).__name__)
            return [failed for _ in batch.messages]

    def _tell(self, admitted: Admitted, applied: Sequence[AcceptOutcome]) -> None:
        author, batch = admitted.identity.member, admitted.batch
        fresh = [
            Fresh(author, message, outcome, batch.now_ms)
            for message, outcome in zip(batch.messages, applied, strict=True)
            if isinstance(outcome, Accepted)
        ]
        if fresh:
            self._told(fresh)

    def _publish(self, admitted: Admitted, outcomes: Sequence[AcceptOutcome]) -> None:
        if not self._observer.hears(BatchAccepted):
            return
        inside = set(admitted.places)
        phases = Counter(
            derive_phase(outcome, in_transaction=place in inside) for place, outcome in enumerate(outcomes)
        )
        self._observer.publish(
            BatchAccepted(
                by_phase=dict(phases),
                accepted=phases[Phase.B3],
                duplicates=sum(isinstance(outcome, Duplicate) for outcome in outcomes),
                mismatches=sum(
                    isinstance(outcome, IdempotencyConflict) and not isinstance(outcome, IdRetired)
                    for outcome in outcomes
                ),
                rate_limited=sum(isinstance(outcome, RateLimited) for outcome in outcomes),
                consumed_then_refused=sum(
                    isinstance(outcome, MeshError) and place in inside and not is_transient(outcome)
                    for place, outcome in enumerate(outcomes)
                ),
            )
        )
