"""A disk without room, and room that is used up: new sends are refused, and nothing that was accepted is lost."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from claudemesh.daemon import identity
from claudemesh.daemon.events import Warned
from claudemesh.daemon.settings import Config, Disk
from claudemesh.kernel.errors import CassetteUnavailable, MessageCassetteError
from claudemesh.ledger import MessageCassette
from claudemesh.runtime.keys import KeyPair
from tests.chaos import disks
from tests.edge_doubles import Edge
from tests.fake_upstream import FakeUpstream
from tests.mesh import WITHIN_S, LocalDaemon, local_broker, local_daemon, rejoin

BOB = "b" * 64
BODY = "x" * 4_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "small") as place:
        yield place


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
    more = ""
    while True:
        page = await daemon.get(f"/v1/outbox?limit=1000{more}")
        found += [row["client_message_id"] for row in page["rows"]]
        if page["next_cursor"] is None:
            return found
        more = f"&cursor={page['next_cursor']}"


async def reserve(daemon: LocalDaemon, reserved_bytes: int) -> None:
    (daemon.state_dir / "config.toml").write_text(f"[disk]\nreserved_bytes = {reserved_bytes}\n")
    assert (await daemon.post("/v1/reload", {})).body["applied"] == ["disk.reserved_bytes"]


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
            gauge = 'cm_daemon_disk_pct{store="outbox"} '
            (pct,) = [line.split()[1] for line in metrics.splitlines() if line.startswith(gauge)]
            assert 95 <= float(pct) < 100, "beyond that nothing would be sent"
            assert "daemon.outbox_pressure_high" in (here / "daemon.log").read_text()
            await broker.start()
            await alice.until(lambda health: health["queue_depth"] == health["inflight"] == 0)
            assert await ids(alice) == accepted, "each was judged by the broker, in the end"
            assert refused not in accepted


@pytest.mark.req("D11")
async def test_an_outbox_without_any_room_sends_nothing_takes_what_comes_in_and_goes_on_later(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        await broker.stop()
        async with rejoin(here) as alice:
            accepted = [f"m{number}" for number in range(400)]
            bob_key = identity.load_keys(there).pubkey
            for key in accepted:
                assert (await alice.send(bob_key, BODY, client_message_id=key)).status == 202
            await reserve(alice, 1 << 20)
            await broker.start()
            async with rejoin(there) as bob:
                await alice.until(lambda health: health["connected"])
                await bob.until(lambda health: health["connected"])
                assert (await bob.send(alice.keys.pubkey, "inbound", client_message_id="b1")).status == 202
                assert [message["body"] for message in await alice.receives(1)] == ["inbound"]
                health = await alice.get("/v1/health")
                assert (health["queue_depth"], health["inflight"]) == (len(accepted), 0)
                assert await bob.inbox() == []
                await reserve(alice, 1 << 30)
                got = await bob.receives(len(accepted))
                assert [message["client_message_id"] for message in got] == accepted


@pytest.mark.req("D11", "Q1")
async def test_an_inbox_without_room_makes_the_broker_wait_and_gets_everything_in_order_later(
    tmp_path: Path,
) -> None:
    count = 500
    config = Config(disk=Disk(reserved_bytes=1 << 20))
    async with local_broker(tmp_path) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with (
            rejoin(here) as alice,
            local_daemon(there, keys=identity.load_keys(there), config=config) as bob,
        ):
            full = asyncio.Event()
            bob.world.observer.subscribe(Warned, lambda event: event.what == "inbox_full" and full.set())
            await bob.until(lambda health: health["connected"])
            await alice.until(lambda health: health["connected"])
            for number in range(count):
                assert (await alice.send("bob", f"{number} {BODY}")).status == 202
            async with asyncio.timeout(WITHIN_S):
                await full.wait()
            await alice.until(lambda health: health["queue_depth"] == health["inflight"] == 0)
            assert len(await bob.inbox()) < count
            assert (await bob.send("alice", "outbound goes on")).status == 202
            assert len(await alice.receives(1)) == 1
            await reserve(bob, 1 << 30)
            got = [int(message["body"].partition(" ")[0]) for message in await bob.receives(count)]
            assert got == list(range(count))


def post_until_refused(ledger: MessageCassette) -> tuple[list[str], MessageCassetteError]:
    """Return the messages that were taken, and what was said of the one that was not."""
    posted: list[str] = []
    try:
        while len(posted) < 5_000:
            posted.append(ledger.post_message({"text": BODY}, "r", "USER", f"k{len(posted)}")[0])
    except MessageCassetteError as error:
        return posted, error
    raise AssertionError("the disk never became full")


@pytest.mark.req("L4")
def test_a_ledger_without_room_refuses_keeps_what_it_has_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    with MessageCassette(db_path=small_disk / "work.db") as ledger:
        posted, refused = post_until_refused(ledger)
        assert "full" in str(refused)
        assert not isinstance(refused, CassetteUnavailable)  # it is known that nothing was written
        assert [step["message_id"] for step in ledger.list_steps(limit=5_000)] == posted
        assert ledger.find_issues() == []
        ballast.unlink()
        ledger.post_message({"text": BODY}, "r", "USER", f"k{len(posted)}")
        step = ledger.claim_step("r", "w")
        assert step["message_id"] == posted[0]
        ledger.complete_step("r", step["step_id"], "w", step["fencing_token"], {}, "SUCCESS")
        assert ledger.find_issues() == []


@pytest.mark.req("R5")
async def test_a_relay_without_room_refuses_and_applies_once_all_that_it_kept(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 2_000_000)
    upstream = FakeUpstream()
    await upstream.open()
    edge = Edge(small_disk / "edge", upstream.url)
    await edge.start()
    await edge.go_offline(upstream)
    note, kept = {"agent": "a", "summary": BODY}, list[str]()
    while (answer := await edge.ask("POST", "/progress/", note, key=f"k{len(kept)}")).status == 202:
        kept.append(f"k{len(kept)}")
        assert len(kept) < 5_000, "the disk never became full"
    refused = f"k{len(kept)}"
    assert (answer.status, answer.code) == (507, "insufficient_storage")
    assert len(kept) > 20
    assert (await edge.ask("POST", "/progress/", note, key=kept[0])).status == 202, "what waits is still known"
    await edge.restart()
    assert (await edge.status())["pending"] == len(kept)
    ballast.unlink()
    assert (await edge.ask("POST", "/progress/", note, key=refused)).status == 202, "its key was still free"
    upstream.rule = lambda _: disks.fill(ballast)  # so that there may be no room to write down what it answers
    await edge.go_online(upstream)
    await upstream.until(lambda: len(upstream.writes) > 10)
    upstream.rule = lambda _: None
    ballast.unlink()
    await edge.until_settled()
    assert {key: upstream.applied[key] for key in (*kept, refused)} == dict.fromkeys((*kept, refused), 1)
    await edge.stop()
    await upstream.close()
