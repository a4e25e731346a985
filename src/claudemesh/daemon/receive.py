"""The side that faces the broker: what a new connection changes, and what arrives over it.

A message is acknowledged after the inbox holds it, and only a row that was new is told to anybody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from claudemesh.daemon import terms as daemon_terms
from claudemesh.daemon.directory import Directory
from claudemesh.daemon.drain import Drain
from claudemesh.daemon.events import InboundRefused, MessageReceived
from claudemesh.daemon.feed import Feed
from claudemesh.daemon.link import GOODBYE_S
from claudemesh.daemon.model import Destination, Member
from claudemesh.daemon.ports import BrokerLink, InboxStore, OutboxStore
from claudemesh.daemon.presence import OF_PEERS, PresenceLog
from claudemesh.daemon.service import Conditions
from claudemesh.daemon.settings import LiveConfig
from claudemesh.daemon.terms import Terms
from claudemesh.daemon.unfinished import HELD_MAX, Unfinished
from claudemesh.kernel.clock import HOUR_MS
from claudemesh.kernel.errors import BrokerUnreachable, DependencyError, MaxAgeAboveWindow, MeshError
from claudemesh.runtime import points
from claudemesh.runtime.world import World
from claudemesh.wire.frames import CLOSE_FEATURE_PARAM_BELOW_FLOOR, PRESENCE_END, DeliverItem, ReceiptItem, sift
from claudemesh.wire.negotiation import DEDUPE, Agreed, NegotiationFailed

_OF_MEMBERS: Final = frozenset({"member_joined", "member_left", "member_renamed"})

BEFORE_INBOX = points.declare("daemon.before_inbox")
BEFORE_ACK = points.declare("daemon.before_ack")


class _Directory(msgspec.Struct):
    """The broker's answer to `directory`."""

    members: list[Member]


class _Known(msgspec.Struct):
    """The broker's answer to `resolve`."""

    known: list[str]


class _Replay(msgspec.Struct):
    """The broker's answer to `replay`; without a number it was the last page."""

    items: list[Any]
    upto_history_id: int | None


async def _nothing() -> None: ...


