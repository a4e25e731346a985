"""Leases that outlive their sockets: who is there, who came and who went."""

from collections.abc import Iterable

from claudemesh.broker.model import Sender
from claudemesh.broker.presence.model import ANNOUNCED, Because, PresenceEvent, Present, Settled, What
from claudemesh.kernel.rhythm import LEASE_TTL_MS
from tests.contract.broker.oracle.world import Stay, World


def note(world: World, stay: Stay, what: What, because: Because | None = None) -> list[PresenceEvent]:
    """Note what happened to a lease; return it, if it is to be announced."""
    if what not in ANNOUNCED:
        return []
    mesh_id, member = stay.sender.mesh_id, world.members[stay.sender.member_id]
    world.seqs[mesh_id] = world.seqs.get(mesh_id, 0) + 1
    event = PresenceEvent(
        mesh_id=mesh_id,
        seq=world.seqs[mesh_id],
        what=what,
        at=world.wall_now(),
        member_id=member.id,
        member_uid=member.uid,
        name=member.name,
        pubkey=member.pubkey,
        session_pubkey=stay.session_pubkey,
        presence_uid=stay.uid,
        because=because,
        display_name=stay.info.get("display_name", ""),
    )
    world.comings.append(event)
    return [event]


def end(world: World, stays: Iterable[Stay], because: Because) -> Settled:
    """End leases: the last one of its key is a departure, unless another instance took over."""
    events, members, seats = list[PresenceEvent](), set[int](), list[int]()
    for stay in stays:
        seats += [] if stay.seat is None else [stay.seat]
        world.chairs = [chair for chair in world.chairs if chair.token != stay.seat]
        stay.seat, stay.broker, stay.ended_at = None, None, world.wall_now()
        is_still_there = because is Because.SUPERSEDED or any(one.key == stay.key for one in world.open_stays())
        events += note(world, stay, What.ENDED if is_still_there else What.LEFT, because)
        members |= set() if stay.session_pubkey is None else {stay.sender.member_id}
    return Settled(events, sorted(members), seats)


class OraclePresenceStore:
    def __init__(self, world: World) -> None:
        self._world = world

    def stand_still(self, ms: int) -> None:
        for stay in self._world.open_stays():
            if stay.until is not None:
                stay.until += ms

    async def settle(self) -> Settled:
        world, now = self._world, self._world.lease_now()
        for stay in world.open_stays():
            if stay.until is None and stay.broker not in world.brokers:
                stay.seat, stay.broker, stay.until = None, None, now + LEASE_TTL_MS
        due = [(stay.until, place, stay) for place, stay in enumerate(world.open_stays()) if stay.until is not None]
        return end(
            world,
            [stay for until, _, stay in sorted(due, key=lambda one: one[:2]) if until <= now],
            Because.EXPIRED,
        )

    async def end(
        self, sender: Sender, session_pubkey: str | None, because: Because, instance_id: str | None = None
    ) -> Settled:
        of_key = [stay for stay in self._world.open_stays() if stay.key == (sender, session_pubkey)]
        return end(self._world, [stay for stay in of_key if instance_id in (None, stay.instance_id)], because)

    async def end_all(self, sender: Sender, because: Because) -> Settled:
        return end(self._world, [stay for stay in self._world.open_stays() if stay.sender == sender], because)

    async def present(self, mesh_id: int) -> list[Present]:
        now = self._world.lease_now()
        return [
            Present(
                member_id=stay.sender.member_id,
                session_pubkey=stay.session_pubkey,
                presence_uid=stay.uid,
                instance_id=stay.instance_id,
                is_online=stay.seat is not None,
                is_presence_only=stay.is_presence_only,
                lease_left_ms=LEASE_TTL_MS if stay.until is None else stay.until - now,
                since=stay.began_at,
                info=stay.info,
            )
            for stay in self._world.open_stays()
            if stay.sender.mesh_id == mesh_id and (stay.until is None or stay.until > now)
        ]

    async def latest(self, mesh_id: int) -> int:
        return self._world.seqs.get(mesh_id, 0)

    async def events(self, mesh_id: int, after_seq: int, limit: int) -> list[PresenceEvent]:
        told = [event for event in self._world.comings if event.mesh_id == mesh_id and event.seq > after_seq]
        return told[:limit]

    async def sweep(self, before_ms: int, limit: int) -> int:
        world = self._world
        events = [event for event in world.comings if event.at < before_ms][:limit]
        stays = [stay for stay in world.stays if stay.ended_at is not None and stay.ended_at < before_ms][:limit]
        world.comings = [event for event in world.comings if event not in events]
        world.stays = [stay for stay in world.stays if stay not in stays]
        standing = {stay.key for stay in world.stays}
        for stay in stays:
            if stay.session_pubkey is not None and stay.key not in standing:
                world.keys.pop((stay.sender.mesh_id, stay.session_pubkey), None)
        return len(events) + len(stays)
