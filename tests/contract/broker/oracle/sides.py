"""Two stores side by side: one is asked as the other is, and what they answer is put into the same words."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import msgspec

from claudemesh.broker.model import (
    Accepted,
    Beat,
    ConnectionPolicy,
    Identity,
    Meeting,
    Newcomer,
    Parcel,
    PlanPage,
    PlanSwept,
    Seat,
    Sender,
    SweepPage,
)
from claudemesh.broker.ports import AlreadyConnected, Stores
from claudemesh.kernel.clock import DAY_MS
from claudemesh.kernel.errors import MeshError
from tests.contract.broker.backends import Town, subscribe

NAMES = ("ann", "ben", "cid", "dot", "eve")  # the first one owns the mesh
SESSIONS = ("key-of-ben-s1", "key-of-ben-s2", "key-of-cid-s1")
KEYS = (*(f"key-of-{name}" for name in NAMES), *SESSIONS)
TOPICS = ("t1", "t2", "t3")
QUEUES = ("q1", "q2")
IDS = [f"id-{number}" for number in range(60)]

KEPT_MS = 365 * DAY_MS
GRACE_MS = DAY_MS

ITS_OWN = ("mesh_id", "fingerprint")  # which covers an id of the broker's, if the message answers another


class Side:
    """A mesh in a store that one broker or more have opened, and the names of what only it has numbers for."""

    def __init__(self, brokers: Sequence[Stores], town: Town) -> None:
        self.brokers = brokers
        self.stores = brokers[0]
        self.town = town
        self.ids: dict[int, str] = {}  # history id -> the broker's id
        self._labels: dict[str, str] = {}  # the broker's id -> the same word on both sides
        self.names = {member.id: name for name, member in town.members.items()}
        self._seats: list[Seat] = []  # in the order in which they were taken, also those that were given up

    @classmethod
    async def settle(
        cls, brokers: Sequence[Stores], uid: str, people: Sequence[Newcomer], policy: ConnectionPolicy
    ) -> Self:
        """Make a mesh of these people, the first of them its owner, with some topics."""
        directory = brokers[0].directory
        mesh, owner = await directory.create_mesh(uid, uid.lower(), people[0])
        mesh = await directory.set_mesh(Sender(mesh.id, owner.id), policy, None)
        joined = [await directory.join(mesh.id, one, "invite", owner.pubkey, 1000) for one in people[1:]]
        side = cls(brokers, Town(mesh, {member.name: member for member in (owner, *joined)}))
        for topic in TOPICS:
            await subscribe(side.stores, side.town, topic, *NAMES[:3])
        return side

    def __getitem__(self, name: str) -> Sender:
        return self.town[name]

    def id_of(self, history_id: int) -> str:
        return self.ids.get(history_id, "unknown")

    # --- what takes more than one call ---

    async def take(self, broker: int, name: str, session: str | None, instance: str) -> list[tuple[int, Meeting]]:
        """Take a seat; return how long ago those were taken that have to go for it, and why."""
        identity = Identity(self.town.mesh, self.town.members[name], instance, session)
        seated = await self.brokers[broker].seats.take(identity)
        tokens = [seat.token for seat in reversed(self._seats)]
        self._seats.append(seated.seat)
        return sorted((tokens.index(one.token), one.meeting) for one in seated.displaced)

    async def leave(self, number: int) -> list[str]:
        return [self.names[id_] for id_ in await self.stores.seats.leave([self.seat(number).token])]

    async def beat(self) -> list[Beat]:
        return [await broker.seats.beat() for broker in self.brokers]

    def seat(self, number: int) -> Seat:
        """Return the last seat but so many."""
        return self._seats[-1 - number] if number < len(self._seats) else Seat(self["ann"], None, 0)

    async def drain(self, seat: Seat, count_max: int, bytes_max: int) -> list[Parcel]:
        """Return all that waits for a seat, page by page."""
        parcels: list[Parcel] = []
        after, upto = -1, 0
        while after != upto:
            after = upto
            page = await self.stores.deliveries.page(seat, after, count_max, bytes_max)
            parcels, upto = parcels + page.parcels, page.upto
        return parcels

    async def sweep(self, now_ms: int, limit: int) -> tuple[int, int, int]:
        """Delete what is too old; return how many messages, dead letters and ids that made."""
        messages = dead_letters = ids = after = 0
        is_done = False
        while not is_done:
            swept = await self.stores.upkeep.sweep_messages(
                SweepPage(
                    mesh_id=self.town.mesh.id,
                    after_history_id=after,
                    before_ms=now_ms - KEPT_MS,
                    buried_before_ms=now_ms - GRACE_MS,
                    now_ms=now_ms,
                    limit=limit,
                )
            )
            messages, dead_letters = messages + swept.messages, dead_letters + swept.dead_letters
            after, is_done = swept.after_history_id, swept.is_done
        while found := await self.stores.upkeep.sweep_ids(now_ms, limit):
            ids += found
        while await self.stores.upkeep.sweep_events(now_ms - KEPT_MS, limit):
            pass
        return messages, dead_letters, ids

    async def sweep_planned(self, history_ids: Sequence[int], now_ms: int) -> PlanSwept:
        return await self.stores.upkeep.sweep_planned(
            PlanPage(
                mesh_id=self.town.mesh.id,
                planned=[(history_id, self.id_of(history_id)) for history_id in history_ids],
                before_ms=now_ms - KEPT_MS,
                buried_before_ms=now_ms - GRACE_MS,
                now_ms=now_ms,
            )
        )

    # --- in the same words ---

    async def answer(self, asked: Awaitable[object]) -> object:
        try:
            return self.plain(await asked)
        except MeshError as refused:
            return self.plain(refused)
        except AlreadyConnected:
            return "already connected"

    def plain(self, found: object) -> object:
        """Return what was found without the numbers and ids that every store chooses by itself."""
        if isinstance(found, MeshError):
            return found.code, found.extras.get("reason")
        if isinstance(found, Parcel):
            return self.plain(msgspec.json.decode(found.payload)), found.client_message_id, found.to_session
        if isinstance(found, Accepted):
            self.ids[found.history_id] = found.broker_message_id
            self._labels[found.broker_message_id] = f"message {found.history_id}"
        if isinstance(found, msgspec.Struct):
            found = msgspec.structs.asdict(found)
        if isinstance(found, dict):
            return {key: self._plain_field(key, value) for key, value in found.items() if key not in ITS_OWN}
        if isinstance(found, list | tuple):
            return [self.plain(one) for one in found]
        return self._labels.get(found, found) if isinstance(found, str) else found

    def _plain_field(self, key: object, value: object) -> object:
        if key == "recipients" and isinstance(value, tuple):
            return {self.names[id_] for id_ in value}
        if key in ("id", "sender_id") and isinstance(value, int):
            return self.names.get(value)
        return self.plain(value)


Call = Callable[[Side], Awaitable[object]]
