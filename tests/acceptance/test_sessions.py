"""Sessions, seen by the others: real daemons, a real broker, and the lease between them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from claudemesh.broker.settings import Presence
from claudemesh.daemon import identity
from claudemesh.daemon.events import BrokerConnected
from claudemesh.daemon.settings import Config, SessionLimits
from claudemesh.daemon.stores.sqlite.inbox import SqliteInboxStore
from claudemesh.runtime.keys import KeyPair
from tests.mesh import WITHIN_S, LocalDaemon, local_broker, local_daemon, local_mesh, rejoin

QUICK = Presence(lease_ttl_ms=2_000, ping_interval_ms=400, stale_pong_ms=1_200)
LONG = Presence(lease_ttl_ms=60_000)
TIMES = {"lease_ttl_ms": 2_000, "ping_interval_ms": 400, "stale_pong_ms": 1_200}
REAPS = Config(sessions=SessionLimits(reap_every_s=0.1))


class Seen:
    """What a daemon's readers are told of who comes and goes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str | None]] = []  # joined or left, whose, and of which session
        self.seqs: list[int] = []
        self._moved = asyncio.Event()

    def note(self, what: str, data: dict[str, Any]) -> None:
        self.events.append((what.removeprefix("peer_"), data["name"], data["display_name"]))
        self.seqs.append(data["seq"])
        self._moved.set()

    async def until(self, count: int) -> list[tuple[str, str, str | None]]:
        async with asyncio.timeout(WITHIN_S):
            while len(self.events) < count:
                self._moved.clear()
                await self._moved.wait()
        return self.events


@asynccontextmanager
async def watching(daemon: LocalDaemon, after: str = "") -> AsyncIterator[Seen]:
    """Follow the daemon's stream; it stands when this is entered."""
    seen, stands = Seen(), asyncio.Event()

    async def read() -> None:
        reader, writer = await asyncio.open_unix_connection(str(daemon.state_dir / "sock"))
        resume = f"last-event-id: {after}\r\n" if after else ""
        writer.write(f"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n{resume}\r\n".encode())
        what = ""
        try:
            async for line in reader:
                text = line.decode().rstrip()
                if text.startswith("event: "):
                    what = text.removeprefix("event: ")
                elif text.startswith("data: ") and what.startswith("peer_"):
                    seen.note(what, json.loads(text.removeprefix("data: ")))
                elif text.startswith(": here"):
                    stands.set()
        finally:
            writer.close()

    reading = asyncio.create_task(read())
    try:
        await asyncio.wait_for(stands.wait(), WITHIN_S)
        yield seen
    finally:
        reading.cancel()


async def register(daemon: LocalDaemon, token: str, pid: int | None = None, **said: object) -> dict[str, Any]:
    answer = await daemon.post("/v1/sessions/register", {"token": token, "pid": pid or os.getpid(), **said})
    assert answer.status in (200, 201), answer.body
    return answer.body


async def end(daemon: LocalDaemon, token: str) -> dict[str, Any]:
    return (await daemon.request("DELETE", f"/v1/sessions/{token}")).body


async def sessions_of(daemon: LocalDaemon, name: str) -> list[dict[str, Any]]:
    peers = (await daemon.get("/v1/peers"))["peers"]
    return next(peer["sessions"] for peer in peers if peer["name"] == name)


