"""Who comes and goes, each once: the broker numbers it without gaps, and this daemon notes how far it has told.

The number is noted in the very commit that stores what is told. Whatever is missing, after a connection that was
lost or an event that was, is asked for; whatever comes twice is dropped. What a broker does not number (an older
one) is told as it comes.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from claudemesh.daemon.events import InboundRefused, PeerSeen, Warned
from claudemesh.daemon.feed import Feed
from claudemesh.daemon.ports import BrokerLink, Happened, InboxStore
from claudemesh.kernel.errors import BrokerUnreachable, MeshError
from claudemesh.runtime.world import World
from claudemesh.wire.frames import Number
from claudemesh.wire.instants import render_instant

OF_PEERS: Final = frozenset({"peer_joined", "peer_left"})
WAITING_MAX: Final = 256  # events that wait for their turn; beyond it they are asked for

_INSTANT_MAX: Final = 253_402_300_799_999  # the last of the year 9999


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One arrival or departure, as the broker tells it."""

    name: str = ""
    pubkey: str = ""
    session_pubkey: str | None = None
    display_name: str | None = None
    seq: Annotated[int, msgspec.Meta(ge=1)] | None = None
    at: Annotated[int, msgspec.Meta(ge=0, le=_INSTANT_MAX)] | None = None
    what: str = ""

    def as_shown(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "pubkey": self.pubkey,
            "session_pubkey": self.session_pubkey,
            "display_name": self.display_name or None,
            "seq": self.seq,
        } | ({} if self.at is None else {"at": render_instant(self.at)})


class _Missed(msgspec.Struct):
    """The broker's answer to `presence`: all up to `seq`, but what it no longer keeps if it is not complete.

    Unless it is the last page, there is more from there on.
    """

    seq: Number
    events: list[Change] = []
    is_complete: bool = True
    is_last: bool = True


class PresenceLog:
    def __init__(self, inbox: InboxStore, feed: Feed, world: World, own: tuple[str, str | None]) -> None:
        """Take the inbox that the events are kept in, and who we are ourselves: our keys."""
        self._inbox = inbox
        self._feed = feed
        self._world = world
        self._own = own
        self._turn = asyncio.Lock()  # one after the other, in the order they came
        self._waiting = 0
        self._is_behind = False
        self._cursor: int | None = None
        self._link: BrokerLink | None = None

    async def connected(self, link: BrokerLink) -> None:
        """Ask what was missed; the very first time, only where things stand."""
        async with self._turn:
            self._link = link
            self._cursor = await self._inbox.presence_seq()
            await self._catch_up()

    def disconnected(self) -> None:
        self._link = None

    async def happened(self, what: str, data: dict[str, Any]) -> None:
        """Take in one event of the broker's."""
        try:
            change = msgspec.convert(data | {"what": what}, Change)
        except msgspec.ValidationError as error:
            self._world.observer.publish(InboundRefused(f"{what}: {error}"[:300]))
            return
        if self._waiting >= WAITING_MAX:
            self._is_behind = True
            return
        self._waiting += 1
        try:
            async with self._turn:
                await self._take(change)
                if self._is_behind:
                    await self._catch_up()
        except BrokerUnreachable:
            pass  # what was missed is asked for on the next connection
        finally:
            self._waiting -= 1

    async def _take(self, change: Change) -> None:
        if change.seq is None:
            await self._store([change], self._cursor)
        elif self._cursor is None or change.seq == self._cursor + 1:
            await self._store([change], change.seq)
        elif change.seq > self._cursor:
            await self._catch_up()

    async def _catch_up(self) -> None:
        """Fetch all that is missing, in order, and be where the broker is."""
        self._is_behind = False
        while self._link is not None and await self._catch_up_by_a_page(self._link):
            pass

    async def _catch_up_by_a_page(self, link: BrokerLink) -> bool:
        """Fetch what is missing next; say whether there is more."""
        after = self._cursor
        try:
            answer = msgspec.convert(await link.call("presence", {"after": after}), _Missed)
        except BrokerUnreachable:
            raise
        except (MeshError, msgspec.ValidationError):
            return False  # a broker that numbers nothing, or cannot now: the next event shows what is missing
        fresh = [one for one in answer.events if after is not None and one.seq is not None and one.seq > after]
        await self._store(fresh, answer.seq)
        if not answer.is_complete:
            self._world.observer.publish(Warned("presence_missed", f"between {after} and {answer.seq}"))
        return not answer.is_last and after is not None and answer.seq > after

    async def _store(self, changes: Sequence[Change], upto: int | None) -> None:
        """Keep what is to be told, and how far that is, in one commit, however long there is no room for it."""
        if not changes and upto == self._cursor:
            return
        now_ms = self._world.steady_ms()
        told = [one for one in changes if one.what in OF_PEERS and (one.pubkey, one.session_pubkey) != self._own]
        happened = [Happened(one.what, now_ms, one.as_shown()) for one in told]
        if self._link is None:
            raise BrokerUnreachable("the connection ended")
        await self._link.store(partial(self._write, happened, upto))
        for one in told:
            self._world.observer.publish(PeerSeen(one.what, one.name, one.pubkey))

    async def _write(self, happened: Sequence[Happened], upto: int | None) -> None:
        entries = await self._inbox.append_presence(happened, upto)
        self._cursor = upto
        self._feed.told(entries)
