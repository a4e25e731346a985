"""A database goes back in time under running brokers: a standby that lagged took over, or a backup took its place.

What was accepted last is gone then. Its numbers are not given to anybody else, and no broker delivers from memory
what the database does not hold any more.
"""

import asyncio
import shutil
from pathlib import Path

import pytest

from claudemesh.broker.events import EpochBegan
from claudemesh.broker.policy import EPOCH_SKIP
from tests.integration.broker_client import BOUND_S, RunningBroker, Wire, broker, create_mesh, dm, join, request
from tests.services.postgres import Postgres, private_postgres, wheel


def copy_as_it_is(source: Path, target: Path) -> None:
    """Copy a folder, also whose its files are: a server refuses those of others."""
    shutil.copytree(source, target, symlinks=True)
    for path in (target, *target.rglob("*")):
        owner = (source / path.relative_to(target)).stat()
        shutil.chown(path, owner.st_uid, owner.st_gid)


def go_back(postgres: Postgres, backup: Path) -> None:
    """Put the backup in the place of the data, and let it take over as a standby that is promoted does."""
    data = postgres.directory / "data"
    postgres.crash()
    shutil.rmtree(data)
    copy_as_it_is(backup, data)
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = 'false'\n")
    (data / "recovery.signal").touch()
    shutil.chown(data / "recovery.signal", backup.stat().st_uid, backup.stat().st_gid)
    postgres.start()


async def send_until_taken(wire: Wire, item: object) -> int:
    """Send until the broker has its database again; return the history id."""
    async with asyncio.timeout(BOUND_S):
        while True:
            [outcome] = await wire.send(item)  # type: ignore[arg-type]
            if outcome.status in (200, 201):
                assert outcome.history_id is not None
                return outcome.history_id
            assert outcome.status == 503, outcome
            await asyncio.sleep(0.05)


async def until_healthy(running: RunningBroker) -> None:
    async with asyncio.timeout(BOUND_S):
        while (await request("GET", f"{running.url}/v1/health")).status != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.req("B4")
async def test_numbers_that_a_lost_part_of_the_past_used_are_not_given_again_and_nothing_of_it_is_delivered(
    tmp_path: Path,
) -> None:
    with private_postgres(wheel()) as postgres:
        async with broker(tmp_path, store=postgres.dsn) as one, broker(tmp_path, store=postgres.dsn) as two:
            events: list[EpochBegan] = []
            for running in (one, two):
                running.world.observer.subscribe(EpochBegan, events.append)
            alice = await create_mesh(one, name="alice")
            bob, carol = await join(alice, "bob"), await join(alice, "carol")
            async with alice.connected() as sender, bob.connected() as to_bob, carol.connected() as to_carol:
                await sender.send(dm("before", bob))
                await to_bob.acknowledge(await to_bob.deliveries(1))
                postgres.crash()
                backup = postgres.directory / "backup"
                copy_as_it_is(postgres.directory / "data", backup)
                postgres.start()
                lost = await send_until_taken(sender, dm("lost", bob, "for bob only"))
                assert [one.body for one in await to_bob.deliveries(1)] == ["for bob only"]
                go_back(postgres, backup)
                await until_healthy(one)
                await until_healthy(two)
                after = await send_until_taken(sender, dm("after", carol, "for carol"))
                assert after >= lost + EPOCH_SKIP
                assert [one.body for one in await to_carol.deliveries(1)] == ["for carol"]
    assert [event.epoch for event in events] == [1]
