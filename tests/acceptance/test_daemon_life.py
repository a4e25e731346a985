"""A daemon over its life: reload, a new token, a key for one run only, damaged files."""

import asyncio
import os
from pathlib import Path
from typing import Literal

import pytest

from claudemesh.cli.recover import recover_outbox
from claudemesh.daemon import identity
from claudemesh.daemon.settings import Clone, Config
from claudemesh.daemon.terms import OutboxLimits
from claudemesh.kernel.errors import AlreadyRunning, ConfigError, HostMismatch, MaxAgeAboveWindow, StoreCorrupt
from claudemesh.outbox.stores.sqlite import salvage
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.keys import KeyPair
from tests.mesh import a_membership, local_broker, local_daemon, prepare, rejoin

BOB = "b" * 64


async def test_a_reload_applies_what_can_be_applied_and_names_the_rest(tmp_path: Path) -> None:
    async with local_daemon(tmp_path / "demo", keys=KeyPair.generate()) as daemon:
        config = daemon.state_dir / "config.toml"
        config.write_text("[outbox]\nprune_after_days = 3\n[ipc]\nburst = 7\npublic_health_check = true\n")
        answer = await daemon.post("/v1/reload", {})
        later = ["ipc.burst", "ipc.public_health_check"]
        assert answer.body == {"applied": ["outbox.prune_after_days"], "needs_restart": later}
        config.write_text("[outbox]\nprune_after_day = 3\n")
        refused = await daemon.post("/v1/reload", {})
        assert refused.status == 400
        assert "prune_after_days" in refused.body["detail"], "the nearest name is given"
        config.write_text("[outbox]\nmax_age_hours_override = 1000\n")
        assert (await daemon.post("/v1/reload", {})).status == 400
        config.unlink()
        assert (await daemon.post("/v1/reload", {})).body["applied"] == ["outbox.prune_after_days"]


@pytest.mark.req("D8")
async def test_an_age_beyond_the_brokers_window_keeps_the_daemon_from_starting(tmp_path: Path) -> None:
    config = Config(outbox=OutboxLimits(max_age_hours_override=145))
    with pytest.raises(MaxAgeAboveWindow):
        async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), config=config):
            pass


@pytest.mark.req("D9")
async def test_a_damaged_outbox_keeps_the_daemon_from_starting_and_names_the_way_out(tmp_path: Path) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    async with local_daemon(state_dir, keys=keys) as daemon:
        for number in range(50):
            await daemon.send(BOB, "x" * 500, client_message_id=f"m{number}")
    damage(state_dir / "outbox.db", begin=0.75)
    before = (state_dir / "outbox.db").read_bytes()
    with pytest.raises(StoreCorrupt, match="daemon recover"):
        async with local_daemon(state_dir, keys=keys):
            pass
    assert (state_dir / "outbox.db").read_bytes() == before
    saved = await asyncio.to_thread(recover_outbox, state_dir, SystemClock())
    assert saved is not None
    assert 5 < saved.saved < 50
    assert saved.kept_at.read_bytes() == before
    async with local_daemon(state_dir, keys=keys) as daemon:
        rows = (await daemon.get("/v1/outbox"))["rows"]
        assert len(rows) == saved.saved
        first = rows[0]["client_message_id"]
        assert (await daemon.send(BOB, "other", client_message_id=first)).status == 409, "its id is still used"
    assert await asyncio.to_thread(recover_outbox, state_dir, SystemClock()) is None


@pytest.mark.req("D9")
async def test_a_recovery_that_was_cut_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    async with local_daemon(state_dir, keys=keys) as daemon:
        for number in range(50):
            await daemon.send(BOB, "x" * 500, client_message_id=f"m{number}")
    damage(state_dir / "outbox.db", begin=0.75)
    with monkeypatch.context() as patched:
        patched.setattr(salvage, "finish_salvage", lambda _: None)  # killed just before
        saved = await asyncio.to_thread(recover_outbox, state_dir, SystemClock())
    assert saved is not None
    async with local_daemon(state_dir, keys=keys) as daemon:
        assert (await daemon.get("/v1/health"))["queue_depth"] == saved.saved
    assert saved.kept_at.exists()


