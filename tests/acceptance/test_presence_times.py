"""The times of presence come from the environment, for the broker and for the daemon alike."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from claudemesh.runtime.world import real_world
from claudemesh.wire import frames
from tests.integration.broker_client import BOUND_S, RunningBroker, create_mesh

TIMES = {"LEASE_TTL_MS": "62345", "PING_INTERVAL_MS": "234", "STALE_PONG_THRESHOLD_MS": "51234"}
SOON_S = 10


@asynccontextmanager
async def served(home: Path, **environment: str) -> AsyncIterator[RunningBroker]:
    """Run the command that an operator runs."""
    command = (sys.executable, "-m", "claudemesh.cli.main", "broker", "serve", "--listen", "127.0.0.1:0", "--json")
    around = {**os.environ, "CLAUDEMESH_HOME": str(home), **environment}
    piped = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.DEVNULL}
    process = await asyncio.create_subprocess_exec(*command, env=around, **piped)  # type: ignore[arg-type]
    try:
        assert process.stdout is not None
        async with asyncio.timeout(BOUND_S):
            url = json.loads(await process.stdout.readline())["url"]
        yield RunningBroker(url, asyncio.Event(), real_world())
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.req("P12")
async def test_a_broker_goes_by_the_times_of_its_environment_over_those_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("[presence]\nlease_ttl_ms = 77777\nping_interval_ms = 55555\n")
    async with served(tmp_path, **TIMES) as running:
        alice = await create_mesh(running, name="alice")
        async with alice.connected() as wire, asyncio.timeout(SOON_S):
            assert wire.ack.lease_ttl_ms == 62345
            for _ in range(2):  # at the file's own times it would be asked after this test
                assert (await wire.expect(frames.LeaseRenewed)).lease_ttl_ms == 62345


@pytest.mark.req("P12")
async def test_a_time_that_is_none_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "claudemesh.cli.main", "broker", "serve", "--listen", "127.0.0.1:0")
    around = {**os.environ, "CLAUDEMESH_HOME": str(tmp_path), "LEASE_TTL_MS": "soon"}
    process = await asyncio.create_subprocess_exec(*command, env=around, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(BOUND_S):
        _, said = await process.communicate()
    assert process.returncode not in (0, None)
    assert b"LEASE_TTL_MS" in said
