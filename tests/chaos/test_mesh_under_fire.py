"""A mesh of real processes, one of which is killed at a named point, as `kill -9` would. The seed is printed.

Whatever a caller was told was accepted is in the other inbox in the end, once and in its order; and the broker's
rows agree with each other.
"""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from claudemesh.broker.app import check
from claudemesh.broker.settings import BrokerSettings
from claudemesh.pipeline.checks import Verdict
from claudemesh.pipeline.checks.sqlite import check_stores
from tests.chaos.mesh import MESSAGES_AFTER, WITHIN_S, Mesh, Node, everything, send_one
from tests.mesh import LocalBroker
from tests.ports import own_address

pytestmark = pytest.mark.timeout(300)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    folder = tmp_path_factory.mktemp("mesh")
    os.chmod(folder, 0o700)  # noqa: PTH101
    broker = Node(["broker", str(folder), own_address()])
    url = await broker.start()
    alice_dir, bob_dir = await LocalBroker(folder, settings=None, url=url).enrol("alice", "bob")  # type: ignore[arg-type]
    alice, bob = Node(["daemon", str(alice_dir)]), Node(["daemon", str(bob_dir)])
    for node in (alice, bob):
        await node.start()
    yield Mesh(folder, broker, alice, bob, alice_dir, bob_dir, url)
    for node in (alice, bob, broker):
        if node.process is not None and node.process.returncode is None:
            assert await node.stop() == 0


FAULTS = [
    ("alice", "sqlite.before_commit"),
    ("alice", "sqlite.after_commit"),
    ("alice", "outbox.after_claim"),
    ("alice", "outbox.before_settle"),
    ("bob", "sqlite.before_commit"),
    ("bob", "sqlite.after_commit"),
    ("bob", "daemon.before_inbox"),
    ("bob", "daemon.before_ack"),
    ("broker", "sqlite.before_commit"),
    ("broker", "sqlite.after_commit"),
    ("broker", "broker.after_accept"),
    ("broker", "broker.before_answer"),
    ("broker", "broker.before_push"),
]


@pytest.mark.req("D1", "D9", "B3", "Q1", "Q2")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("who", "point"), FAULTS)
async def test_a_kill_at_any_point_loses_nothing_doubles_nothing_and_keeps_the_order(
    mesh: Mesh, who: str, point: str, effort: int
) -> None:
    node: Node = getattr(mesh, who)
    for _ in range(effort):
        armed = f"{point}:{random.randrange(1, 6)}"  # noqa: S311
        print(armed)  # noqa: T201  shown with a failure
        assert await node.stop() == 0
        await node.start(armed)
        reviving = asyncio.create_task(node.revive())
        async with asyncio.timeout(WITHIN_S):
            while not reviving.done():
                await send_one(mesh)
        await reviving
        for _ in range(MESSAGES_AFTER):
            await send_one(mesh)
        bodies = await everything(mesh, at_least=mesh.sent)
        assert bodies == [f"body of m{number:06}" for number in range(mesh.sent)]
    assert node.deaths >= effort


@pytest.mark.req("B8", "S3")
@pytest.mark.asyncio(loop_scope="module")
async def test_after_kills_the_brokers_rows_agree_and_all_that_was_promised_is_so(mesh: Mesh) -> None:
    for _ in range(2):
        await send_one(mesh)
    await everything(mesh, at_least=mesh.sent)
    await mesh.broker.stop(signal.SIGKILL)
    try:
        found = await check(BrokerSettings(store=f"sqlite:///{mesh.folder / 'broker.db'}"))
        assert found["items"] == []
        verdict = judge(mesh, mesh.log)
        assert verdict.violations == []
        assert verdict.checked["sent"] == verdict.checked["accepted"] == verdict.checked["received"] == mesh.sent
        doctored = mesh.folder / "doctored.jsonl"
        last = f'"id":"m{mesh.sent - 1:06}"'
        doctored.write_text(mesh.log.read_text().replace(last, '"id":"another"'))
        assert {one.invariant for one in judge(mesh, doctored).violations} == {"lost_acknowledged", "phantom_row"}
    finally:
        await mesh.broker.start()


def judge(mesh: Mesh, log: Path) -> Verdict:
    places = (mesh.alice_dir, mesh.bob_dir)
    outboxes, inboxes = ([place / name for place in places] for name in ("outbox.db", "inbox.db"))
    return check_stores(mesh.folder / "broker.db", outboxes, inboxes, [log])
