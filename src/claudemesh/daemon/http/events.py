"""The event stream: Server-Sent Events, each with the cursor to come back with."""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from claudemesh.asgi.limits import Streams
from claudemesh.asgi.messages import Request, Response, StreamResponse
from claudemesh.asgi.routes import Header, Route
from claudemesh.daemon.http.inbox import shown_message
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.ports import TimelineEntry
from claudemesh.kernel.errors import CursorAhead, CursorExpired, InvalidRequest, TooManyStreams
from claudemesh.wire.instants import render_instant

IDLE_S: Final = 15.0  # so that both ends notice a connection that is gone
RESUME_HEADER: Final = "Last-Event-ID"


def event_routes(parts: Parts) -> list[Route]:
    streams = Streams(parts.settings.config.ipc.streams_max)

    async def stream(request: Request) -> Response | StreamResponse:
        streams.admit()
        epoch, after = await parts.feed.begin(request.header(RESUME_HEADER))

        async def chunks() -> AsyncIterator[bytes]:
            with streams.opened():
                # At once, also while nothing happens: who goes before the first event knows where to come back.
                yield f"id: {epoch}.{after}\n: here you are\n\n".encode()
                async for page in parts.feed.follow(after, IDLE_S):
                    yield b"".join(_render(entry, epoch) for entry in page) or b": still here\n\n"

        return StreamResponse(chunks())

    return [
        Route(
            method="GET",
            path="/v1/events",
            handler=stream,
            summary="What happens from now on, or after the event that is named, as Server-Sent Events.",
            content_type="text/event-stream",
            headers=(Header(RESUME_HEADER, "The id of the last event that was seen."),),
            errors=(InvalidRequest, CursorAhead, CursorExpired, TooManyStreams),
        ),
    ]


def _render(entry: TimelineEntry, epoch: str) -> bytes:
    data: Any = entry.data or {}
    if entry.message is not None:
        data = shown_message(entry.message, epoch)
    else:
        data = {"at": render_instant(entry.at), **data}  # who comes and goes has the broker's time for it
    # JSON has no line breaks of its own, so one data line holds it all.
    return b"id: %b.%d\nevent: %b\ndata: %b\n\n" % (
        epoch.encode(),
        entry.seq,
        entry.type.encode(),
        msgspec.json.encode(data),
    )
