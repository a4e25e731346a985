"""Which connection gets what waits for a key, and what the brokers of one store tell each other."""

from collections.abc import Callable, Collection

from claudemesh.broker import policy
from claudemesh.broker.model import Beat, Bulletin, Seat, Sender
from claudemesh.broker.ports import AlreadyConnected, KeyTaken, NotResumed
from claudemesh.broker.presence.model import Arrival, Because, Departure, Seated
from claudemesh.broker.presence.policy import Refused, is_left_to_member, judge_attach
from claudemesh.kernel.errors import TooManySessions
from claudemesh.kernel.rhythm import LEASE_TTL_MS
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.ids import UlidSource
from tests.contract.broker.oracle.presence import end, note
from tests.contract.broker.oracle.world import Chair, Stay, World
from tests.doubles import ManualClock

BROKER_TTL_MS = 15_000

ulids = UlidSource(SystemClock())


def open_broker(world: World, clock: ManualClock) -> int:
    if not world.brokers:  # time goes on from where the last broker left it
        origin = world.lease_kept - clock.monotonic_ms()
        world.lease_now = lambda: origin + clock.monotonic_ms()
        world.wall_now = clock.wall_ms
    world.brokers_ever += 1
    world.brokers[world.brokers_ever] = world.lease_now() + BROKER_TTL_MS
    return world.brokers_ever


def close_broker(world: World, broker: int) -> None:
    world.brokers.pop(broker, None)
    world.listeners.pop(broker, None)
    world.chairs = [chair for chair in world.chairs if chair.broker != broker]


def is_newest(world: World, seat: Seat) -> bool:
    """Say whether nobody took its key over, and it was not given up."""
    key = (seat.sender, seat.session_pubkey)
    getting = [chair for chair in world.chairs if not chair.is_presence_only]
    return [chair.token for chair in getting if (chair.sender, chair.session_pubkey) == key][-1:] == [seat.token]


def is_delivering(world: World, sender: Sender, session_pubkey: str | None) -> bool:
    """Say whether a session gets what names it itself, also if only on its return."""
    key = (sender, session_pubkey)
    return any(stay.key == key and not stay.is_presence_only for stay in world.open_stays())


def _check_session(world: World, sender: Sender, session_pubkey: str) -> None:
    """Refuse a new session that is one too many, or whose key is another's; else note whose it is."""
    theirs = [stay for stay in world.open_stays() if stay.sender == sender and stay.session_pubkey is not None]
    if len(theirs) >= policy.SESSIONS_MAX:
        raise TooManySessions
    key = (sender.mesh_id, session_pubkey)
    if key not in world.keys:
        world.keys[key] = sender.member_id
        world.session_keys.add(key)
    if world.keys[key] != sender.member_id:
        raise KeyTaken


class OracleSeatStore:
    def __init__(self, world: World, broker: int) -> None:
        self._world = world
        self._broker = broker

    async def start(self) -> None: ...

    async def take(self, arrival: Arrival) -> Seated:
        world, identity = self._world, arrival.identity
        sender, session, now = identity.sender, identity.session_pubkey, world.lease_now()
        world.check_in_force(sender)
        stays = {id(stay): stay for stay in world.open_stays() if stay.key == (sender, session)}
        standing = [stay.as_standing() for stay in stays.values()]
        attach = judge_attach(standing, arrival, uid=ulids.ulid(), now_ms=now, ttl_ms=LEASE_TTL_MS)
        if arrival.must_resume and (isinstance(attach, Refused) or not attach.resumed):
            raise NotResumed
        if isinstance(attach, Refused):
            raise AlreadyConnected(attach.instance_id)
        if session is not None and attach.goes_on is None:
            _check_session(world, sender, session)
        left = {sender.member_id} if is_left_to_member(attach, arrival) else set()
        expired = end(world, [stays[one.id] for one in attach.expired], Because.EXPIRED)
        superseded = end(world, [stays[one.id] for one in attach.superseded], Because.SUPERSEDED)
        gone = {one.token for one in attach.displaced}
        world.chairs = [chair for chair in world.chairs if chair.token not in gone]
        world.tokens += 1
        world.chairs.append(Chair(world.tokens, self._broker, sender, session, identity.is_presence_only))
        if attach.goes_on is None:
            stay = Stay(attach.lease.owner or "", sender, session, began_at=world.wall_now())
            world.stays.append(stay)
        else:
            stay = stays[attach.goes_on.id]
        stay.instance_id, stay.is_presence_only, stay.info = (
            identity.instance_id,
            identity.is_presence_only,
            identity.info,
        )
        stay.token, stay.seat, stay.broker, stay.until = attach.lease.token, world.tokens, self._broker, None
        return Seated(
            seat=Seat(sender, session, world.tokens),
            presence_uid=stay.uid,
            lease_token=stay.token,
            is_resumed=attach.resumed,
            displaced=attach.displaced,
            met=attach.met,
            events=[*expired.events, *superseded.events, *note(world, stay, attach.what)],
            bereft=sorted({*expired.members, *superseded.members, *left}),
        )

    async def leave(self, departures: Collection[Departure]) -> list[int]:
        world, tokens = self._world, {departure.seat for departure in departures}
        for departure in departures:
            for stay in world.open_stays():
                if stay.seat == departure.seat:
                    stay.seat, stay.broker = None, None
                    stay.until = world.lease_now() - departure.silent_ms + LEASE_TTL_MS
        left = [chair for chair in world.chairs if chair.token in tokens]
        world.chairs = [chair for chair in world.chairs if chair.token not in tokens]
        return [chair.sender.member_id for chair in left]

    async def standing(self) -> set[int]:
        return {chair.token for chair in self._world.chairs if chair.broker == self._broker}

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
