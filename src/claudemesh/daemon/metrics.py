"""The daemon's metrics, counted from its events; gauges are read from the stores when somebody asks."""

from collections.abc import Awaitable, Callable, Mapping

from claudemesh.asgi.events import RequestAnswered, TokenRotated
from claudemesh.daemon.events import (
    BrokerConnected,
    BrokerDisconnected,
    CloneSuspected,
    HistoryPruned,
    InboundRefused,
    MessageReceived,
    RowsSettled,
    SendJudged,
)
from claudemesh.daemon.ports import OutboxStore
from claudemesh.kernel.outbox import OutboxEvent, OutboxState
from claudemesh.runtime.metrics import Metrics
from claudemesh.runtime.observe import Observer

_CLASSES = ("2xx", "3xx", "4xx", "5xx")
_OPEN = (OutboxState.PENDING.value, OutboxState.INFLIGHT.value, OutboxState.DEAD.value)


class DaemonMetrics:
    def __init__(self, outbox: OutboxStore, lag_ms: Callable[[], Awaitable[int]]) -> None:
        self._outbox = outbox
        self._lag_ms = lag_ms
        metrics = self.metrics = Metrics()
        self._connected = metrics.gauge("cm_daemon_connected", "1 while the broker's connection stands.").of()
        self._lag = metrics.gauge("cm_daemon_lag_ms", "How long the oldest waiting row has waited.").of()
        self._age = metrics.gauge("cm_daemon_outbox_age_seconds", "The same, in seconds.").of()
        self._depth = metrics.gauge("cm_daemon_outbox_depth", "Rows that are not settled.", {"status": _OPEN})
        self._disk = metrics.gauge(
            "cm_daemon_disk_pct", "How full the reserved room is, in percent.", {"store": ("outbox", "inbox")}
        )
        self._reconnects = metrics.counter("cm_daemon_reconnects_total", "Connections made after the first.").of()
        self._dedupe = metrics.counter("cm_daemon_dedupe_total", "Sends answered from a row that stood.").of()
        self._pruned = metrics.counter(
            "cm_daemon_dedupe_history_pruned_total", "Sends the broker had, but keeps no more."
        ).of()
        self._sends = metrics.counter(
            "cm_daemon_send_total", "Rows by what became of them.", {"event": OutboxEvent}
        )
        self._received = metrics.counter("cm_daemon_recv_total", "Messages that were new to the inbox.").of()
        self._requests = metrics.counter("cm_daemon_ipc_request_total", "Local requests.", {"status": _CLASSES})
        self._seconds = metrics.histogram("cm_daemon_ipc_duration_seconds", "Local requests, begin to end.").of()
        self._rotations = metrics.counter("cm_daemon_local_token_rotations_total", "New local tokens.").of()
        self._clones = metrics.counter(
            "cm_daemon_clone_suspected_total", "Starts on a host that the state directory was not made on."
        ).of()
        self._invalid = metrics.counter(
            "cm_daemon_invalid_inbound_total", "Frames of the broker that could not be understood."
        ).of()
        self._connections = 0

    def attach(self, observer: Observer) -> None:
        observer.subscribe(RowsSettled, self._settled)
        observer.subscribe(HistoryPruned, lambda _: self._pruned.inc())
        observer.subscribe(SendJudged, self._judged)
        observer.subscribe(MessageReceived, lambda _: self._received.inc())
        observer.subscribe(BrokerConnected, self._up)
        observer.subscribe(BrokerDisconnected, lambda _: self._connected.set(0))
        observer.subscribe(RequestAnswered, self._answered)
        observer.subscribe(TokenRotated, lambda _: self._rotations.inc())
        observer.subscribe(CloneSuspected, lambda _: self._clones.inc())
        observer.subscribe(InboundRefused, lambda _: self._invalid.inc())

    async def render(self, disk_pct: Mapping[str, float]) -> bytes:
        counts = await self._outbox.counts()
        for state in map(OutboxState, _OPEN):
            self._depth.of(state).set(counts[state])
        lag_ms = await self._lag_ms()
        self._lag.set(lag_ms)
        self._age.set(lag_ms / 1000)
        for store, pct in disk_pct.items():
            self._disk.of(store).set(pct)
        return self.metrics.render()

    def _settled(self, event: RowsSettled) -> None:
        self._sends.of(event.event).inc(len(event.client_message_ids))

    def _judged(self, event: SendJudged) -> None:
        if event.stood:
            self._dedupe.inc()

    def _up(self, _: BrokerConnected) -> None:
        self._connected.set(1)
        self._connections += 1
        if self._connections > 1:
            self._reconnects.inc()

    def _answered(self, event: RequestAnswered) -> None:
        self._requests.of(f"{event.status // 100}xx").inc()
        self._seconds.observe(event.seconds)
