"""Outages: when the upstream went away, and when all that waited for it was settled.

An outage begins with the first write that is queued while the upstream is away, and ends when nothing waits to be
sent any more; what then is in conflict or dead, or behind a conflict, waits for an operator and not for the
upstream. It is written down, so that a restart goes on with it. Its end is told to logs and metrics, and, where
the policy names a route for it, to the upstream itself: as a write like any other, under a key of the outage's
own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import orjson

from claudemesh.edge.events import EnvelopeDecided, EnvelopeSettled, Recovered
from claudemesh.edge.model import Answer, Source
from claudemesh.edge.ports import OutageSeen, OutageStore, Results
from claudemesh.edge.reach import Reach
from claudemesh.edge.replay import Replay, source_headers
from claudemesh.edge.sorting import Asked
from claudemesh.kernel.errors import DependencyError, MeshError
from claudemesh.kernel.outbox import OutboxState
from claudemesh.runtime.world import World

LOOK_EVERY_S: Final = 30.0  # beside being woken by every envelope that is settled
LOOK_AGAIN_S: Final = 0.2  # after a look: while thousands are settled, not each of them is looked at
AGENT: Final = "statehub-edge"

Write = Callable[[Asked], Awaitable[Answer]]


class Recovery:
    def __init__(
        self, outbox: OutageStore | None, replay: Replay | None, reach: Reach, host: str, world: World
    ) -> None:
        self._outbox = outbox
        self._replay = replay
        self._reach = reach
        self._host = host
        self._world = world
        self._is_open = False  # an outage is written down
        self._wake = asyncio.Event()
        reach.listen(self)
        world.observer.subscribe(EnvelopeSettled, lambda _: self._wake.set())
        world.observer.subscribe(EnvelopeDecided, lambda _: self._wake.set())

    # --- what others tell it -----------------------------------------------------------------------

    def queued(self, lanes: Sequence[str]) -> None:
        if self._replay is not None:
            self._replay.queued(lanes)

    async def begin_outage_if_away(self) -> None:
        """Write down that an outage began, before its first envelope is."""
        if self._outbox is None or self._is_open or self._reach.is_online:
            return
        await self._outbox.begin_outage(self._world.ids.ulid(), self._reach.since_ms)
        self._is_open = True

    def upstream_is_there(self) -> None:
        self._wake.set()

    def upstream_is_away(self) -> None:
        """Nothing to do: an outage begins with what it keeps waiting."""

    def hurry(self) -> None:
        self._wake.set()

    # --- the loop ------------------------------------------------------------------------------------

    async def run(self, report_to: str | None, write: Write) -> None:
        """Look whether an outage is over whenever something was settled, until cancelled."""
        if self._outbox is None:
            return
        self._is_open = await self._outbox.open_outage() is not None or self._is_open
        while True:
            self._wake.clear()  # before looking: whatever happens meanwhile has it look once more
            if self._is_open and self._reach.is_online:
                with suppress(DependencyError):  # a full disk, say: another time
                    await self._look(self._outbox, report_to, write)
                await asyncio.sleep(LOOK_AGAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._wake.wait()

    async def _look(self, outbox: OutageStore, report_to: str | None, write: Write) -> None:
        outage = await outbox.open_outage()
        if outage is None:
            self._is_open = False
            return
        counts = await outbox.counts()
        if counts[OutboxState.PENDING] + counts[OutboxState.INFLIGHT] > await outbox.blocked():
            return
        if outage.online_at is None:  # once: after a restart in between it is reported in the same words
            await outbox.back_online(self._reach.since_ms)
            outage = replace(outage, online_at=self._reach.since_ms)
        results = await outbox.results(outage.first_seq)
        if report_to is not None:
            with suppress(MeshError):  # it is a courtesy: the outage is over all the same
                await write(self._report(outage, results, report_to))
        now = self._world.steady_ms()
        await outbox.end_outage(outage.id, now)
        self._is_open = False
        self._world.observer.publish(_event(outage, results, now))

    def _report(self, outage: OutageSeen, results: Results, route: str) -> Asked:
        event = _event(outage, results, self._world.steady_ms())
        body = {
            "agent": AGENT,
            "summary": (
                f"Replayed the writes of an outage of {event.outage_s} s: {event.acked} acked, "
                f"{event.conflicts} in conflict, {event.dead} dead, {event.coalesced} coalesced."
            ),
            "details": {
                "outage_id": outage.id,
                "host": self._host,
                "outage_s": event.outage_s,
                "acked": event.acked,
                "conflicts": event.conflicts,
                "dead": event.dead,
                "cancelled": event.cancelled,
                "coalesced": event.coalesced,
            },
        }
        method, _, path = route.partition(" ")
        source = Source(agent=AGENT, host=self._host)
        return Asked(
            method=method,
            path=path,
            query="",
            body=body,
            raw=orjson.dumps(body),
            headers=((b"content-type", b"application/json"), *source_headers(source)),
            key=f"recovery-{outage.id}",
            source=source,
        )


def _event(outage: OutageSeen, results: Results, now: int) -> Recovered:
    until = now if outage.online_at is None else outage.online_at
    return Recovered(
        outage_id=outage.id,
        outage_s=max(until - outage.began_at, 0) // 1000,
        acked=results.counts.get("acked", 0),
        conflicts=results.counts.get("conflict", 0),
        dead=results.counts.get("dead", 0),
        cancelled=results.counts.get("cancelled", 0) - results.coalesced,
        coalesced=results.coalesced,
    )
