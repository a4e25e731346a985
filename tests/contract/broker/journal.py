"""The journal of deliveries, put together again: it must say what the deliveries themselves show."""

from collections import defaultdict
from typing import Any

from tests.contract.broker.backends import House

Key = tuple[int, ...]  # mesh, history id, recipient

# As `delivery` of PostgreSQL has it, and the column `state` of SQLite.
STATE = """CASE WHEN dead_at IS NOT NULL THEN 'dead_letter' WHEN delivered_at IS NULL THEN 'accepted'
  WHEN acted_at IS NOT NULL THEN 'acted' WHEN read_at IS NOT NULL THEN 'read' ELSE 'delivered' END"""


async def shown(house: House) -> dict[Key, tuple[Any, ...]]:
    """Return of every delivery its state, when it was delivered if it is, and why it is dead if it is."""
    rows = await house.rows(
        f"SELECT mesh_id, history_id, recipient_id, {STATE}, "  # noqa: S608  a constant
        "CASE WHEN dead_at IS NULL THEN delivered_at END, dead_at, dead_reason FROM delivery_queue"
    )
    return {row[:3]: row[3:] for row in rows}


async def refold(house: House) -> dict[Key, tuple[Any, ...]]:
    """Return the same from the events alone, of the deliveries that there are."""
    events: dict[Key, dict[str, tuple[Any, ...]]] = defaultdict(dict)  # the last of each
    for *key, what, id_, at, reason in await house.rows(
        "SELECT mesh_id, history_id, recipient_id, what, id, at, reason FROM delivery_event ORDER BY id"
    ):
        events[tuple(key)][what] = (id_, at, reason)
    return {key: _fold(events[key]) for key in await house.rows(KEYS)}


KEYS = "SELECT mesh_id, history_id, recipient_id FROM delivery_queue"


def _fold(last: dict[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    nothing = (0, None, None)
    delivered, returned, dead = (last.get(what, nothing) for what in ("delivered", "returned", "dead"))
    if dead[0] > delivered[0]:
        return "dead_letter", None, *dead[1:]
    if delivered[0] == 0 or returned[0] > delivered[0]:
        return "accepted", None, None, None
    state = "acted" if "acted" in last else "read" if "read" in last else "delivered"
    return state, delivered[1], None, None
