"""Somebody who comes, loses their connection, is back in time, and goes."""

from claudemesh.broker.model import Identity
from claudemesh.broker.ports import Stores
from claudemesh.broker.presence.model import Arrival, Because, Departure
from tests.contract.broker.backends import Town

VISIT = ["joined", "offline", "online", "swapped", "left"]  # what the journal of leases has of a visit


async def visit(stores: Stores, town: Town, name: str, session: str | None = None) -> None:
    arrival = Arrival(Identity(town.mesh, town.members[name], "one", session))
    seated = await stores.seats.take(arrival)
    await stores.seats.leave([Departure(seated.seat.token)])
    for _ in range(2):
        await stores.seats.take(arrival)
    await stores.presence.end(town[name], session, Because.GOODBYE)
