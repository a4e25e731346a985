"""The relay's metrics, from its events and its store; and what waits there, in figures."""

from dataclasses import dataclass

from claudemesh.edge.events import EnvelopeQueued, EnvelopeSettled, Recovered, WriteRefused
from claudemesh.edge.ports import CountingStore
from claudemesh.edge.reach import Reach
from claudemesh.kernel.outbox import OutboxEvent, OutboxState
from claudemesh.runtime.metrics import Metrics
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.world import World

_FAILURES = (OutboxEvent.FAILED, OutboxEvent.REFUSED, OutboxEvent.CONFLICTED, OutboxEvent.EXPIRED)


class EdgeMetrics:
    def __init__(self, outbox: CountingStore | None, reach: Reach, world: World) -> None:
        self._outbox = outbox
        self._reach = reach
        self._world = world
        self.metrics = metrics = Metrics()
        self._pending = metrics.gauge("cm_edge_outbox_pending", "Envelopes that wait to be sent, or are out.").of()
        self._age = metrics.gauge("cm_edge_outbox_oldest_age_seconds", "Age of the oldest that waits.").of()
        self._conflicts = metrics.gauge(
            "cm_edge_conflicts", "Envelopes in conflict, which wait for an operator."
        ).of()
        self._dead = metrics.gauge("cm_edge_outbox_dead", "Dead envelopes, which wait for an operator.").of()
        self._reachable = metrics.gauge("cm_edge_upstream_reachable", "1 while the upstream answers.").of()
        self._failures = metrics.counter(
            "cm_edge_replay_failures_total", "Tries that did not end in an ack, by what became of the envelope.",
            {"event": _FAILURES},
        )  # fmt: skip
        self._queued = metrics.counter("cm_edge_queued_total", "Writes that were queued.").of()
        self._refused = metrics.counter("cm_edge_refused_total", "Writes that could neither go nor wait.").of()
        self._recoveries = metrics.counter("cm_edge_recoveries_total", "Outages whose writes are all settled.").of()

    def attach(self, observer: Observer) -> None:
        observer.subscribe(EnvelopeSettled, self._settled)
        observer.subscribe(EnvelopeQueued, lambda _: self._queued.inc())
        observer.subscribe(WriteRefused, lambda _: self._refused.inc())
        observer.subscribe(Recovered, lambda _: self._recoveries.inc())

    async def render(self) -> bytes:
        figures = await read_figures(self._outbox, self._world.steady_ms())
        self._pending.set(figures.pending)
        self._age.set(figures.oldest_pending_age_s)
        self._conflicts.set(figures.conflicts)
        self._dead.set(figures.dead)
        self._reachable.set(int(self._reach.is_online))
        return self.metrics.render()

    def _settled(self, event: EnvelopeSettled) -> None:
        if event.outcome in _FAILURES:
            self._failures.of(event.outcome).inc()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What waits in an outbox; all zero of one that cannot be used."""

    pending: int = 0  # to be sent, or out
    blocked: int = 0  # of these, behind one in conflict
    oldest_pending_age_s: int = 0
    conflicts: int = 0
    dead: int = 0


async def read_figures(outbox: CountingStore | None, now_ms: int) -> Figures:
    """Return the figures that `/status`, the metrics and `statehub outbox status` share."""
    if outbox is None:
        return Figures()
    counts, oldest = await outbox.counts(), await outbox.oldest_open()
    return Figures(
        pending=counts[OutboxState.PENDING] + counts[OutboxState.INFLIGHT],
        blocked=await outbox.blocked(),
        oldest_pending_age_s=0 if oldest is None else max(now_ms - oldest, 0) // 1000,
        conflicts=counts[OutboxState.CONFLICT],
        dead=counts[OutboxState.DEAD],
    )
