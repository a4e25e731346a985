"""The broker's metrics, counted from its events."""

from claudemesh.broker.events import (
    BatchAccepted,
    BulletinPassed,
    KeeperChanged,
    LimiterFailed,
    MemberConnected,
    MemberDisconnected,
    OrphansChecked,
    PeerChanged,
    StoodStill,
)
from claudemesh.runtime.metrics import Metrics
from claudemesh.runtime.observe import Observer
from claudemesh.wire.frames import CLOSE_FEATURE_PARAM_BELOW_FLOOR, CLOSE_FEATURE_PARAM_INVALID

_TERMS_REFUSED = (CLOSE_FEATURE_PARAM_INVALID, CLOSE_FEATURE_PARAM_BELOW_FLOOR)
_OUTCOMES = ("accepted", "duplicate", "refused")
_CHANGES = ("peer_joined", "peer_left")
_DIRECTIONS = ("told", "heard")


class BrokerMetrics:
    def __init__(self) -> None:
        metrics = self.metrics = Metrics()
        self._accepts = metrics.counter(
            "cm_broker_accept_total", "Messages by what became of them.", {"outcome": _OUTCOMES}
        )
        self._mismatches = metrics.counter(
            "cm_broker_dedupe_fingerprint_mismatch_total", "Ids that came again for another request, or drifted."
        ).of()
        self._rejections = metrics.counter(
            "cm_broker_rate_limit_rejection_total", "Messages beyond their sender's budget."
        ).of()
        self._put_off = metrics.counter(
            "cm_broker_limiter_unavailable_total", "Messages put off because the limiter did not answer."
        ).of()
        self._consumed = metrics.counter(
            "cm_broker_rate_limit_consumed_then_b2_rejected_total", "Budget spent on messages refused afterwards."
        ).of()
        self._checks = metrics.counter("cm_broker_dedupe_orphan_check_total", "Runs of the orphan check.").of()
        self._violations = metrics.gauge(
            "cm_broker_atomicity_violation_found", "What the last orphan check found; anything but 0 is a bug."
        ).of()
        self._misconfigured = metrics.counter(
            "cm_broker_dedupe_misconfig_total",
            "Connections that a daemon ended since this broker forgets ids too early for it, or does not say when.",
        ).of()
        self.depth = metrics.gauge("cm_broker_delivery_depth", "Deliveries that wait for their recipient.").of()
        self.connections = metrics.gauge("cm_broker_connections", "Members and sessions connected now.").of()
        self._keeper = metrics.gauge(
            "cm_broker_keeper", "1 if this broker sweeps and checks the store; of several on one, only one does."
        ).of()
        self._bulletins = metrics.counter(
            "cm_broker_bulletins_total", "What brokers of one store told each other.", {"direction": _DIRECTIONS}
        )

        self._changes = metrics.counter(
            "cm_broker_peer_changes_total", "Peers that came or went, as this broker announced.", {"what": _CHANGES}
        )
        self._stood_still = metrics.counter(
            "cm_broker_stood_still_total", "Times that this process did not run for a while."
        ).of()

    def attach(self, observer: Observer) -> None:
        observer.subscribe(BatchAccepted, self._accepted)
        observer.subscribe(LimiterFailed, lambda event: self._put_off.inc(event.messages))
        observer.subscribe(OrphansChecked, self._checked)
        observer.subscribe(KeeperChanged, lambda event: self._keeper.set(int(event.is_keeper)))
        observer.subscribe(BulletinPassed, lambda event: self._bulletins.of(event.direction).inc())
        observer.subscribe(PeerChanged, lambda event: self._changes.of(event.what).inc())
        observer.subscribe(StoodStill, lambda _: self._stood_still.inc())
        observer.subscribe(MemberConnected, lambda _: self.connections.inc())
        observer.subscribe(MemberDisconnected, self._left)

    def _left(self, event: MemberDisconnected) -> None:
        self.connections.dec()
        if event.code in _TERMS_REFUSED:
            self._misconfigured.inc()

    def _accepted(self, event: BatchAccepted) -> None:
        total = sum(event.by_phase.values())
        self._accepts.of("accepted").inc(event.accepted)
        self._accepts.of("duplicate").inc(event.duplicates)
        self._accepts.of("refused").inc(total - event.accepted - event.duplicates)
        self._mismatches.inc(event.mismatches)
        self._rejections.inc(event.rate_limited)
        self._consumed.inc(event.consumed_then_refused)

    def _checked(self, event: OrphansChecked) -> None:
        self._checks.inc()
        self._violations.set(event.violations)
