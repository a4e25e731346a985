"""Processes that are killed and started again, and what their callers see of it."""

import asyncio
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from claudemesh.daemon import identity
from claudemesh.daemon.client.recording import Recorder, open_recorder
from claudemesh.runtime.world import real_world
from tests.mesh import LocalDaemon

ROOT = Path(__file__).parents[2]
MESSAGES_AFTER = 5
WITHIN_S = 90  # daemons whose broker is killed again and again come back ever later


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

    @cached_property
    def recorder(self) -> Recorder:
        """Of what alice is told."""
        return open_recorder(self.log, self.alice_dir / "sock")

    @property
    def log(self) -> Path:
        return self.folder / "history.jsonl"

    def client(self, state_dir: Path) -> LocalDaemon:
        return LocalDaemon(state_dir, identity.load_keys(state_dir), real_world())


async def send_one(mesh: Mesh) -> None:
    """Send until it is answered, under its one id, however often nobody is there to answer."""
    client, key = mesh.client(mesh.alice_dir), f"m{mesh.sent:06}"
    body = {"to": "bob", "message": f"body of {key}", "client_message_id": key}
    while True:
        try:
            with mesh.recorder.call("/v1/send", body) as told:
                answer = await client.post("/v1/send", body)
                assert answer.status in (200, 202), answer.body
                told(answer.body)
        except (OSError, IndexError, ValueError):  # refused, or cut off before or in its answer
            await asyncio.sleep(0.02)
            continue
        mesh.sent += 1
        return


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
