"""A disk without room, and room that is used up: new sends are refused, and nothing that was accepted is lost."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from claudemesh.daemon import identity
from claudemesh.daemon.settings import Config, Disk
from claudemesh.runtime.keys import KeyPair
from tests.mesh import LocalDaemon, local_broker, local_daemon

BOB = "b" * 64
BODY = "x" * 4_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 3 MB; it needs root, as `make test` has."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


async def send_until_refused(daemon: LocalDaemon, prefix: str) -> tuple[list[str], str]:
    """Return the ids that were accepted, and the one that was not."""
    accepted: list[str] = []
    for number in range(5_000):
        key = f"{prefix}{number}"
        answer = await daemon.send(BOB, BODY, client_message_id=key)
        if answer.status != 202:
            assert (answer.status, answer.body["code"]) == (507, "insufficient_storage")
            return accepted, key
        accepted.append(key)
    raise AssertionError("the disk never became full")


async def ids(daemon: LocalDaemon) -> list[str]:
    found: list[str] = []
    cursor: int | None = 0
    while cursor is not None:
        page = await daemon.get(f"/v1/outbox?limit=1000&cursor={cursor}")
        found += [row["client_message_id"] for row in page["rows"]]
        cursor = page["next_cursor"]
    return found


@pytest.mark.req("D11")
async def test_a_full_disk_refuses_new_sends_and_takes_them_again_when_there_is_room(small_disk: Path) -> None:
    keys, ballast = KeyPair.generate(), small_disk / "ballast"
    ballast.write_bytes(b"\0" * 1_000_000)
    state_dir = small_disk / "demo"
    async with local_daemon(state_dir, keys=keys) as daemon:
        accepted, refused = await send_until_refused(daemon, "a")
        assert len(accepted) > 20
        again = await daemon.send(BOB, BODY, client_message_id=accepted[0])
        assert again.status == 202, "a retry of what was accepted is never refused"
        ballast.unlink()
        assert (await daemon.send(BOB, BODY, client_message_id=refused)).status == 202, "the id was still free"
        assert await ids(daemon) == [*accepted, refused]
    async with local_daemon(state_dir, keys=keys) as daemon:
        assert await ids(daemon) == [*accepted, refused]


@pytest.mark.req("D11")
async def test_used_up_room_refuses_new_sends_while_what_was_accepted_is_still_sent(tmp_path: Path) -> None:
    config = Config(disk=Disk(reserved_bytes=1 << 20))
    async with local_broker(tmp_path) as broker:
        here, _ = await broker.enrol("alice", "bob")
        await broker.stop()
        async with local_daemon(here, keys=identity.load_keys(here), config=config) as alice:
            accepted, refused = await send_until_refused(alice, "m")
            assert (await alice.send(BOB, BODY, client_message_id=accepted[0])).status == 202
            metrics = (await alice.request("GET", "/v1/metrics")).body
            (pct,) = [line.split()[1] for line in metrics.splitlines() if line.startswith("cm_daemon_disk_pct ")]
            assert float(pct) >= 95
            assert "daemon.outbox_pressure_high" in (here / "daemon.log").read_text()
            await broker.start()
            await alice.until(lambda health: health["queue_depth"] == health["inflight"] == 0)
            assert await ids(alice) == accepted, "each was judged by the broker, in the end"
            assert refused not in accepted
