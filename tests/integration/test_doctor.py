"""`claudemesh doctor` on a mesh that runs: it passes, and says what is wrong when something is taken away."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from claudemesh.broker.app import serve
from claudemesh.kernel.clock import Clock
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.dice import roll
from claudemesh.runtime.home import CI_VARIABLES
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.world import World
from tests.mesh import LocalBroker, local_mesh

WITHIN_S = 60
AHEAD_MS = 90_000


class Ahead:
    """A clock that somebody set wrong."""

    def __init__(self) -> None:
        self._clock: Clock = SystemClock()

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + AHEAD_MS

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()


def run_doctor(home: Path, *words: str) -> tuple[int, dict[str, Any]]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CLAUDEMESH_", *CI_VARIABLES))
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("claudemesh"), "doctor", "--json", *words],
        env={**kept, "CLAUDEMESH_HOME": str(home), "HOME": str(home)},  # nothing of whoever runs this
        cwd=home,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


async def examine(home: Path, *words: str) -> tuple[int, dict[str, Any]]:
    return await asyncio.to_thread(run_doctor, home, *words)


def wrong(document: dict[str, Any]) -> dict[str, str]:
    passing = {"ok", "not_applicable"}
    return {check["name"]: check["detail"] for check in document["checks"] if check["verdict"] not in passing}


@pytest.mark.req("C5")
async def test_a_mesh_that_works_passes_and_what_is_taken_away_is_named(tmp_path: Path) -> None:
    async with local_mesh(tmp_path / "m", "alice") as (broker, alice):
        home = alice.state_dir.parents[1]
        await alice.send("alice", "to myself")
        await alice.receives(1)
        code, told = await examine(home, "--bundle", str(tmp_path / "b.tar.gz"))
        assert (code, wrong(told), told["ok"]) == (0, {}, True)
        assert told["bundle"] == str(tmp_path / "b.tar.gz")
        await broker.stop()
        await alice.until(lambda health: not health["connected"])
        code, told = await examine(home)
        assert (code, set(wrong(told))) == (1, {"reachable", "negotiation"})
        assert "at its port" in wrong(told)["reachable"]


@pytest.mark.req("C5")
async def test_a_broker_whose_clock_is_wrong_is_found_by_its_clock(tmp_path: Path) -> None:
    async with local_mesh(tmp_path / "m", "alice") as (broker, alice):
        await broker.stop()
        stop = await start_ahead(broker)
        try:
            await alice.until(lambda health: "clock_skew" in health["link"])
            _, told = await examine(alice.state_dir.parents[1])
        finally:
            stop.set()
            await broker.task
            broker.task = None
        assert set(wrong(told)) == {"clock", "negotiation"}
        assert "clock_skew" in wrong(told)["negotiation"]


async def start_ahead(broker: LocalBroker) -> asyncio.Event:
    """Start a broker again where it was, with a clock that is ahead."""
    clock = Ahead()
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    world = World(clock, UlidSource(clock), roll)
    broker.task = asyncio.create_task(serve(broker.settings, started.set_result, stop, world))
    async with asyncio.timeout(WITHIN_S):
        await asyncio.wait({broker.task, started}, return_when=asyncio.FIRST_COMPLETED)
    return stop
