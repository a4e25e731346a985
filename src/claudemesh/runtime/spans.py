"""Spans to a collector of OpenTelemetry, in the background and never in the way.

This file is all that knows the library. It decides that a span which cannot be sent is dropped, and that the reason
is told at most once a minute. A collector is not trusted: it can neither hold up the end nor take up the memory.
What a span is about is for those who put it here. The library's variables hold for what is not said here:
`OTEL_EXPORTER_OTLP_HEADERS` for a collector that wants a token, `OTEL_BSP_*` for batches.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

EXPORT_TIMEOUT_S: Final = 2.0
CLOSE_S: Final = 5.0
QUIET_S: Final = 60.0
TEXT_CHARS_MAX: Final = 1_000  # the queue is counted in spans: what a broker says must not fill the memory

_INSTANT_MS_MAX: Final = (2**64 - 1) // 1_000_000  # the format has 64 bits for nanoseconds
_REDIRECTION: Final = 3  # of hundreds
_HEADERS_LOGGER: Final = "opentelemetry.util.re"

_KINDS: Final = {"producer": SpanKind.PRODUCER, "consumer": SpanKind.CONSUMER}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A step that is over."""

    name: str
    kind: Literal["producer", "consumer"]
    trace_id: int
    span_id: int
    parent_id: int | None = None
    start_ms: int  # wall time
    end_ms: int
    attributes: Mapping[str, str | int]
    error: str | None = None


class Spans:
    """`share` of all traces is sent: which ones follows from their ids, so that all senders choose the same."""

    def __init__(
        self, endpoint: str, share: float, resource: Mapping[str, str], warn: Callable[[str], None]
    ) -> None:
        self._ids = _GivenIds()
        self._lock = threading.Lock()  # around the ids, which are handed over by the side
        self._complaints = _Complaints(warn)
        logging.getLogger("opentelemetry").addHandler(self._complaints)
        self._provider = TracerProvider(
            TraceIdRatioBased(share),
            Resource.create(dict(resource)),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint, timeout=EXPORT_TIMEOUT_S, session=_Session())
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("claudemesh")

    def put(self, span: Span) -> None:
        """Queue a span; one that finds the queue full is dropped."""
        parent = None
        if span.parent_id is not None:
            context = SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=_SAMPLED)
            parent = set_span_in_context(NonRecordingSpan(context))
        with self._lock:
            self._ids.trace_id, self._ids.span_id = span.trace_id, span.span_id
            started = self._tracer.start_span(
                span.name,
                context=parent,
                kind=_KINDS[span.kind],
                attributes={name: _cut(value) for name, value in span.attributes.items()},
                start_time=_nanoseconds(span.start_ms),
            )
        if span.error is not None:
            started.set_status(Status(StatusCode.ERROR, span.error[:TEXT_CHARS_MAX]))
        # Two clocks may have been read, and a span never ends before it began.
        started.end(_nanoseconds(max(span.start_ms, span.end_ms)))

    def close(self) -> None:
        """Send what is queued, if the collector takes it within its time."""
        # Time limits of the exporter are for one batch, and one read of an answer; the library's own is 30 s.
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(CLOSE_S)
        logging.getLogger("opentelemetry").removeHandler(self._complaints)


def _cut(value: str | int) -> str | int:
    return value[:TEXT_CHARS_MAX] if isinstance(value, str) else value


def _nanoseconds(instant_ms: int) -> int:
    """Return it as the format has it. One that does not fit would cost the whole batch."""
    return min(max(instant_ms, 0), _INSTANT_MS_MAX) * 1_000_000


class Redirected(requests.RequestException):
    """The collector is elsewhere. The library would take that for success."""


class _Session(requests.Session):
    """Goes by the head of an answer: its body has no bound, and is not read."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = lambda request: request  # else a password of ~/.netrc takes the place of the token

    def send(self, request: requests.PreparedRequest, **settings: Any) -> requests.Response:  # noqa: ANN401
        with super().send(request, **{**settings, "stream": True, "allow_redirects": False}) as response:
            if response.status_code // 100 == _REDIRECTION:
                raise Redirected(f"it answers {response.status_code}, and a redirect is not followed")
            return response


class _GivenIds(IdGenerator):
    """Hands out the ids that were laid down: a generator is the only door that the library has for them."""

    trace_id = span_id = 1

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Complaints(logging.Handler):
    """What the library says of its failures, which it says with every batch."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._warn = warn
        self._quiet_until_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        now_s = time.monotonic()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + QUIET_S
            self._warn(_said_by(record))


def _said_by(record: logging.LogRecord) -> str:
    """Return its text without a header that it quotes, since that may be a token."""
    if not isinstance(record.args, tuple) or not record.args:
        return record.getMessage()
    is_header = record.name == _HEADERS_LOGGER
    quoted = (
        "(not shown)" if is_header or isinstance(one, requests.exceptions.InvalidHeader) else one
        for one in record.args
    )
    return str(record.msg) % tuple(quoted)
