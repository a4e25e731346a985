"""A mesh of real processes, one of which is killed at a named point, as `kill -9` would. The seed is printed.

Whatever a caller was told was accepted is in the other inbox in the end, once and in its order; and the broker's
rows agree with each other.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from claudemesh.broker.app import open_stores
from claudemesh.daemon import identity
from claudemesh.runtime.world import real_world
from tests.mesh import LocalBroker, LocalDaemon

ROOT = Path(__file__).parents[2]
MESSAGES_AFTER = 5
WITHIN_S = 90  # daemons whose broker is killed again and again come back ever later

pytestmark = pytest.mark.timeout(300)


@dataclass
class Node:
    """A process that is started again whenever it is down."""

    command: list[str]
    process: "asyncio.subprocess.Process | None" = None
    deaths: int = 0

    async def start(self, *armed: str) -> str:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.node", *self.command, *armed, cwd=ROOT, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        async with asyncio.timeout(WITHIN_S):
            line = (await self.process.stdout.readline()).decode().split()
        assert line or armed, "it did not start"  # an armed one may be killed by its first commits already
        return line[1] if line else ""

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        async with asyncio.timeout(WITHIN_S):
            return await self.process.wait()

    async def revive(self) -> None:
        """Wait until it is killed, and start it again."""
        assert self.process is not None
        code = await self.process.wait()
        assert code == -signal.SIGKILL, f"it ended by itself, with {code}"
        self.deaths += 1
        await self.start()


@dataclass
class Mesh:
    folder: Path
    broker: Node
    alice: Node
    bob: Node
    alice_dir: Path
    bob_dir: Path
    url: str
    sent: int = 0

    def client(self, state_dir: Path) -> LocalDaemon:
        return LocalDaemon(state_dir, identity.load_keys(state_dir), real_world())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    folder = tmp_path_factory.mktemp("mesh")
    os.chmod(folder, 0o700)  # noqa: PTH101
    broker = Node(["broker", str(folder), "127.0.0.1:0"])
    url = f"http://{(await broker.start()).removeprefix('http://')}"
    broker.command[2] = url.removeprefix("http://")  # the same port ever after
    alice_dir, bob_dir = await LocalBroker(folder, settings=None, url=url).enrol("alice", "bob")  # type: ignore[arg-type]
    alice, bob = Node(["daemon", str(alice_dir)]), Node(["daemon", str(bob_dir)])
    for node in (alice, bob):
        await node.start()
    yield Mesh(folder, broker, alice, bob, alice_dir, bob_dir, url)
    for node in (alice, bob, broker):
        if node.process is not None and node.process.returncode is None:
            assert await node.stop() == 0


async def send_one(mesh: Mesh) -> None:
    """Send until it is answered, under its one id, however often nobody is there to answer."""
    client, key = mesh.client(mesh.alice_dir), f"m{mesh.sent:06}"
    while True:
        try:
            answer = await client.send("bob", f"body of {key}", client_message_id=key)
        except (OSError, IndexError, ValueError):  # refused, or cut off before or in its answer
            await asyncio.sleep(0.02)
            continue
        assert answer.status in (200, 202), answer.body
        mesh.sent += 1
        return


FAULTS = [
    ("alice", "sqlite.before_commit"),
    ("alice", "sqlite.after_commit"),
    ("alice", "daemon.after_claim"),
    ("alice", "daemon.before_settle"),
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


async def everything(mesh: Mesh, at_least: int = 0) -> list[str]:
    """Return the bodies of bob's whole inbox, page by page, once there are so many."""
    client = mesh.client(mesh.bob_dir)
    async with asyncio.timeout(WITHIN_S):
        while True:
            bodies: list[str] = []
            cursor = ""
            while True:
                page = await client.get(f"/v1/inbox?limit=1000{cursor}")
                bodies += [message["body"] for message in page["messages"]]
                if page["next_cursor"] is None:
                    break
                cursor = f"&cursor={page['next_cursor']}"
            if len(bodies) >= at_least:
                return bodies
            await asyncio.sleep(0.05)


@pytest.mark.req("B8")
@pytest.mark.asyncio(loop_scope="module")
async def test_the_brokers_rows_agree_after_kills(mesh: Mesh) -> None:
    await send_one(mesh)
    await everything(mesh, at_least=mesh.sent)
    await mesh.broker.stop(signal.SIGKILL)
    stores = open_stores(mesh.folder / "broker.db", real_world())
    try:
        assert await stores.upkeep.check() == []
    finally:
        await asyncio.to_thread(stores.close)
        await mesh.broker.start()
