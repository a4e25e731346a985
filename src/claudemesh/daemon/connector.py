"""Keeps the daemon's connection up: again and again, with jitter, until it is told to stay away.

What one connection leaves to the next, a token to resume with and the terms that were agreed on, is kept here, in
memory: a daemon that was started anew proves itself in full.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from claudemesh.daemon.credentials import Credentials
from claudemesh.daemon.events import (
    BrokerConnected,
    BrokerDisconnected,
    ConnectingFailed,
    InboundRefused,
    NegotiationRefused,
    Warned,
)
from claudemesh.daemon.handshake import LinkSettings, connect
from claudemesh.daemon.link import Link, LinkClosed, NotStored, Receiver, Remembered, Unreachable
from claudemesh.kernel.errors import BrokerUnreachable
from claudemesh.kernel.retry import BACKOFF_CAP_MS, derive_backoff_ms
from claudemesh.runtime.world import World
from claudemesh.wire import frames
from claudemesh.wire.negotiation import Agreed, NegotiationFailed

STOOD_MS: Final = 200  # a connection that ends sooner is one more failed try

_STAY_AWAY: Final = frozenset({frames.CLOSE_REPLACED_BY_NEWER})
# A process has one socket at a time: who came under its own instance runs on a copy of the state directory, or is
# an old hello of its own that another broker judged late. The first must not be fought, nor the second lock us out.
_TAKEN_OVER: Final = (frames.CLOSE_SESSION_REPLACED, frames.REASON_REPLACED)
_REVOKED: Final = (frames.CLOSE_UNAUTHENTICATED, frames.REASON_REVOKED)
_AT_THE_CAP: Final = frozenset({frames.CLOSE_ALREADY_CONNECTED})


def is_replaced(closed: LinkClosed) -> bool:
    """Say whether another instance speaks with our key now: coming back is for a person to decide."""
    return closed.code in _STAY_AWAY


def is_taken_over(closed: LinkClosed) -> bool:
    """Say whether a socket came that has our own instance: coming back at once would only take it away again."""
    return (closed.code, closed.reason) == _TAKEN_OVER


def is_revoked(closed: LinkClosed) -> bool:
    return (closed.code, closed.reason) == _REVOKED


def is_refused(closed: LinkClosed) -> bool:
    """Say whether it is of no use to come back soon: another was there first and stays, or took our place."""
    return closed.code in _AT_THE_CAP or is_taken_over(closed)


class Backoff:
    """How long to wait for the next try."""

    def __init__(self, roll: Callable[[], float]) -> None:
        self._roll = roll
        self._attempts = 0

    def succeeded(self) -> None:
        self._attempts = 0

    def next_ms(self) -> int:
        self._attempts += 1
        return derive_backoff_ms(self._attempts, self._roll())

    def at_the_cap_ms(self) -> int:
        return int(BACKOFF_CAP_MS * (0.5 + self._roll() / 2))


class Connector:
    """Keeps a link up. `is_degraded`: it takes a person to mend, whether or not it still tries; `status`: why."""

    def __init__(self, settings: LinkSettings, credentials: Credentials, receiver: Receiver, world: World) -> None:
        self._settings = settings
        self._credentials = credentials
        self._receiver = receiver
        self._world = world
        self._observer = world.observer
        self._backoff = Backoff(world.roll)
        self._remembered = Remembered()
        self._has_agreed = False
        self._is_up = False
        self._refusal: NegotiationFailed | None = None
        self.link: Link | None = None
        self.is_degraded = False
        self.status = "connecting"

    @property
    def session_pubkey(self) -> str | None:
        return self._credentials.session_pubkey

    async def run(self) -> None:
        """Connect, serve, and come back, until cancelled.

        NegotiationFailed leaves it only if no broker ever agreed: then the daemon cannot work at all.
        """
        while True:
            wait_ms = await self._try_once()
            if self._is_up:
                self._observer.publish(BrokerDisconnected(self.status, wait_ms))
                self._is_up = False
            else:
                self._observer.publish(ConnectingFailed(self.status, wait_ms))
            if wait_ms is None:
                self.is_degraded = True
                await asyncio.Event().wait()  # another instance took over: coming back is for a person to decide
            else:
                await asyncio.sleep(wait_ms / 1000)

    async def _try_once(self) -> int | None:
        """Serve one connection, and return how long to wait for the next; None to stay away."""
        try:
            await self._once()
        except LinkClosed as closed:
            return self._after_close(closed)
        except NegotiationFailed as refused:
            return self._after_refusal(refused)
        except frames.BadFrame as error:
            self.status = "the broker sent a frame that is none of ours"
            self._observer.publish(InboundRefused(str(error)))
        except NotStored as error:
            self.status = f"a delivery could not be stored: {error}"
            self._observer.publish(Warned("delivery_not_stored", str(error)))
        except (Unreachable, OSError, TimeoutError) as error:
            self.status = str(error) or type(error).__name__
        return self._backoff.next_ms()

    async def _once(self) -> None:
        link, agreed = await connect(self._settings, self._credentials, self._world, self._remembered)
        clock = self._world.clock
        began_ms = clock.monotonic_ms()
        self._has_agreed, self.is_degraded, self._is_up = True, False, True
        self.link, self.status, self._refusal = link, "connected", None
        for warning in agreed.warnings:
            self._observer.publish(Warned("negotiation", warning))
        ack = link.hello_ack
        self._observer.publish(BrokerConnected(self._settings.broker_url, ack.broker_version, ack.resumed))
        # What is asked at the beginning is answered through the reading that runs beside it.
        beginning = asyncio.get_running_loop().create_task(self._begin(link, agreed))
        renewing = self._renew_in_time(link)
        try:
            await link.run(self._receiver)
        finally:
            self.link = None
            renewing.cancel()
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
            await self._receiver.disconnected()
            await link.close()
            if clock.monotonic_ms() - began_ms >= STOOD_MS:
                self._backoff.succeeded()
            if self._refusal is not None:
                raise self._refusal

    def _renew_in_time(self, link: Link) -> asyncio.TimerHandle:
        """End a connection before what vouches for it expires: the next one has it made anew."""
        after_ms = self._credentials.renew_after_ms
        timer = asyncio.get_running_loop().call_later(0 if after_ms is None else after_ms / 1000, link.abort)
        if after_ms is None:
            timer.cancel()
        return timer

    async def _begin(self, link: Link, agreed: Agreed) -> None:
        """Tell the receiver; whatever goes wrong there ends the connection, which then says how it ended."""
        try:
            await self._receiver.connected(link, agreed)
        except NegotiationFailed as refused:
            self._refusal = refused
            link.abort()
        except BrokerUnreachable:
            pass  # it is ending already
        except Exception as error:  # noqa: BLE001  an answer of the broker that nobody understands, say
            self._observer.publish(InboundRefused(f"at the beginning: {error!r}"[:300]))
            link.abort()

    def _after_close(self, closed: LinkClosed) -> int | None:
        self.status = f"closed: {closed}"
        if is_replaced(closed):
            return None
        if is_revoked(closed) or is_taken_over(closed):
            self.is_degraded = True
            return self._backoff.at_the_cap_ms()
        return self._backoff.at_the_cap_ms() if is_refused(closed) else self._backoff.next_ms()

    def _after_refusal(self, refused: NegotiationFailed) -> int:
        self.status = f"negotiation failed: {refused}"
        self._observer.publish(NegotiationRefused(refused.close_code, refused.feature, refused.reason))
        if not self._has_agreed:
            raise refused
        self.is_degraded = True
        return self._backoff.at_the_cap_ms()
