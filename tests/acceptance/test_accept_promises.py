"""What an answer to a send rests on: its commit, the row of its id, the destination as it was first understood."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claudemesh.broker.settings import Limits
from claudemesh.cli import enrol
from claudemesh.daemon import identity
from claudemesh.daemon.client import mint_id
from claudemesh.kernel.errors import SchemaTooNew
from claudemesh.runtime import points
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home
from claudemesh.runtime.keys import KeyPair
from tests.acceptance.files import in_file
from tests.mesh import WITHIN_S, LocalBroker, local_broker, local_daemon, local_mesh, rejoin

BOB = "b" * 64

# The columns of the contract's own text, and the two that were added to them.
COLUMNS = {
    "id",
    "client_message_id",
    "request_fingerprint",
    "payload",
    "enqueued_at",
    "attempts",
    "next_attempt_at",
    "status",
    "last_error",
    "delivered_at",
    "broker_message_id",
    "aborted_at",
    "aborted_by",
    "superseded_by",
    "history_id",
    "to_asked",
}


@contextmanager
def commits_held() -> Iterator[None]:
    """Let every commit of this process wait until the block ends."""
    release = threading.Event()
    points.arm("sqlite.before_commit", lambda: release.wait(WITHIN_S) and None)
    try:
        yield
    finally:
        points.disarm_all()
        release.set()


@pytest.mark.req("D1")
async def test_nobody_is_answered_before_the_commit_that_keeps_the_row(tmp_path: Path) -> None:
    async with local_daemon(tmp_path / "demo", keys=KeyPair.generate()) as daemon:
        with commits_held():
            asked = [
                asyncio.create_task(answer)
                for answer in (
                    daemon.send(BOB, "x", client_message_id="m1"),
                    daemon.post("/v1/topic/post", {"topic": "news", "message": "x", "client_message_id": "m2"}),
                    daemon.post("/v1/send/batch", {"sends": [{"to": BOB, "message": "x"}]}),
                )
            ]
            answered, _ = await asyncio.wait(asked, timeout=0.3)
            assert not answered
        async with asyncio.timeout(WITHIN_S):
            assert [(await answer).status for answer in asked] == [202, 202, 200]
        assert len((await daemon.get("/v1/outbox"))["rows"]) == 3


async def join_later(broker: LocalBroker, inviter: Path, name: str) -> Path:
    """Bring a member into the mesh of a standing one."""
    joined, keys, clock = identity.load_membership(inviter), identity.load_keys(inviter), SystemClock()
    invite = enrol.make_invite(joined, keys, mint_id(), 1, clock.wall_ms() + 60_000)
    home = Home(broker.folder / "homes" / name)
    await asyncio.to_thread(enrol.join, enrol.Enrolment(home, name, clock), invite)
    return home.mesh_dir(joined.slug)


@pytest.mark.req("D2")
async def test_a_name_that_joined_a_moment_ago_is_found_by_asking_once(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        (here,) = await broker.enrol("alice")
        async with rejoin(here) as alice:
            await alice.until(lambda health: health["connected"])
            assert (await alice.send("bob", "x", client_message_id="m1")).status == 404
            async with rejoin(await join_later(broker, here, "bob")) as bob:
                assert (await alice.send("bob", "one", client_message_id="m1")).status == 202
                assert [message["body"] for message in await bob.receives(1)] == ["one"]
            await join_later(broker, here, "carol")
            batch = {"sends": [{"to": "carol", "message": "x"}, {"to": "nobody", "message": "x"}]}
            outcomes = (await alice.post("/v1/send/batch", batch)).body["outcomes"]
            assert [outcome["http_status"] for outcome in outcomes] == [202, 404]


@pytest.mark.req("D2")
async def test_a_retry_by_name_goes_to_whom_the_first_try_meant(tmp_path: Path) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    async with local_daemon(state_dir, keys=keys):
        pass
    in_file(
        state_dir / "outbox.db",
        "INSERT INTO directory (member_id, name, name_folded, pubkey, role) "
        "VALUES ('1', 'bob', 'bob', ?, 'member')",
        "1" * 64,
    )
    async with local_daemon(state_dir, keys=keys) as daemon:
        assert (await daemon.send("bob", "x", client_message_id="m1")).status == 202
    in_file(state_dir / "outbox.db", "UPDATE directory SET pubkey = ?", "2" * 64)
    async with local_daemon(state_dir, keys=keys) as daemon:
        assert (await daemon.send("bob", "x", client_message_id="m1")).status == 202
        assert (await daemon.send("bob", "y", client_message_id="m1")).status == 409
        assert (await daemon.send("bob", "x", client_message_id="m2")).status == 202
        rows = (await daemon.get("/v1/outbox"))["rows"]
        assert [row["destination"] for row in rows] == ["dm:" + "1" * 64, "dm:" + "2" * 64]


@pytest.mark.req("D5")
async def test_what_was_accepted_stays_byte_for_byte_whatever_becomes_of_it(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        await broker.stop()
        file = here / "outbox.db"
        async with rejoin(here) as alice:
            to = identity.load_keys(there).pubkey
            for key in ("m1", "m2"):
                await alice.send(to, "hello", client_message_id=key, meta={"n": 1.0, "a": "é"}, priority="low")
        assert {name for _, name, *_ in in_file(file, "PRAGMA table_info(outbox)")} >= COLUMNS
        frozen = "SELECT request_fingerprint, payload, to_asked, enqueued_at FROM outbox ORDER BY seq"
        accepted = in_file(file, frozen)
        # One was out when the power went, the other was given up: neither may change what they are.
        in_file(file, "UPDATE outbox SET status = 'inflight' WHERE client_message_id = 'm1'")
        in_file(file, "UPDATE outbox SET status = 'dead', last_error = 'why' WHERE client_message_id = 'm2'")
        await broker.start()
        async with rejoin(here) as alice, rejoin(there) as bob:
            (message,) = await bob.receives(1)
            assert (message["client_message_id"], message["meta"]) == ("m1", {"n": 1, "a": "é"})
            await alice.until(lambda found: found["state"] == "delivered", "/v1/trace/m1")
            dead = (await alice.get("/v1/outbox?failed=true"))["rows"][0]
            assert (await alice.post("/v1/outbox/requeue", {"id": dead["id"]})).status == 200
            await bob.receives(2)
        assert in_file(file, frozen)[:2] == accepted


@pytest.mark.req("D12")
async def test_files_of_a_newer_program_keep_the_daemon_from_starting_and_stay_as_they_are(tmp_path: Path) -> None:
    state_dir, keys = tmp_path / "demo", KeyPair.generate()
    async with local_daemon(state_dir, keys=keys) as daemon:
        await daemon.send(BOB, "x", client_message_id="m1")
    for name in ("inbox.db", "outbox.db"):
        in_file(state_dir / name, "PRAGMA user_version = 99")
        before = (state_dir / name).read_bytes()
        with pytest.raises(SchemaTooNew):
            async with local_daemon(state_dir, keys=keys):
                pass
        assert (state_dir / name).read_bytes() == before


@pytest.mark.req("F1")
async def test_members_of_a_mesh_may_use_the_same_ids_and_have_budgets_of_their_own(tmp_path: Path) -> None:
    limits = Limits(sends_per_window=2, window_s=3600)
    async with local_mesh(tmp_path, "alice", "bob", "carol", limits=limits) as (_, alice, bob, carol):
        sent = []
        for sender in (alice, carol):
            for key in ("build-42", sender.keys.pubkey):
                sent.append(f"{key} of {sender.keys.pubkey}")
                assert (await sender.send("bob", sent[-1], client_message_id=key)).status == 202
        assert sorted(message["body"] for message in await bob.receives(4)) == sorted(sent)


@pytest.mark.req("O2")
async def test_a_reload_keeps_the_connection_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        config = alice.state_dir / "config.toml"
        config.write_text("[outbox]\nprune_after_days = 3\n")
        assert (await alice.post("/v1/reload", {})).body["applied"] == ["outbox.prune_after_days"]
        config.write_text("[outbox]\nprune_after_dayz = 3\n")
        refused = await alice.post("/v1/reload", {})
        assert refused.status == 400
        assert "prune_after_days" in refused.body["detail"], "the nearest name"
        await alice.send("bob", "after")
        await bob.receives(1)
        metrics = (await alice.request("GET", "/v1/metrics")).body.splitlines()
        assert "cm_daemon_reconnects_total 0.0" in metrics
