"""One registered session: its key, what it says of itself, and the presence-only connection that shows it is there.

The connection is made again with jitter whenever it ends, and resumed where the broker allows it. It is not the
daemon's own: nothing but presence goes over it. To the broker the key at this daemon is one instance, however often
the daemon starts anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from claudemesh.daemon.connector import STOOD_MS, Backoff, is_refused, is_replaced, is_revoked
from claudemesh.daemon.credentials import Introduction, attest, sign_presence
from claudemesh.daemon.events import SessionMoved, Warned
from claudemesh.daemon.handshake import LinkSettings, connect_presence
from claudemesh.daemon.link import GOODBYE_S, Link, LinkClosed, NotStored, Remembered, Unreachable
from claudemesh.daemon.processes import Process
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.keys import KeyPair
from claudemesh.runtime.world import World
from claudemesh.wire import frames
from claudemesh.wire.frames import (
    ATTESTATION_MAX_MS,
    PRESENCE_END,
    Attestation,
    DeliverItem,
    Hello,
    ReceiptItem,
    SessionInfo,
)
from claudemesh.wire.negotiation import Agreed

KEY_CHARS: Final = 16  # of its key, in the id of its instance

Returned = Callable[[str], Awaitable[None]]  # called with the key of a session that was away and is back


class Status(StrEnum):
    CONNECTING = "connecting"
    ONLINE = "online"
    OFFLINE = "offline"  # between two tries; its lease may well stand
    REPLACED = "replaced"  # another instance speaks with its key; it stays away until it is registered again
    REVOKED = "revoked"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a session was registered with."""

    process: Process
    info: SessionInfo
    attestation: Attestation | None = None  # the caller's; without one the daemon makes its own


def derive_instance(daemon: str, pubkey: str) -> str:
    """Return the id of a session's registration: the same after a restart of its daemon, another at another one."""
    return f"{daemon}.{pubkey[:KEY_CHARS]}"


