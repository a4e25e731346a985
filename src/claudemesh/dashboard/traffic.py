"""Traffic and latency over time, by minute, quarter of an hour, or two hours.

Read from indexes of the daemon's own files, up to so many of the newest rows; what was read is good for a moment,
however many pages ask.
"""

import asyncio
from typing import Final, Literal

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.ports import Pace, SpansAsked
from claudemesh.wire.instants import render_instant

Span = Literal["hour", "day", "week"]

MOST: Final = 50_000
MINUTE_MS: Final = 60_000
_SPANS: Final[dict[Span, tuple[int, int]]] = {  # how long a bucket is, and how many there are
    "hour": (MINUTE_MS, 60),
    "day": (15 * MINUTE_MS, 96),
    "week": (120 * MINUTE_MS, 84),
}
_FRESH_MS: Final[dict[Span, int]] = {"hour": 5_000, "day": 15_000, "week": 60_000}


class TrafficQuery(msgspec.Struct, frozen=True):
    span: Span = "hour"


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in one stretch of time; latencies are null where nothing was measured.

    `send`: from being asked for to being accepted by the broker. `receive`: from there to this inbox, by two
    clocks.
    """

    at: str
    sent: int
    accepted: int
    received: int
    dead: int
    send_p50_ms: int | None
    send_p99_ms: int | None
    receive_p50_ms: int | None
    receive_p99_ms: int | None


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Oldest first, none missing. `is_cut`: there was more than is looked at, and the oldest are not whole."""

    span: Span
    bucket_s: int
    begin: str = msgspec.field(name="from")
    to: str
    is_cut: bool
    buckets: list[Bucket]


class TrafficView:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._seen: dict[Span, tuple[int, Traffic]] = {}  # until when it counts, and what it was
        self._turn = asyncio.Lock()  # who waits has the answer of whoever asked before

    async def read(self, span: Span) -> Traffic:
        async with self._turn:
            now_ms = self._parts.world.clock.monotonic_ms()
            seen = self._seen.get(span)
            if seen is None or now_ms >= seen[0]:
                seen = self._seen[span] = (now_ms + _FRESH_MS[span], await self._read(span))
            return seen[1]

    async def _read(self, span: Span) -> Traffic:
        span_ms, count = _SPANS[span]
        now_ms = self._parts.world.steady_ms()
        first = now_ms // span_ms - count + 1
        asked = SpansAsked(first * span_ms, span_ms, MOST)
        out = await self._parts.outbox.traffic(asked)
        into = await self._parts.inbox.traffic(asked)
        accepted, received = ({pace.span: pace for pace in paces} for paces in (out.accepted, into.received))
        return Traffic(
            span=span,
            bucket_s=span_ms // 1000,
            begin=render_instant(asked.since),
            to=render_instant(now_ms),
            is_cut=MOST in (_total(out.accepted), _total(into.received)),
            buckets=[
                _bucket(
                    number * span_ms,
                    (out.sent.get(number, 0), into.given_up.get(number, 0)),
                    accepted.get(number),
                    received.get(number),
                )
                for number in range(first, first + count)
            ],
        )


def _total(paces: list[Pace]) -> int:
    return sum(pace.times for pace in paces)


def _bucket(at: int, counts: tuple[int, int], accepted: Pace | None, received: Pace | None) -> Bucket:
    sent, dead = counts
    return Bucket(
        at=render_instant(at),
        sent=sent,
        accepted=0 if accepted is None else accepted.times,
        received=0 if received is None else received.times,
        dead=dead,
        send_p50_ms=None if accepted is None else accepted.half_ms,
        send_p99_ms=None if accepted is None else accepted.nearly_all_ms,
        receive_p50_ms=None if received is None else received.half_ms,
        receive_p99_ms=None if received is None else received.nearly_all_ms,
    )


def traffic_routes(parts: Parts) -> list[Route]:
    view = TrafficView(parts)

    async def traffic(request: Request) -> Response:
        return json_response(await view.read(request.query.span))

    return [
        Route(
            method="GET",
            path="/v1/dashboard/traffic",
            handler=traffic,
            summary="What was sent, accepted, received and given up over time, and how long it took.",
            query=TrafficQuery,
            response=Traffic,
        )
    ]
