"""A whole broker store in plain dicts: what every backend has to do, said in the most obvious way.

It shares with the stores the values, the policies and the kernel, and nothing else, so that a mistake of theirs is
not its own. No call waits for anything: what is called first is applied first.

world        everything that is kept
accepts      who may use an id, and what a message leaves
deliveries   what waits for a seat; acks, attempts, read marks
receipts     how far a message came
directory    meshes, members, invites
topics work  destinations; the leases of work queues
upkeep       the broker's key, epochs, retention
seats        which connection gets what waits, and what brokers tell each other
presence     leases that outlive their sockets

`sides`, `history` and `views` compare: the same calls to a store and to the oracle, and what both answer.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.contract.broker.oracle.accepts import OracleAcceptStore
from tests.contract.broker.oracle.deliveries import OracleDeliveryStore
from tests.contract.broker.oracle.directory import OracleDirectoryStore
from tests.contract.broker.oracle.presence import OraclePresenceStore
from tests.contract.broker.oracle.receipts import OracleReceiptStore
from tests.contract.broker.oracle.seats import OracleBus, OracleSeatStore, close_broker, open_broker
from tests.contract.broker.oracle.topics import OracleTopicStore
from tests.contract.broker.oracle.upkeep import OracleUpkeepStore
from tests.contract.broker.oracle.work import OracleWorkStore
from tests.contract.broker.oracle.world import World
from tests.doubles import ManualClock

_worlds: dict[Path, World] = {}  # what was kept in a folder is there when it is opened again, as a file would be


@dataclass(frozen=True)
class OracleStores:
    """One broker's view of a world."""

    world: World
    broker: int
    accepts: OracleAcceptStore
    deliveries: OracleDeliveryStore
    receipts: OracleReceiptStore
    directory: OracleDirectoryStore
    topics: OracleTopicStore
    work: OracleWorkStore
    upkeep: OracleUpkeepStore
    seats: OracleSeatStore
    presence: OraclePresenceStore
    bus: OracleBus

    async def aclose(self) -> None:
        close_broker(self.world, self.broker)


async def open_oracle(folder: Path, clock: ManualClock) -> OracleStores:
    """Open what the folder holds; opened twice at a time, two brokers share it."""
    world = _worlds.setdefault(folder, World())
    broker = open_broker(world, clock)
    return OracleStores(
        world,
        broker,
        OracleAcceptStore(world),
        OracleDeliveryStore(world),
        OracleReceiptStore(world),
        OracleDirectoryStore(world),
        OracleTopicStore(world),
        OracleWorkStore(world),
        OracleUpkeepStore(world),
        OracleSeatStore(world, broker),
        OraclePresenceStore(world),
        OracleBus(world, broker),
    )
