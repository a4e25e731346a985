"""All that can be seen of a mesh, as calls to a store."""

from collections.abc import Iterator, Sequence

from claudemesh.broker.model import MessageReceipt, Parcel, Progress
from tests.contract.broker.oracle.sides import IDS, KEYS, NAMES, SESSIONS, Call, Side


def views() -> Iterator[Call]:
    for name in NAMES:
        yield from _of_member(name)
        for session in (None, *SESSIONS):
            yield _waiting(name, session)
    yield lambda side: side.stores.work.queues(side["ann"])
    yield lambda side: side.stores.directory.members(side.town.mesh.id)
    yield lambda side: side.stores.directory.known_keys(side.town.mesh.id, KEYS)
    yield lambda side: side.stores.deliveries.depth()
    yield _present
    yield lambda side: side.stores.presence.latest(side.town.mesh.id)
    yield lambda side: side.stores.presence.events(side.town.mesh.id, 0, 10_000)
    yield _backlogs


def _of_member(name: str) -> Iterator[Call]:
    async def receipts(side: Side) -> object:
        found = await side.stores.receipts.receipts(side[name], IDS[::2], [*side.ids.values()])
        return _by_client_id(found)

    async def progress(side: Side) -> object:
        return _by_client_id(await side.stores.receipts.progress(side[name], IDS))

    yield receipts
    yield progress
    yield lambda side: side.stores.accepts.standing(side[name].member_id, IDS)
    yield lambda side: side.stores.topics.topics(side[name])


def _waiting(name: str, session: str | None) -> Call:
    async def waiting(side: Side) -> list[Parcel]:
        await side.take(0, name, session, "the last one")
        return await side.drain(side.seat(0), 10, 1 << 30)

    return waiting


async def _present(side: Side) -> object:
    return [side.plain_present(one) for one in await side.stores.presence.present(side.town.mesh.id)]


async def _backlogs(side: Side) -> object:
    found = await side.stores.deliveries.backlogs(side.town.mesh.id)
    return {side.names[id_]: backlog for id_, backlog in found.items()}


def _by_client_id(found: Sequence[MessageReceipt | Progress]) -> object:
    return {one.client_message_id: one for one in found}
