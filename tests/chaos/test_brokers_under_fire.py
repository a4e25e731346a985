"""Two brokers on one PostgreSQL behind one address: either is killed at a named point, and the database crashes.

Daemons come back to whichever answers. Whatever a caller was told was accepted is in the other inbox in the end,
once and in its order; and the rows agree with each other.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from claudemesh.broker.app import check
from claudemesh.broker.settings import BrokerSettings
from claudemesh.daemon import identity
from tests.chaos.mesh import MESSAGES_AFTER, WITHIN_S, Mesh, Node, everything, send_one
from tests.front import Front, front_of
from tests.mesh import LocalBroker
from tests.ports import own_address
from tests.services.postgres import Postgres, private_postgres, wheel

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

POINTS = [
    "postgres.before_commit",
    "postgres.after_commit",
    "broker.after_accept",
    "broker.before_answer",
    "broker.before_push",
]


@dataclass
class Fleet:
    postgres: Postgres
    brokers: list[Node]
    front: Front
    mesh: Mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    folder: Path = tmp_path_factory.mktemp("fleet")
    os.chmod(folder, 0o700)  # noqa: PTH101
    with private_postgres(wheel()) as postgres:
        brokers = [Node(["broker", str(folder), own_address(), postgres.dsn]) for _ in range(2)]
        url = await brokers[0].start()
        places = await LocalBroker(folder, settings=None, url=url).enrol("alice", "bob")  # type: ignore[arg-type]
        assert await brokers[0].stop() == 0
        async with front_of() as front:
            for node in brokers:
                node.command.append(f"behind={front.url.removeprefix('http://')}")
                await node.start()
                front.brokers.append(node.command[2])
            for place in places:
                identity.move_broker(place, front.url)
            alice, bob = [Node(["daemon", str(place)]) for place in places]
            for node in (alice, bob):
                await node.start()
            yield Fleet(postgres, brokers, front, Mesh(folder, brokers[0], alice, bob, *places, front.url))
            for node in (alice, bob, *brokers):
                assert await node.stop() == 0


@pytest.mark.req("B3", "Q1")
@pytest.mark.parametrize("point", POINTS)
async def test_a_broker_killed_at_any_point_is_replaced_by_its_peer_and_nothing_is_lost_or_doubled(
    fleet: Fleet, point: str, effort: int
) -> None:
    mesh = fleet.mesh
    for _ in range(effort):
        armed = f"{point}:{random.randrange(1, 6)}"  # noqa: S311
        print(armed)  # noqa: T201  shown with a failure
        victim = fleet.brokers[0]
        assert await victim.stop() == 0
        await victim.start(armed)
        fleet.front.cut()  # everybody goes to the first that answers, which is the victim
        assert victim.process is not None
        killed = asyncio.create_task(victim.process.wait())
        async with asyncio.timeout(WITHIN_S):
            while not killed.done():
                await send_one(mesh)
        for _ in range(MESSAGES_AFTER):  # while only its peer is there
            await send_one(mesh)
        assert await everything(mesh, at_least=mesh.sent) == [f"body of m{place:06}" for place in range(mesh.sent)]
        await victim.start()
        fleet.brokers.reverse()
        fleet.front.brokers.reverse()


@pytest.mark.req("B3", "Q1")
async def test_a_database_that_crashes_in_mid_traffic_is_survived(fleet: Fleet, effort: int) -> None:
    mesh = fleet.mesh
    for _ in range(2 * effort):
        sending = asyncio.create_task(send_many(mesh, 40))
        await everything(mesh, at_least=mesh.sent + 5)
        fleet.postgres.crash()
        for _ in range(MESSAGES_AFTER):  # daemons take what their broker cannot
            await send_one_more(mesh, sending)
        fleet.postgres.start()
        await sending
        await send_one(mesh)
        assert await everything(mesh, at_least=mesh.sent) == [f"body of m{place:06}" for place in range(mesh.sent)]


async def send_many(mesh: Mesh, count: int) -> None:
    for _ in range(count):
        await send_one(mesh)


async def send_one_more(mesh: Mesh, sending: "asyncio.Task[None]") -> None:
    """Wait until one more was answered, by whoever sends."""
    before = mesh.sent
    async with asyncio.timeout(WITHIN_S):
        while mesh.sent == before and not sending.done():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.req("B8")
async def test_the_rows_agree_after_all_that(fleet: Fleet) -> None:
    await send_one(fleet.mesh)
    await everything(fleet.mesh, at_least=fleet.mesh.sent)
    assert await check(BrokerSettings(store=fleet.postgres.dsn)) == {"violations": 0, "items": []}
