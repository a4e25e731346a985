"""How a connection to the broker begins: open the socket, hear who is there, prove who we are, agree on the terms.

Without a token to resume with, the hello and the question for the terms go out together: one round trip less. With
one, the hello goes alone. If the broker still offers what was agreed on before, its answer is all that is needed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from claudemesh.daemon.credentials import Credentials, Introduction
from claudemesh.daemon.link import Link, LinkClosed, Remembered, Socket, dial, hear, say
from claudemesh.daemon.watchdog import Watchdog
from claudemesh.kernel.errors import ConfigError, InvalidRequest
from claudemesh.kernel.rhythm import (
    LEASE_TTL_MS,
    LEASE_TTL_MS_MIN,
    PING_INTERVAL_MS,
    STALE_PONG_MS,
    Rhythm,
    derive_rhythm,
)
from claudemesh.runtime.keys import verify
from claudemesh.runtime.tokens import fresh_token
from claudemesh.runtime.world import World
from claudemesh.wire import frames
from claudemesh.wire.addresses import parse_broker_url
from claudemesh.wire.negotiation import OPTIONAL, REQUIRED, Agreed, NegotiationFailed, judge_offer
from claudemesh.wire.signing import welcome_bytes

HANDSHAKE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    broker_url: str
    socket_url: str
    broker_key: str
    mesh_id: str
    instance_id: str
    lease_ttl_ms: int = LEASE_TTL_MS
    ping_interval_ms: int = PING_INTERVAL_MS
    stale_pong_ms: int = STALE_PONG_MS

    def rhythm(self, lease_ttl_ms: int) -> Rhythm:
        """Return the times to go by at a broker with this lease."""
        lease_ms = max(min(lease_ttl_ms, self.lease_ttl_ms), LEASE_TTL_MS_MIN)
        return derive_rhythm(lease_ms, self.ping_interval_ms, self.stale_pong_ms)


def socket_url(broker_url: str) -> str:
    """Return the WebSocket's address at a broker; without TLS only on this machine."""
    try:
        url = parse_broker_url(broker_url)
    except InvalidRequest as error:
        raise ConfigError(f"the broker's address, {error} (it is `broker_url` of membership.json)") from error
    return f"ws{url.removeprefix('http')}/v1/ws"


async def connect(
    settings: LinkSettings, credentials: Credentials, world: World, remembered: Remembered | None = None
) -> tuple[Link, Agreed]:
    """Return a connection and its terms; Unreachable, LinkClosed or NegotiationFailed if there is none."""
    kept = remembered or Remembered()

    async def agree(shaking: _Shaking) -> tuple[Link, Agreed]:
        token = kept.take_token()
        await shaking.introduce(credentials.sign_hello, token)
        if token is None:
            await say(shaking.socket, _QUESTION)
        ack: frames.HelloAck = await shaking.expect(frames.HelloAck)
        if token is not None and kept.agreed is not None and ack.terms and ack.terms == kept.terms:
            agreed = replace(kept.agreed, warnings=())  # they were told when it was agreed on
        else:
            if token is not None:
                await say(shaking.socket, _QUESTION)
            offer = await shaking.expect(frames.FeatureNegotiationResponse)
            agreed = judge_offer(offer.supported, offer.missing_required)
        kept.terms, kept.agreed = ack.terms, agreed
        return shaking.link(ack, kept), agreed

    return await _shake_hands(settings, world, agree)


async def connect_presence(settings: LinkSettings, sign: "Sign", world: World, remembered: Remembered) -> Link:
    """Return a connection that shows that a session is there and carries nothing else: there are no terms to it."""

    async def attach(shaking: _Shaking) -> Link:
        await shaking.introduce(sign, remembered.take_token())
        return shaking.link(await shaking.expect(frames.HelloAck), remembered)

    return await _shake_hands(settings, world, attach)


# --- step by step ------------------------------------------------------------------------------------

Sign = Callable[[Introduction], frames.Hello]
T = TypeVar("T")

_QUESTION: Final = frames.FeatureNegotiationRequest([*REQUIRED], [*OPTIONAL])


async def _shake_hands(settings: LinkSettings, world: World, go_on: "Callable[[_Shaking], Awaitable[T]]") -> T:
    challenge = fresh_token()
    socket = await dial(f"{settings.socket_url}?challenge={challenge}")
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            shaking = _Shaking(socket, settings, world)
            await shaking.meet(challenge)
            return await go_on(shaking)
    except NegotiationFailed as refused:
        await socket.close(refused.close_code, refused.feature)
        raise
    except BaseException:
        socket.transport.abort()
        raise


class _Shaking:
    """Hands being shaken over one socket."""

    def __init__(self, socket: Socket, settings: LinkSettings, world: World) -> None:
        self.socket = socket
        self._settings = settings
        self._world = world
        self._early: list[frames.FromBroker] = []
        self._welcome = frames.Welcome("", 0)

    async def meet(self, challenge: str) -> None:
        """Hear the broker out before anything is told: it must be the one that was joined."""
        settings = self._settings
        welcome: frames.Welcome = await self.expect(frames.Welcome)
        if not verify(settings.broker_key, welcome_bytes(challenge, welcome.nonce), welcome.signature):
            raise LinkClosed(frames.CLOSE_UNAUTHENTICATED, "this is not the broker that was joined")
        self._welcome = welcome

    async def introduce(self, sign: Sign, resume_token: str | None) -> None:
        about = Introduction(
            nonce=self._welcome.nonce,
            mesh_id=self._settings.mesh_id,
            instance_id=self._settings.instance_id,
            now_ms=choose_now_ms(self._world, self._welcome.server_time_ms),
            resume_token=resume_token,
        )
        await say(self.socket, sign(about))

    async def expect(self, kind: type[Any]) -> Any:  # noqa: ANN401  the frame of that kind
        """Return the next frame of a kind; what comes before it is kept: a delivery may well be the quicker."""
        while True:
            frame = await hear(self.socket)
            if isinstance(frame, kind):
                return frame
            if isinstance(frame, frames.Error):
                raise LinkClosed(frame.close_code, frame.code)
            self._early.append(frame)

    def link(self, ack: frames.HelloAck, remembered: Remembered) -> Link:
        remembered.token = ack.resume_token
        watchdog = Watchdog(self._settings.rhythm(ack.lease_ttl_ms), self._world.clock)
        return Link(self.socket, ack, self._early, remembered=remembered, watchdog=watchdog)


def choose_now_ms(world: World, server_time_ms: int) -> int:
    """Return whichever of our two times is nearer to the broker's.

    A wall clock that was set while this process runs must not keep it out, nor one that was wrong when it began.
    """
    return min(world.clock.wall_ms(), world.steady_ms(), key=lambda now_ms: abs(now_ms - server_time_ms))
