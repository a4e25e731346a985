"""Two stores side by side: one is asked as the other is, and what they answer is put into the same words."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import msgspec

from claudemesh.broker.model import (
    Accepted,
    Beat,
    ConnectionPolicy,
    Identity,
    Newcomer,
    Parcel,
    PlanPage,
    PlanSwept,
    Seat,
    Sender,
    SweepPage,
)
from claudemesh.broker.ports import AlreadyConnected, KeyTaken, NotResumed, Stores
from claudemesh.broker.presence.model import (
    Arrival,
    Because,
    Departure,
    PresenceEvent,
    Present,
    ResumeClaim,
    Seated,
    Settled,
)
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
        self._seated: list[Seated] = []  # in the order in which they were taken, also those that were given up

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

    async def take(  # noqa: PLR0913  by their places
        self,
        broker: int,
        name: str,
        session: str | None,
        instance: str,
        resumes: int | None = None,
        *,
        must_resume: bool = False,
        is_presence_only: bool = False,
    ) -> object:
        """Take a seat, resuming what one of the last seats carries; say of those that go how long ago they came."""
        identity = Identity(
            self.town.mesh, self.town.members[name], instance, session, is_presence_only=is_presence_only
        )
        claim = None
        if resumes is not None and resumes < len(self._seated):
            old = self._seated[-1 - resumes]
            claim = ResumeClaim(old.presence_uid, old.lease_token)
        seated = await self.brokers[broker].seats.take(Arrival(identity, claim, must_resume))
        tokens = [one.seat.token for one in reversed(self._seated)]
        self._seated.append(seated)
        self._labels.setdefault(seated.presence_uid, f"lease {len(self._seated)}")
        return (
            sorted((tokens.index(one.token), one.meeting) for one in seated.displaced),
            sorted((one.instance_id, one.meeting) for one in seated.met),
            self.plain(seated.presence_uid),
            seated.lease_token,
            seated.is_resumed,
            self._plain_settled(Settled(seated.events, seated.bereft)),
        )

    async def leave(self, number: int, silent_ms: int) -> list[str]:
        departure = Departure(self.seat(number).token, silent_ms)
        return [self.names[id_] for id_ in await self.stores.seats.leave([departure])]

    async def settle_leases(self, broker: int) -> object:
        return self._plain_settled(await self.brokers[broker].presence.settle())

    async def end(self, name: str, session: str | None) -> object:
        return self._plain_settled(await self.stores.presence.end(self[name], session, Because.GOODBYE))

    async def end_all(self, name: str) -> object:
        return self._plain_settled(await self.stores.presence.end_all(self[name], Because.REVOKED))

    async def beat(self) -> list[Beat]:
        return [await broker.seats.beat() for broker in self.brokers]

    def seat(self, number: int) -> Seat:
        """Return the last seat but so many."""
        return self._seated[-1 - number].seat if number < len(self._seated) else Seat(self["ann"], None, 0)

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
        except (AlreadyConnected, KeyTaken, NotResumed) as refused:
            return type(refused).__name__

    def plain(self, found: object) -> object:
        """Return what was found without the numbers and ids that every store chooses by itself."""
        if isinstance(found, MeshError):
            return found.code, found.extras.get("reason")
        if isinstance(found, Parcel):
            return self.plain(msgspec.json.decode(found.payload)), found.client_message_id, found.to_session
        if isinstance(found, PresenceEvent):  # a server has its own clock
            found = msgspec.structs.replace(found, at=0, member_id=0)
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

    def plain_present(self, one: Present) -> object:
        """Return it without what passes by itself."""
        left_ms = one.lease_left_ms if one.is_online else None
        kept = (one.session_pubkey, one.instance_id, one.is_online, one.is_presence_only, left_ms, one.info)
        return self.names[one.member_id], self.plain(one.presence_uid), *kept

    def _plain_settled(self, settled: Settled) -> object:
        return self.plain(settled.events), [self.names[id_] for id_ in settled.members]

    def _plain_field(self, key: object, value: object) -> object:
        if key == "recipients" and isinstance(value, tuple):
            return {self.names[id_] for id_ in value}
        if key in ("id", "sender_id") and isinstance(value, int):
            return self.names.get(value)
        return self.plain(value)


Call = Callable[[Side], Awaitable[object]]
