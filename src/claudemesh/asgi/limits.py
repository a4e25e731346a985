"""How many requests and streams are under way at once.

One `InFlight` stands before the routes of all listeners of a process, so that its limit is the process's. A request
that turns into a stream leaves it: streams are few and long, and counted by `Streams`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from claudemesh.asgi.events import RequestRefused
from claudemesh.asgi.messages import App, Receive, Scope, Send, refuse
from claudemesh.kernel.errors import DaemonBusy, TooManyStreams
from claudemesh.runtime.observe import Observer

IN_FLIGHT_MAX: Final = 1_024
STREAMS_MAX: Final = 32

BUSY_RETRY_MS: Final = 1_000  # a request takes milliseconds; what is turned away should not come back at once
STREAMS_RETRY_MS: Final = 10_000

_PLACE: Final = "claudemesh.in_flight"  # in the scope: who counts this request


class InFlight:
    def __init__(self, app: App, observer: Observer, limit: int = IN_FLIGHT_MAX) -> None:
        self.count = 0
        self._app = app
        self._observer = observer
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self.count >= self._limit:
            self._observer.publish(RequestRefused(DaemonBusy.code))
            await refuse(DaemonBusy(retry_after_ms=BUSY_RETRY_MS), scope, receive, send)
        else:
            self.count += 1
            scope[_PLACE] = self
            try:
                await self._app(scope, receive, send)
            finally:
                leave(scope)


def leave(scope: Scope) -> None:
    """Give up the request's place, if it has one; it may be called again."""
    place: InFlight | None = scope.pop(_PLACE, None)
    if place is not None:
        place.count -= 1


class Streams:
    """A handler holds one while its stream is open: `with streams.opened(): yield …`."""

    def __init__(self, limit: int = STREAMS_MAX) -> None:
        self.count = 0
        self._limit = limit

    def admit(self) -> None:
        """Refuse before the answer has begun, when there is still a status to refuse with."""
        if self.count >= self._limit:
            raise TooManyStreams(retry_after_ms=STREAMS_RETRY_MS)

    @contextmanager
    def opened(self) -> Iterator[None]:
        self.admit()
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
