"""Which connection gets what waits for a key, over all brokers of the database; and the lease that it carries."""

from collections.abc import Callable, Collection
from importlib.resources import files

from claudemesh.broker import policy
from claudemesh.broker.model import Beat, Seat
from claudemesh.broker.ports import AlreadyConnected, KeyTaken, NotResumed
from claudemesh.broker.presence.model import Arrival, Because, Departure, Seated
from claudemesh.broker.presence.policy import Attach, Refused, derive_lease_until, is_left_to_member, judge_attach
from claudemesh.broker.stores.leases import write_info
from claudemesh.broker.stores.postgres.brokers import LivingBroker
from claudemesh.broker.stores.postgres.directory import remember_session
from claudemesh.broker.stores.postgres.presence import (
    Changes,
    Gap,
    OpenLease,
    catch_up,
    go_offline,
    hold_members,
    of_key,
    read_now,
)
from claudemesh.kernel.errors import Revoked, StoreUnavailable, TooManySessions
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.postgres.database import column
from claudemesh.storage.sqlfile import load_queries

_SQL = load_queries(files(__package__) / "seats.sql")


class PostgresSeatStore:
    def __init__(
        self, database: Database, broker: LivingBroker, mint: Callable[[], str], lease_ttl_ms: int
    ) -> None:
        self._database = database
        self._broker = broker
        self._mint = mint
        self._ttl_ms = lease_ttl_ms
        self._gap = Gap.of(lease_ttl_ms)

    async def start(self) -> None:
        """Begin. Other brokers may run: whose leases are left without one is seen by looking over them."""

    async def take(self, arrival: Arrival) -> Seated:
        while True:
            seated = await self._database.transact(lambda connection: self._take(connection, arrival))
            if seated is not None:
                return seated
            # By itself: it holds leases of all keys in their order, and whoever holds some already would break it.
            await self._database.transact(lambda connection: catch_up(connection, self._gap))

    async def leave(self, departures: Collection[Departure]) -> list[int]:
        if not departures:
            return []
        return await self._database.transact(lambda connection: self._leave(connection, departures))

    async def standing(self) -> set[int]:
        return {*column(await self._database.fetch(_SQL["of_broker"], self._broker.id))}

    async def beat(self) -> Beat:
        return await self._broker.beat()

    # --- in a transaction --------------------------------------------------------------------------

    async def _take(self, connection: Connection, arrival: Arrival) -> Seated | None:
        """Take it; None if nobody looked for long, and what nobody could return to seems to have run out."""
        sender, session_pubkey = arrival.identity.sender, arrival.identity.session_pubkey or ""
        if not await connection.fetch(_SQL["hold_member"], sender.member_id, sender.mesh_id):
            raise Revoked
        now_ms, ago_ms = await read_now(connection)
        if ago_ms > self._gap.ms:
            return None
        standing = await of_key(connection, sender.member_id, session_pubkey)
        attach = judge_attach(standing, arrival, uid=self._mint(), now_ms=now_ms, ttl_ms=self._ttl_ms)
        if arrival.must_resume and (isinstance(attach, Refused) or not attach.resumed):
            raise NotResumed  # before anything that would tell it who is there
        if isinstance(attach, Refused):
            raise AlreadyConnected(attach.instance_id)
        if session_pubkey and attach.goes_on is None:
            await _check_crowd(connection, sender.member_id)
            if not await remember_session(connection, sender, session_pubkey, now_ms):
                raise KeyTaken
        changes, whose = Changes(now_ms), (sender.mesh_id, sender.member_id, session_pubkey)
        expired = [OpenLease(lease.id, lease.uid, *whose, lease.seat) for lease in attach.expired]
        changes.end_all(expired, Because.EXPIRED, {whose[1:]: len(standing)})
        for lease in attach.superseded:
            ended = OpenLease(lease.id, lease.uid, *whose, lease.seat)
            changes.end(ended, Because.SUPERSEDED, is_still_there=True)
        return await self._attach(connection, arrival, attach, changes)

    async def _attach(self, connection: Connection, arrival: Arrival, attach: Attach, changes: Changes) -> Seated:
        """Write down what the hello came to."""
        identity, session_pubkey = arrival.identity, arrival.identity.session_pubkey or ""
        # Its own broker's row before the seats of others: in this order a broker that died is cleared away, too.
        row = (self._broker.id, identity.member.id, session_pubkey, identity.is_presence_only)
        seat = await connection.fetchval(_SQL["take"], *row)
        if seat is None:
            raise StoreUnavailable("this broker was silent for too long, and is about to begin anew")
        if attach.displaced:
            await connection.execute(_SQL["leave"], [one.token for one in attach.displaced])
        await changes.finish(connection)
        lease = attach.goes_on
        carried = (identity.is_presence_only, attach.lease.token, seat, self._broker.id, write_info(identity.info))
        if lease is not None:
            await connection.execute(_SQL["carry_on"], lease.id, identity.instance_id, *carried)
        else:
            key = (identity.mesh.id, identity.member.id, session_pubkey, identity.instance_id)
            await connection.execute(_SQL["begin"], attach.lease.owner, *key, *carried, changes.now_ms)
        uid = attach.lease.owner or ""
        changes.note((identity.mesh.id, identity.member.id, session_pubkey, uid), attach.what)
        bereft = {*changes.members, *([identity.member.id] if is_left_to_member(attach, arrival) else [])}
        return Seated(
            seat=Seat(identity.sender, identity.session_pubkey, seat),
            presence_uid=uid,
            lease_token=attach.lease.token,
            is_resumed=attach.resumed,
            displaced=attach.displaced,
            met=attach.met,
            events=await changes.publish(connection),
            bereft=sorted(bereft),
        )

    async def _leave(self, connection: Connection, departures: Collection[Departure]) -> list[int]:
        seats = [one.seat for one in departures]
        await hold_members(connection, column(await connection.fetch(_SQL["sitters"], seats)))
        now_ms, _ = await read_now(connection)
        gone = {
            one.seat: (derive_lease_until(now_ms, one.silent_ms, self._ttl_ms), one.because) for one in departures
        }
        changes = Changes(now_ms)
        await go_offline(connection, gone, changes)
        members = column(await connection.fetch(_SQL["leave"], seats))
        await changes.publish(connection)
        return members


async def _check_crowd(connection: Connection, member_id: int) -> None:
    """Refuse one more session of a member who has as many as anybody may have."""
    if await connection.fetchval(_SQL["count"], member_id, policy.SESSIONS_MAX) >= policy.SESSIONS_MAX:
        raise TooManySessions
