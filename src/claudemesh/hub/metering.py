"""The hub's metrics, counted from its events."""

from typing import get_args

from claudemesh.asgi.events import RequestAnswered
from claudemesh.hub.events import RowAsked, What
from claudemesh.hub.model import Kind
from claudemesh.idempotency.events import KeysSwept
from claudemesh.runtime.metrics import Metrics
from claudemesh.runtime.observe import Observer

_METHODS = ("GET", "POST", "PATCH", "DELETE", "other")
_CLASSES = ("2xx", "3xx", "4xx", "5xx")


class HubMetrics:
    def __init__(self) -> None:
        metrics = self.metrics = Metrics()
        self._writes = metrics.counter(
            "cm_hub_writes_total",
            "Rows that were asked for, by what became of it.",
            {"kind": Kind, "outcome": get_args(What)},
        )
        self._requests = metrics.counter(
            "cm_hub_requests_total", "Requests by how they were answered.", {"method": _METHODS, "status": _CLASSES}
        )
        self._seconds = metrics.histogram("cm_hub_request_duration_seconds", "From first look to answer.").of()
        self._swept = metrics.counter("cm_hub_keys_swept_total", "Idempotency keys that expired.").of()

    def attach(self, observer: Observer) -> None:
        observer.subscribe(RowAsked, lambda event: self._writes.of(event.kind, event.what).inc())
        observer.subscribe(RequestAnswered, self._answered)
        observer.subscribe(KeysSwept, lambda event: self._swept.inc(event.count))

    def _answered(self, event: RequestAnswered) -> None:
        method = event.method if event.method in _METHODS else "other"
        self._requests.of(method, f"{event.status // 100}xx").inc()
        self._seconds.observe(event.seconds)
