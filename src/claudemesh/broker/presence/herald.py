"""Ends the leases that ran out, and tells those who are connected who came and who went.

What is told is read from the store or was just committed there, and has a number that is gapless in its mesh:
whoever misses one asks for it. So it may be told twice or late, and is seen once.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from claudemesh.broker.events import PeerChanged, TaskFailed
from claudemesh.broker.ports import PresenceStore
from claudemesh.broker.presence.model import PresenceEvent, Settled, What
from claudemesh.broker.presence.standstill import Standstill
from claudemesh.broker.switchboard import Switchboard
from claudemesh.kernel.rhythm import Rhythm
from claudemesh.runtime.observe import Observer

EVENTS_MAX: Final = 5_000  # that are told to one who missed them; of more it learns the newest
EVENTS_PAGE: Final = 500  # of them in one answer: others wait for what it takes to make it

NAMES: Final = {What.JOINED: "peer_joined", What.LEFT: "peer_left"}


class Herald:
    def __init__(
        self, store: PresenceStore, board: Switchboard, rhythm: Rhythm, standstill: Standstill, observer: Observer
    ) -> None:
        self._store = store
        self._board = board
        self._rhythm = rhythm
        self._standstill = standstill
        self._observer = observer
        self._told: dict[int, int] = {}  # up to which number those who are connected here were told, by mesh

    async def run(self) -> None:
        """End what runs out, until cancelled."""
        while True:
            await asyncio.sleep(self._rhythm.tick_ms / 1000)
            try:
                await self.settle()
            except Exception as error:  # noqa: BLE001  whatever it was, the next turn comes
                self._observer.publish(TaskFailed.of("settle", error))

    async def settle(self) -> None:
        """End what ran out, page by page; each is told before the next."""
        is_done = False
        while not is_done:
            self._standstill.notice()  # before the store compares leases with its clock
            is_done = self.tell(await self._store.settle())

    def tell(self, settled: Settled) -> bool:
        """Tell what came of it; return whether that was all."""
        self._board.dismiss(settled.seats)
        self.announce(settled.events)
        if settled.members:
            self._board.rewind(settled.members)  # what named their sessions is theirs now
        return settled.is_done

    def announce(self, events: Sequence[PresenceEvent]) -> None:
        """Tell everybody of what was committed just now, here and at other brokers."""
        for event in events:
            self.note(event.mesh_id, event.seq)
            self._observer.publish(
                PeerChanged(NAMES[event.what], event.member_uid, event.session_pubkey is not None)
            )
            self._board.announce(event.mesh_id, NAMES[event.what], render_event(event))

    def note(self, mesh_id: int, seq: int) -> None:
        """Take note of what was told here."""
        self._told[mesh_id] = max(seq, self._told.get(mesh_id, 0))

    async def look_over(self, mesh_ids: Iterable[int]) -> None:
        """Tell those who are connected here what another broker told and we did not hear."""
        for mesh_id in mesh_ids:
            told, latest = self._told.get(mesh_id), await self._store.latest(mesh_id)
            if told is not None and told < latest:
                for event in await self._store.events(mesh_id, max(told, latest - EVENTS_MAX), EVENTS_MAX):
                    self._board.tell_here(mesh_id, NAMES[event.what], render_event(event))
            self.note(mesh_id, latest)  # only now: what could not be read is told the next time

    async def missed(self, mesh_id: int, after: int | None) -> dict[str, Any]:
        """Return what somebody missed who has seen all up to a number, a page of it.

        None has seen nothing, and begins now. Unless it was the last page, `seq` is the number to go on from.
        """
        latest = await self._store.latest(mesh_id)
        self._told.setdefault(mesh_id, latest)  # of what comes after it, `look_over` finds what is not heard
        if after is None or after >= latest:
            is_complete = after is None or after == latest
            return {"seq": latest, "events": [], "is_complete": is_complete, "is_last": True}
        events = await self._store.events(mesh_id, max(after, latest - EVENTS_MAX), EVENTS_PAGE)
        seq = events[-1].seq if events else latest
        return {
            "seq": seq,
            "events": [{"what": NAMES[event.what], **render_event(event)} for event in events],
            "is_complete": len(events) == seq - after,
            "is_last": len(events) < EVENTS_PAGE,
        }


def render_event(event: PresenceEvent) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "name": event.name,
        "pubkey": event.pubkey,
        "member_id": event.member_uid,
        "session_pubkey": event.session_pubkey,
        "display_name": event.display_name,
        "at": event.at,
    }