class Receiving:
    def __init__(  # noqa: PLR0913  all by name
        self,
        *,
        outbox: OutboxStore,
        inbox: InboxStore,
        feed: Feed,
        presence: PresenceLog,
        live: LiveConfig,
        world: World,
    ) -> None:
        self._feed = feed
        self._presence = presence
        self._outbox = outbox
        self._inbox = inbox
        self._live = live
        self._world = world
        self._link: BrokerLink | None = None
        self._online = asyncio.Event()
        self._restoring = asyncio.Lock()  # what is new waits until what is old is there
        self._unfinished = Unfinished(world.observer)
        self.directory = Directory()
        self.conditions = Conditions()
        self.is_ready = False  # connected, and up to date on who is in the mesh
        self.after_connecting: Callable[[], Awaitable[None]] = _nothing  # what others have to tell the broker
        self.terms = Terms()
        self.drain = Drain(outbox, world, self.max_age_ms)

    async def start(self) -> None:
        """Begin where the last run ended: its terms, its directory, its rows. Refuse an age that is not safe."""
        self._go_by(daemon_terms.parse(await self._outbox.recall(daemon_terms.REMEMBERED_AS)))
        self.directory.replace(await self._outbox.members())
        self._unfinished.hold(reversed(await self._outbox.newest_done(HELD_MAX)))
        await self.drain.start()

    def max_age_ms(self) -> int:
        return self.terms.max_age(self._live.config.outbox).hours * HOUR_MS

    async def lag_ms(self) -> int:
        """Return how long the oldest waiting row has waited."""
        oldest = await self._outbox.oldest_open()
        return 0 if oldest is None else max(self._world.steady_ms() - oldest, 0)

    def _go_by(self, terms: Terms) -> None:
        terms.max_age(self._live.config.outbox)
        self.terms = terms
        self.conditions.inline_bytes = terms.inline_bytes

    # --- for those who accept ----------------------------------------------------------------------

    @property
    def link(self) -> BrokerLink:
        """The connection, or BrokerUnreachable."""
        if self._link is None:
            raise BrokerUnreachable("this daemon is not connected to its broker")
        return self._link

    async def until_online(self) -> None:
        await self._online.wait()

    def queued(self, destinations: Collection[Destination]) -> None:
        self.drain.queued(destinations)

    async def refresh_directory(self, keys: Sequence[str] = ()) -> None:
        try:
            answer = await self.link.call("directory", {})
            members = msgspec.convert(answer, _Directory).members
            if keys:
                known = await self.link.call("resolve", {"pubkeys": list(keys)})
                self.directory.learn(msgspec.convert(known, _Known).known)
        except (DependencyError, msgspec.ValidationError):
            return
        self.directory.replace(members)
        await self._outbox.remember_members(members)

    # --- the link's receiver -----------------------------------------------------------------------

    async def connected(self, link: BrokerLink, agreed: Agreed) -> None:
        terms = daemon_terms.from_agreed(agreed)
        try:
            self._go_by(terms)
        except MaxAgeAboveWindow as error:
            raise NegotiationFailed(CLOSE_FEATURE_PARAM_BELOW_FLOOR, DEDUPE, str(error)) from error
        self._link = link
        self._online.set()
        self.conditions.is_online = True
        self.drain.connected(link)
        async with self._restoring:
            await self._restore(link)
        await self._outbox.remember(daemon_terms.REMEMBERED_AS, daemon_terms.render(terms))
        await self.refresh_directory()
        await self._presence.connected(link)
        self.is_ready = True
        await self._unfinished.ask(link)
        await self.after_connecting()

    async def disconnected(self) -> None:
        self._link = None
        self._online.clear()
        self.is_ready = False
        self.conditions.is_online = False
        self.drain.disconnected()
        self._presence.disconnected()

    async def say_goodbye(self) -> None:
        """Leave for good, in the eyes of the others too: now, and not when the lease ends."""
        with suppress(MeshError, TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self.link.call(PRESENCE_END, {})

    async def _restore(self, link: BrokerLink) -> None:
        """Fetch again what an inbox held that was lost, page by page; a restart goes on where it was."""
        upto = await self._inbox.restored_upto()
        while upto is not None:
            answer = await link.call("replay", {"after_history_id": upto})
            page = msgspec.convert(answer, _Replay)
            upto, delivered = page.upto_history_id, sift(page.items)
            self.refused(delivered.refused)
            await link.store(partial(self._inbox.restore, delivered.items, self._world.steady_ms(), upto))

    async def deliver(self, items: Sequence[DeliverItem]) -> None:
        async with self._restoring:
            points.reach(BEFORE_INBOX)
            fresh = await self._inbox.receive(items, self._world.steady_ms())
        points.reach(BEFORE_ACK)
        self._feed.received(fresh)
        for message in fresh:
            self._world.observer.publish(
                MessageReceived(
                    message.seq,
                    message.client_message_id,
                    message.broker_message_id,
                    message.sender_pubkey,
                    message.accepted_at,
                    message.received_at,
                )
            )

    def refused(self, reasons: Sequence[str]) -> None:
        for reason in reasons:
            self._world.observer.publish(InboundRefused(reason[:300]))

    async def receipts(self, items: Sequence[ReceiptItem]) -> None:
        """Pass a hint on. Nothing is taken from it: whoever wants to know asks."""
        for item in items:
            self._unfinished.move(item.client_message_id, item.state)

    async def event(self, name: str, data: dict[str, Any]) -> None:
        if name in _OF_MEMBERS:
            await self.refresh_directory()
        if name in OF_PEERS:
            await self._presence.happened(name, data)