@pytest.mark.req("D9")
async def test_a_damaged_inbox_is_set_aside_and_the_daemon_goes_on(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice, rejoin(there) as bob:
            await alice.until(lambda health: health["connected"])
            for number in range(40):
                await alice.send("bob", f"{number} " + "x" * 500)
            await bob.receives(40)
        damage(there / "inbox.db")
        async with rejoin(here) as alice, rejoin(there) as bob:
            assert list(there.glob("inbox.db.corrupt-*"))
            await alice.until(lambda health: health["connected"])
            await alice.send("bob", "after")
            bodies = [message["body"].split()[0] for message in await bob.receives(41)]
            assert bodies == [*map(str, range(40)), "after"]


def damage(path: Path, begin: float = 0.0) -> None:
    """Overwrite all but the first page, or the end of the file, as a failing disk would."""
    size = path.stat().st_size
    start = max(4096, int(size * begin) // 4096 * 4096)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(os.urandom(size - start))


@pytest.mark.req("D9")
async def test_a_second_daemon_on_the_same_state_is_refused(tmp_path: Path) -> None:
    keys = KeyPair.generate()
    async with local_daemon(tmp_path / "demo", keys=keys):
        with pytest.raises(AlreadyRunning):
            async with local_daemon(tmp_path / "demo", keys=keys):
                pass


@pytest.mark.req("D16")
async def test_a_state_directory_of_another_host_is_refused(tmp_path: Path) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    async with local_daemon(state_dir, keys=keys):
        pass
    identity.record_host(state_dir, identity.Host("another-machine", "00:11:22:33:44:55"))
    with pytest.raises(HostMismatch, match="accept-host"):
        async with local_daemon(state_dir, keys=keys):
            pass


@pytest.mark.req("D16")
@pytest.mark.parametrize(("policy", "count"), [("warn", 1), ("allow", 0)])
async def test_a_state_directory_of_another_host_is_warned_of_and_counted_unless_it_is_allowed(
    tmp_path: Path, policy: Literal["warn", "allow"], count: int
) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    prepare(state_dir, keys, None)
    identity.record_host(state_dir, identity.Host("another-machine", "00:11:22:33:44:55"))
    async with local_daemon(state_dir, keys=keys, config=Config(clone=Clone(policy))) as daemon:
        metrics = (await daemon.request("GET", "/v1/metrics")).body
    assert f"cm_daemon_clone_suspected_total {count}" in metrics
    assert (state_dir / "daemon.log").read_text().count("daemon.clone_suspected") == count


@pytest.mark.req("N1")
@pytest.mark.parametrize("address", ["http://mesh.example.org", "ws://10.0.0.1:7450", "mesh.example.org:7450"])
async def test_a_broker_that_would_be_spoken_to_in_the_clear_keeps_the_daemon_from_starting(
    tmp_path: Path, address: str
) -> None:
    joined, was_ready = a_membership("demo", address), False
    with pytest.raises(ConfigError, match="https"):
        async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), joined=joined):
            was_ready = True
    assert not was_ready


@pytest.mark.req("D16", "Q1")
async def test_an_ephemeral_daemon_sends_as_its_member_and_leaves_its_inbox_alone(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(there) as bob:
            async with rejoin(here, ephemeral_ttl_ms=3_600_000) as alice:
                await alice.until(lambda health: health["connected"])
                await alice.send("bob", "from a run", client_message_id="m1")
                (message,) = await bob.receives(1)
                assert (message["from"], message["from_name"]) == (alice.keys.pubkey, "alice")
                await bob.send("alice", "an answer", client_message_id="a1")
                await bob.until(lambda found: found["state"] == "accepted", "/v1/trace/a1")
                assert await alice.inbox() == []
            async with rejoin(here) as alice:
                assert [m["body"] for m in await alice.receives(1)] == ["an answer"]


@pytest.mark.req("D16")
async def test_an_ephemeral_daemon_ends_by_itself_after_its_time(tmp_path: Path) -> None:
    async with local_daemon(tmp_path / "demo", keys=KeyPair.generate(), ephemeral_ttl_ms=300) as daemon:
        assert daemon.task is not None
        assert await asyncio.wait_for(daemon.task, 30) == 0
