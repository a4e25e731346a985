"""Whether the upstream can be reached, and how the relay finds out that it can again.

It counts as there until a request shows otherwise. Then it is asked again and again, with backoff and jitter,
whether it answers; what comes meanwhile is queued without being tried. An upstream that refuses the relay's own
credential is there, but nothing is replayed to it: it is asked again once a minute, or when an operator says so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, Protocol

from claudemesh.edge.events import UpstreamLost, UpstreamReached, UpstreamRefusedUs
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.runtime.world import World

PROBE_WAIT_MAX_MS: Final = 5_000
REFUSED_WAIT_MS: Final = 60_000


class State(StrEnum):
    ONLINE = "online"
    OFFLINE = "offline"
    REFUSED = "refused"  # it answers, and does not take our credential


class Replaying(Protocol):
    """What is told when the upstream comes and goes."""

    def upstream_is_there(self) -> None: ...

    def upstream_is_away(self) -> None: ...

    def hurry(self) -> None: ...


class Reach:
    def __init__(self, probe: Callable[[], Awaitable[bool]], world: World) -> None:
        self._probe = probe
        self._world = world
        self._listeners: list[Replaying] = []
        self._wake = asyncio.Event()
        self._is_asked = False  # an operator says that it is time
        self._failures = 0
        self.state = State.ONLINE
        self.since_ms = world.steady_ms()

    @property
    def is_online(self) -> bool:
        """Say whether a write should be tried at all; an upstream that refuses us still answers its callers."""
        return self.state is not State.OFFLINE

    def listen(self, listener: Replaying) -> None:
        self._listeners.append(listener)

    def lost(self, reason: str) -> None:
        """Take note that a request did not get through."""
        if self.state is not State.OFFLINE:
            self._world.observer.publish(UpstreamLost(reason))
            self._become(State.OFFLINE)

    def refused(self, status: int) -> None:
        """Take note that the upstream does not take our credential."""
        if self.state is State.ONLINE:
            self._world.observer.publish(UpstreamRefusedUs(status))
            self._become(State.REFUSED)

    def poke(self) -> None:
        """Ask at once: an operator says that it is there."""
        self._failures = 0
        self._is_asked = True
        self._wake.set()
        for listener in self._listeners:
            listener.hurry()

    async def run(self) -> None:
        """Ask, for as long as it is away, until cancelled."""
        while True:
            is_due = await self._pause()
            if self.state is State.REFUSED and is_due:
                self._return()
            elif self.state is State.OFFLINE:
                self._failures += 1
                if await self._probe() and self.state is State.OFFLINE:
                    self._return()

    async def _pause(self) -> bool:
        """Wait; say whether it was long enough, or somebody asked. Else there is only something new to wait for."""
        try:
            async with asyncio.timeout(self._wait_s()):
                await self._wake.wait()
        except TimeoutError:
            return True
        self._wake.clear()
        is_asked, self._is_asked = self._is_asked, False
        return is_asked

    def _wait_s(self) -> float | None:
        if self.state is State.ONLINE:
            return None
        if self.state is State.REFUSED:
            return REFUSED_WAIT_MS / 1000
        wait_ms = derive_backoff_ms(self._failures + 1, self._world.roll())
        return min(wait_ms, PROBE_WAIT_MAX_MS) / 1000

    def _return(self) -> None:
        self._world.observer.publish(UpstreamReached())
        self._failures = 0
        self._become(State.ONLINE)

    def _become(self, state: State) -> None:
        self.state, self.since_ms = state, self._world.steady_ms()
        self._wake.set()  # whoever waits goes by another clock now
        for listener in self._listeners:
            if state is State.ONLINE:
                listener.upstream_is_there()
            else:
                listener.upstream_is_away()
