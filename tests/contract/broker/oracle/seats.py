"""Which connection gets what waits for a key, and what the brokers of one store tell each other."""

from collections.abc import Callable, Collection

from claudemesh.broker.model import Beat, Bulletin, Displaced, Identity, Meeting, Seat, Seated, Sender
from claudemesh.broker.policy import judge_meeting
from claudemesh.broker.ports import AlreadyConnected
from tests.contract.broker.oracle.world import Chair, World
from tests.doubles import ManualClock

BROKER_TTL_MS = 15_000


def open_broker(world: World, clock: ManualClock) -> int:
    if not world.brokers:  # time goes on from where the last broker left it
        origin = world.lease_kept - clock.monotonic_ms()
        world.lease_now = lambda: origin + clock.monotonic_ms()
    world.brokers_ever += 1
    world.brokers[world.brokers_ever] = world.lease_now() + BROKER_TTL_MS
    return world.brokers_ever


def close_broker(world: World, broker: int) -> None:
    world.brokers.pop(broker, None)
    world.listeners.pop(broker, None)
    world.chairs = [chair for chair in world.chairs if chair.broker != broker]


def is_newest(world: World, seat: Seat) -> bool:
    """Say whether nobody took its key over, and it was not given up."""
    tokens = [chair.token for chair in _under(world, seat.sender, seat.session_pubkey)]
    return tokens[-1:] == [seat.token]


def has_seat(world: World, sender: Sender, session_pubkey: str | None) -> bool:
    return bool(_under(world, sender, session_pubkey))


def _under(world: World, sender: Sender, session_pubkey: str | None) -> list[Chair]:
    return [chair for chair in world.chairs if (chair.sender, chair.session_pubkey) == (sender, session_pubkey)]


class OracleSeatStore:
    def __init__(self, world: World, broker: int) -> None:
        self._world = world
        self._broker = broker

    async def take(self, identity: Identity) -> Seated:
        world, sender, session = self._world, identity.sender, identity.session_pubkey
        world.check_in_force(sender)
        displaced = []
        for chair in _under(world, sender, session):
            if chair.broker != self._broker:
                is_silent = world.brokers[chair.broker] <= world.lease_now()
                meeting = judge_meeting(
                    identity.mesh.policy, chair.instance_id, identity.instance_id, is_silent=is_silent
                )
                if meeting is Meeting.REFUSED:
                    raise AlreadyConnected
                if meeting is not Meeting.SHARED:
                    displaced.append(Displaced(chair.token, meeting))
        gone = {one.token for one in displaced}
        world.chairs = [chair for chair in world.chairs if chair.token not in gone]
        world.tokens += 1
        world.chairs.append(Chair(world.tokens, self._broker, sender, session, identity.instance_id))
        return Seated(Seat(sender, session, world.tokens), displaced)

    async def leave(self, tokens: Collection[int]) -> list[int]:
        left = [chair for chair in self._world.chairs if chair.token in tokens]
        self._world.chairs = [chair for chair in self._world.chairs if chair not in left]
        return [chair.sender.member_id for chair in left]

    async def standing(self) -> set[int]:
        return {chair.token for chair in self._world.chairs if chair.broker == self._broker}

    async def present(self, mesh_id: int) -> set[int]:
        return {chair.sender.member_id for chair in self._world.chairs if chair.sender.mesh_id == mesh_id}

    async def beat(self) -> Beat:
        world, now = self._world, self._world.lease_now()
        world.lease_kept = now
        until = world.brokers.get(self._broker)
        world.brokers[self._broker] = now + BROKER_TTL_MS
        bereft: set[int] = set()
        if until is not None and now < until:  # whoever was away itself cannot know who else was
            for broker in [broker for broker, until in world.brokers.items() if until <= now]:
                bereft |= {chair.sender.member_id for chair in world.chairs if chair.broker == broker}
                close_broker(world, broker)
        return Beat(min(world.brokers) == self._broker, until is None, sorted(bereft))


class OracleBus:
    is_alone = False  # whoever opens the same folder is another broker

    def __init__(self, world: World, broker: int) -> None:
        self._world = world
        self._broker = broker

    def publish(self, bulletin: Bulletin) -> None:
        for broker, (heard, _) in self._world.listeners.items():
            if broker != self._broker:
                heard(bulletin)

    def listen(self, heard: Callable[[Bulletin], None], missed: Callable[[], None]) -> None:
        self._world.listeners[self._broker] = (heard, missed)