@pytest.mark.req("P10", "P11", "P5")
async def test_a_session_is_seen_while_it_is_registered_and_seen_to_leave_once(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", presence=LONG) as (_, alice, bob), watching(bob) as seen:
        said = {"display_name": "claude-1", "cwd": "/srv", "role": "builder", "groups": ["g"], "topics": ["t"]}
        registered = await register(alice, "t1", **said)
        assert registered["status"] == "online"
        (session,) = await sessions_of(bob, "alice")
        assert session.items() >= {"session_pubkey": registered["session_pubkey"], **said}.items()
        assert session["since"].endswith("Z")
        assert (await end(alice, "t1")) == {"session_pubkey": registered["session_pubkey"], "told": True}
        assert await sessions_of(bob, "alice") == []
        await register(alice, "t2", display_name="claude-2")
        assert await seen.until(3) == [
            ("joined", "alice", "claude-1"),
            ("left", "alice", "claude-1"),
            ("joined", "alice", "claude-2"),
        ]


@pytest.mark.req("P3", "P4", "P2")
async def test_a_connection_that_is_cut_and_resumed_is_seen_by_nobody(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", presence=LONG) as (broker, alice, bob), watching(bob) as seen:
        registered = await register(alice, "t1", display_name="claude-1")
        await seen.until(1)
        for _ in range(3):
            await broker.stop()
            await alice.until(lambda health: not health["connected"])
            await broker.start()
            for daemon in (alice, bob):
                await daemon.until(lambda health: health["connected"])
            await alice.until(lambda found: found["sessions"][0]["status"] == "online", "/v1/sessions")
        (session,) = await sessions_of(bob, "alice")
        assert session["session_pubkey"] == registered["session_pubkey"]
        await register(alice, "t2", display_name="claude-2")
        assert await seen.until(2) == [("joined", "alice", "claude-1"), ("joined", "alice", "claude-2")]


@pytest.mark.req("P5", "P1")
async def test_a_daemon_that_is_gone_for_longer_than_its_lease_leaves_once_and_returns_once(tmp_path: Path) -> None:
    async with local_broker(tmp_path, presence=QUICK) as broker:
        here, there, elsewhere = await broker.enrol("alice", "bob", "carol")
        async with local_daemon(there, keys=identity.load_keys(there), **TIMES) as bob:
            await bob.until(lambda health: health["connected"])
            async with watching(bob) as seen:
                async with local_daemon(here, keys=identity.load_keys(here), **TIMES) as alice:
                    await alice.until(lambda health: health["connected"])
                    await register(alice, "t1", display_name="claude-1")
                    async with local_daemon(elsewhere, keys=identity.load_keys(elsewhere), **TIMES) as carol:
                        await carol.until(lambda health: health["connected"])
                    # A whole lease of another's runs out meanwhile: while a socket carries one, it stands.
                    assert (await seen.until(4))[2:] == [("joined", "carol", None), ("left", "carol", None)]
                left = await seen.until(6)
                assert {*left[4:]} == {("left", "alice", None), ("left", "alice", "claude-1")}
                async with local_daemon(here, keys=identity.load_keys(here), **TIMES) as alice:
                    await alice.until(lambda health: health["connected"])
                    assert (await seen.until(7))[6:] == [("joined", "alice", None)]
                    assert (await alice.get("/v1/sessions"))["sessions"] == [], "its processes register again"
            assert seen.seqs == [*range(seen.seqs[0], seen.seqs[0] + 7)]


@pytest.mark.req("N4", "P2")
@pytest.mark.parametrize("policy", ["prefer_oldest", "allow_concurrent"])
async def test_a_session_that_its_daemon_brings_back_with_its_key_is_the_same_one(
    tmp_path: Path, policy: str
) -> None:
    keys = KeyPair.generate()
    said = {"session_keypair": {"pubkey": keys.pubkey, "seed": keys.seed.hex()}, "display_name": "claude-1"}
    async with local_broker(tmp_path, presence=LONG) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(there) as bob:
            await bob.until(lambda health: health["connected"])
            async with rejoin(here) as alice:
                await alice.until(lambda health: health["connected"])
                assert (await alice.post("/v1/mesh/set", {"connections": policy})).status == 200
                assert (await register(alice, "t1", **said))["status"] == "online"
            async with watching(bob) as seen, rejoin(here) as alice:
                await alice.until(lambda health: health["connected"])
                assert (await register(alice, "t1", **said))["status"] == "online", "its own lease lets it in"
                assert [one["session_pubkey"] for one in await sessions_of(bob, "alice")] == [keys.pubkey]
                await register(alice, "t2", display_name="claude-2")
                assert await seen.until(1) == [("joined", "alice", "claude-2")]


@pytest.mark.req("P5")
async def test_what_happened_while_a_daemon_was_away_is_told_once_on_its_return(tmp_path: Path) -> None:
    async with local_broker(tmp_path, presence=LONG) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with rejoin(here) as alice:
            await alice.until(lambda health: health["connected"])
            async with rejoin(there) as bob:
                await bob.until(lambda health: health["connected"])
                await register(alice, "t1", display_name="claude-1")
                async with watching(bob) as seen:
                    await register(alice, "t2", display_name="claude-2")
                    await seen.until(1)
            await end(alice, "t1")
            await register(alice, "t3", display_name="claude-3")
            async with rejoin(there) as bob, watching(bob) as seen:
                await bob.until(lambda health: health["connected"])
                await end(alice, "t3")
                async with asyncio.timeout(WITHIN_S):
                    while ("left", "alice", "claude-3") not in seen.events:
                        await seen.until(len(seen.events) + 1)
                everything = await _all_events(bob)
    told = [(data["seq"], data["display_name"]) for data in everything]
    assert [name for _, name in told] == ["claude-1", "claude-2", "claude-1", "claude-3", "claude-3"]
    assert [seq for seq, _ in told] == [*range(told[0][0], told[0][0] + 5)]


async def _all_events(daemon: LocalDaemon) -> list[dict[str, Any]]:
    """Read all that a daemon ever told, from its file."""
    inbox = SqliteInboxStore.open(daemon.state_dir / "inbox.db")
    try:
        return [entry.data or {} for entry in await inbox.events(0, 1_000) if entry.type.startswith("peer_")]
    finally:
        await asyncio.to_thread(inbox.close)


@pytest.mark.req("P8", "Q1")
async def test_a_message_to_a_session_is_in_its_daemons_inbox_and_names_it(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", presence=LONG) as (_, alice, bob):
        session = (await register(alice, "t1", display_name="claude-1"))["session_pubkey"]
        assert (await bob.send(session, "for the session", client_message_id="m1")).status == 202
        assert (await bob.send("alice", "for alice", client_message_id="m2")).status == 202
        shown = {message["body"]: message["to_session"] for message in await alice.receives(2)}
        assert shown == {"for the session": session, "for alice": None}
        await end(alice, "t1")
        assert (await bob.send(session, "too late", client_message_id="m3", priority="now")).status == 202
        assert (await alice.receives(3))[-1]["body"] == "too late"


@pytest.mark.req("P10", "P5")
async def test_a_session_whose_process_was_killed_is_seen_to_leave_before_its_lease_ends(tmp_path: Path) -> None:
    async with local_broker(tmp_path, presence=LONG) as broker:
        here, there = await broker.enrol("alice", "bob")
        async with local_daemon(here, keys=identity.load_keys(here), config=REAPS) as alice, rejoin(there) as bob:
            for daemon in (alice, bob):
                await daemon.until(lambda health: health["connected"])
            async with watching(bob) as seen:
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE
                )
                await register(alice, "t1", child.pid, display_name="claude-1")
                child.kill()
                await child.wait()
                assert await seen.until(2) == [("joined", "alice", "claude-1"), ("left", "alice", "claude-1")]


@pytest.mark.req("P10")
async def test_what_a_session_says_anew_is_seen_without_a_departure(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", presence=LONG) as (_, alice, bob), watching(bob) as seen:
        await register(alice, "t1", display_name="before")
        await register(alice, "t1", display_name="after", role="reviewer")
        await bob.until(
            lambda found: (
                [session["display_name"] for peer in found["peers"] for session in peer["sessions"]] == ["after"]
            ),
            "/v1/peers",
        )
        await end(alice, "t1")
        assert [what for what, _, _ in await seen.until(2)] == ["joined", "left"]


@pytest.mark.req("P11", "P13")
async def test_with_all_a_peer_says_whether_a_message_would_be_seen(tmp_path: Path) -> None:
    async with local_broker(tmp_path, presence=LONG) as broker:
        places = await broker.enrol("alice", "bob", "carol")
        async with rejoin(places[0]) as alice:
            await alice.until(lambda health: health["connected"])
            async with rejoin(places[1]) as bob:
                await bob.until(lambda health: health["connected"])
                await register(bob, "t1", display_name="claude-1")
            for name in ("bob", "carol"):
                await alice.send(name, "hello", client_message_id=f"m-{name}")
            found = await alice.until(
                lambda found: all(peer["waiting"] for peer in found["peers"] if peer["name"] != "alice"),
                "/v1/peers?all=1",
            )
            peers = {peer["name"]: peer for peer in found["peers"]}
            assert {name: peer["reach"] for name, peer in peers.items()} == {
                "alice": "now",
                "bob": "on_return",
                "carol": "waits",
            }
            assert {name: peer["status"] for name, peer in peers.items()} == {
                "alice": "online",
                "bob": "online",
                "carol": "offline",
            }
            assert 0 < peers["bob"]["lease_left_ms"] <= LONG.lease_ttl_ms
            assert peers["bob"]["sessions"][0]["transport"] == "offline"


@pytest.mark.req("P5", "D16")
async def test_a_daemon_for_one_run_is_seen_to_leave_when_it_ends(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", presence=LONG) as (_, alice, bob), watching(bob) as seen:
        place = alice.state_dir
        joined, keys = identity.load_membership(place), identity.load_keys(place)
        run = local_daemon(tmp_path / "run" / "demo", keys=keys, joined=joined, ephemeral_ttl_ms=60_000)
        async with run as daemon:
            await daemon.until(lambda health: health["connected"])
            await seen.until(1)
        assert [what for what, _, _ in await seen.until(2)] == ["joined", "left"]


@pytest.mark.req("P5")
async def test_whoever_leaves_at_once_is_seen_to_leave_with_all_its_sessions(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", presence=LONG) as (_, alice, bob), watching(bob) as seen:
        await register(alice, "t1", display_name="claude-1")
        assert (await alice.post("/v1/presence/end", {})).status == 200
        events = await seen.until(3)
        assert {*events[1:]} == {("left", "alice", None), ("left", "alice", "claude-1")}
        assert [peer["name"] for peer in (await bob.get("/v1/peers"))["peers"]] == ["bob"]


@pytest.mark.req("P4", "P6", "P2")
async def test_a_daemon_whose_broker_was_restarted_resumes_and_what_waited_comes_in_order(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob", presence=LONG) as (broker, alice, bob):
        resumed: list[bool] = []
        alice.world.observer.subscribe(BrokerConnected, lambda event: resumed.append(event.resumed))
        for round_ in range(2):
            await broker.stop()
            await alice.until(lambda health: not health["connected"])
            for number in range(3):
                await bob.send("alice", f"{round_}.{number}", priority="now")
            await broker.start()
            await alice.until(lambda health: health["connected"])
        bodies = [message["body"] for message in await alice.receives(6)]
        assert bodies == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
        assert resumed == [True, True]
