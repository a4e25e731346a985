"""A message as spans: one at its sender, from the outbox to the broker's answer, below it one at each recipient.

They are told from the daemon's events, so that what is not traced pays nothing. A span has ids, names and times; no
body and no meta.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

from claudemesh.daemon.events import MessageReceived, SendEnded, Warned
from claudemesh.daemon.identity import Identity
from claudemesh.daemon.settings import Tracing
from claudemesh.kernel.errors import ConfigError
from claudemesh.kernel.outbox import OutboxEvent
from claudemesh.kernel.spans import derive_span_id, derive_trace_id
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.spans import Span, Spans
from claudemesh.runtime.world import World

_SEND: Final = "send"


@asynccontextmanager
async def sending_spans(tracing: Tracing, world: World, identity: Identity) -> AsyncIterator[None]:
    """Tell a collector of each message; what waits in the end is sent before this is over."""
    resource = {
        "service.name": "claudemesh-daemon",
        "service.version": version("claudemesh"),
        "claudemesh.mesh": identity.joined.slug,
        "claudemesh.member": identity.joined.name,
    }
    try:
        spans = Spans(
            tracing.endpoint, tracing.share, resource, lambda text: world.observer.publish(Warned("tracing", text))
        )
    except ValueError as error:
        raise ConfigError(f"`tracing` cannot go by a variable `OTEL_*` as it is set: {error}") from error
    MessageSpans(spans, identity.keys.pubkey).attach(world.observer)
    try:
        yield
    finally:
        await asyncio.to_thread(spans.close)


class MessageSpans:
    def __init__(self, spans: Spans, pubkey: str) -> None:
        self._spans = spans
        self._pubkey = pubkey

    def attach(self, observer: Observer) -> None:
        observer.subscribe(SendEnded, self._sent)
        observer.subscribe(MessageReceived, self._received)

    def _sent(self, event: SendEnded) -> None:
        trace_id = derive_trace_id(self._pubkey, event.client_message_id)
        span = Span(
            name="claudemesh send",
            kind="producer",
            trace_id=trace_id,
            span_id=derive_span_id(trace_id, _SEND),
            start_ms=event.enqueued_at,
            end_ms=event.ended_at,
            attributes={
                **_attributes("send", event.client_message_id),
                "messaging.destination.name": event.destination,
                "claudemesh.outcome": event.event.value,
                "claudemesh.attempts": event.attempts,
            },
            error=None if event.event is OutboxEvent.ACCEPTED else event.reason or event.event.value,
        )
        self._spans.put(span)

    def _received(self, event: MessageReceived) -> None:
        trace_id = derive_trace_id(event.sender_pubkey, event.client_message_id)
        span = Span(
            name="claudemesh deliver",
            kind="consumer",
            trace_id=trace_id,
            span_id=derive_span_id(trace_id, f"deliver {self._pubkey}"),
            parent_id=derive_span_id(trace_id, _SEND),
            start_ms=event.accepted_at,
            end_ms=event.received_at,
            attributes={
                **_attributes("receive", event.client_message_id),
                "claudemesh.broker_message_id": event.broker_message_id,
                "claudemesh.sender": event.sender_pubkey,
            },
        )
        self._spans.put(span)


def _attributes(operation: str, client_message_id: str) -> dict[str, str | int]:
    """Return what the conventions of OpenTelemetry for messaging call by these names."""
    return {
        "messaging.system": "claudemesh",
        "messaging.operation.type": operation,
        "messaging.message.id": client_message_id,
    }