class Session:
    def __init__(  # noqa: PLR0913  each of another kind
        self,
        keys: KeyPair,
        member: KeyPair,
        link: LinkSettings,
        world: World,
        said: Registration,
        *,
        returned: Returned,
    ) -> None:
        """Take the session's key and its member's, which vouches for it; `link` is the daemon's, as a pattern."""
        self._keys = keys
        self._member = member
        self._settings = replace(link, instance_id=derive_instance(link.instance_id, keys.pubkey))
        self._world = world
        self._backoff = Backoff(world.roll)
        self._remembered = Remembered()
        self._returned = returned
        self._task: asyncio.Task[None] | None = None
        self._link: Link | None = None
        self._is_hello_out = False  # and not answered
        self._is_away = False  # it was there, and its connection ended for no reason of ours
        self._again = asyncio.Event()  # connect anew, at once
        self._moved = asyncio.Event()
        self._renew_at_ms: int | None = None  # by the steady clock
        self.said = said
        self.since_ms = world.steady_ms()
        self.status = Status.CONNECTING
        self.presence_id: str | None = None

    @property
    def pubkey(self) -> str:
        return self._keys.pubkey

    # --- what others ask of it ---------------------------------------------------------------------

    def start(self) -> bool:
        """Begin to connect, also again if it was to stay away; False if it is at it."""
        if self._task is not None and not self._task.done():
            return False
        self.presence_id, self._is_away = None, False
        self._move(Status.CONNECTING)
        self._task = asyncio.get_running_loop().create_task(self.run())
        return True

    async def stop(self) -> None:
        """Close its connection, and connect no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def until_settled(self) -> None:
        """Return once its first try has come to something."""
        while self.status is Status.CONNECTING:
            await self._moved.wait()

    def change(self, said: Registration) -> None:
        """Go by what is said now; the others see it with the next hello, which takes the connection over."""
        is_news = said.info != self.said.info
        self.said = said
        if is_news:
            self._reconnect()

    def renew_if_due(self) -> None:
        """Connect anew before what vouches for the key expires."""
        if self._renew_at_ms is not None and self._world.steady_ms() >= self._renew_at_ms:
            self._renew_at_ms = None
            self.said = replace(self.said, attestation=None)
            self._reconnect()

    async def say_goodbye(self) -> bool:
        """Tell the broker that this session ends, over its own connection; say whether it took note.

        From now on it does not connect again. A hello that is out is waited for: what it begins has to end as well.
        """
        self.status = Status.ENDED
        self._wake()
        try:
            async with asyncio.timeout(GOODBYE_S):
                while self._is_hello_out:
                    await self._moved.wait()
                if self._link is None:
                    return False
                await self._link.call(PRESENCE_END, {})
        except (MeshError, TimeoutError):
            return False
        return True

    def _reconnect(self) -> None:
        self._again.set()
        self._move(Status.CONNECTING)
        if self._link is not None:
            self._link.abort()

    # --- its life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, stay, and come back, until cancelled, or until it has ended or is to stay away."""
        while True:
            self._again.clear()
            wait_ms = await self._try_once()
            self._link = None
            if wait_ms is None or self.status is Status.ENDED:
                return
            self._is_away |= self.presence_id is not None and not self._again.is_set()
            self._move(Status.CONNECTING if self._again.is_set() else Status.OFFLINE)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._again.wait()

    async def _try_once(self) -> int | None:
        try:
            await self._once()
        except LinkClosed as closed:
            return self._after_close(closed)
        except (Unreachable, NotStored, frames.BadFrame, OSError, TimeoutError):
            pass  # one more try that came to nothing; the daemon's own connection says why
        except Exception as error:  # noqa: BLE001  whatever it is, a session is not given up for it
            self._world.observer.publish(Warned("session_connection", repr(error)[:300]))
        return self._backoff.next_ms()

    async def _once(self) -> None:
        link = await self._greet()
        clock = self._world.clock
        began_ms = clock.monotonic_ms()
        self._link, self.presence_id = link, link.hello_ack.presence_id
        self._move(Status.ONLINE)
        if self._again.is_set():
            link.abort()  # what is said has changed since the hello was signed
        try:
            if self._is_away:
                self._is_away = False
                await self._returned(self.pubkey)
            await link.run(_NOBODY)
        finally:
            await link.close()
            if clock.monotonic_ms() - began_ms >= STOOD_MS:
                self._backoff.succeeded()

    async def _greet(self) -> Link:
        try:
            return await connect_presence(self._settings, self._sign, self._world, self._remembered)
        finally:
            self._is_hello_out = False
            self._wake()

    def _sign(self, about: Introduction) -> Hello:
        self._is_hello_out = True
        attestation = self.said.attestation
        if attestation is None or attestation.expires_at <= about.now_ms:
            attestation = attest(self._member, self.pubkey, about.now_ms + ATTESTATION_MAX_MS)
        left_ms = attestation.expires_at - about.now_ms
        self._renew_at_ms = self._world.steady_ms() + left_ms * 3 // 4
        return sign_presence(about, self._keys, attestation, self.said.info)

    def _after_close(self, closed: LinkClosed) -> int | None:
        if is_replaced(closed):
            self._move(Status.REPLACED)
            return None
        if is_revoked(closed):
            self._move(Status.REVOKED)
            return None
        if closed.code == frames.CLOSE_UNAUTHENTICATED:
            self.said = replace(self.said, attestation=None)  # if it was the caller's that was not good: ours is
        return self._backoff.at_the_cap_ms() if is_refused(closed) else self._backoff.next_ms()

    def _move(self, status: Status) -> None:
        if self.status not in (status, Status.ENDED):
            self.status = status
            self._world.observer.publish(SessionMoved(self.pubkey, status))
        self._wake()

    def _wake(self) -> None:
        """Have those look who wait for it to move."""
        self._moved.set()
        self._moved = asyncio.Event()


class _Nobody:
    """Takes what a presence-only connection brings: nothing that matters."""

    async def connected(self, link: Link, agreed: Agreed) -> None: ...

    async def disconnected(self) -> None: ...

    async def deliver(self, items: Sequence[DeliverItem]) -> None:
        raise NotImplementedError("a presence-only connection carries no messages")

    def refused(self, reasons: Sequence[str]) -> None: ...

    async def receipts(self, items: Sequence[ReceiptItem]) -> None: ...

    async def event(self, name: str, data: dict[str, Any]) -> None: ...


_NOBODY: Final = _Nobody()
