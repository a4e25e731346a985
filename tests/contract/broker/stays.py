"""What tests of leases share.

Leases of a server run by its own clock: what a test lets pass stays well away from where one ends.
"""

from typing import Any

from claudemesh.broker.ports import Stores
from claudemesh.broker.presence.model import Because, Departure, PresenceEvent, Present, Seated, What
from claudemesh.kernel.rhythm import LEASE_TTL_MS
from tests.contract.broker.backends import House, Town

WIDE = 1 << 30
MARGIN_MS = 15_000
MOST_MS = LEASE_TTL_MS - MARGIN_MS
ALL_MS = LEASE_TTL_MS + MARGIN_MS

SESSION = "key-of-a-session"


async def leave(stores: Stores, seated: Seated, silent_ms: int = 0, because: Because = Because.CLOSED) -> None:
    await stores.seats.leave([Departure(seated.seat.token, silent_ms, because)])


async def present(stores: Stores, town: Town) -> list[Present]:
    return await stores.presence.present(town.mesh.id)


async def told(stores: Stores, town: Town) -> list[tuple[int, What, str]]:
    """Return all that was announced: numbers, what, and whom."""
    return [(one.seq, one.what, one.name) for one in await stores.presence.events(town.mesh.id, 0, 1000)]


async def noted(house: House, seated: Seated) -> list[tuple[Any, ...]]:
    """Return what happened to a lease, and why; nothing of a store that keeps no record of it."""
    sql = f"SELECT what, because FROM presence_event WHERE presence_uid = '{seated.presence_uid}' ORDER BY id"  # noqa: S608
    return await house.rows(sql)


async def waiting(stores: Stores, seated: Seated) -> list[int]:
    page = await stores.deliveries.page(seated.seat, 0, 1000, WIDE)
    return [parcel.history_id for parcel in page.parcels]


def kinds(events: list[PresenceEvent]) -> list[What]:
    return [event.what for event in events]
