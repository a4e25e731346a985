"""The six scenarios of continuous presence, with real processes, seen from outside.

Scaled down here; `--effort=soak` runs them at full length: a lease of 90 s, a nap of 60 s, and 120 s offline.
"""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from claudemesh.runtime.keys import KeyPair
from claudemesh.wire import frames, signing
from tests.chaos.presence import FULL, LATE_S, SHORT, Times, Town, Watch, town, until
from tests.chaos.presence_clients import attach
from tests.chaos.presence_line import Line, is_resumed
from tests.chaos.presence_network import network, town_on
from tests.conftest import EFFORTS
from tests.integration.broker_client import opened

pytestmark = [pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="module")]

WATCHER, THIEF = "watcher", "thief"
NAMES = ("sleeper", "goner", "target", "original")
PREFIX = "mesh-resume.v1."


@pytest.fixture(scope="module")
def times(effort: int) -> Times:
    return FULL if effort >= EFFORTS["soak"] else SHORT


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory, times: Times) -> AsyncIterator[Town]:
    """Have a town whose watcher is there."""
    async with town(tmp_path_factory.mktemp("town"), times, WATCHER, THIEF, *NAMES) as made:
        await made.daemon(WATCHER)
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def watch(place: Town) -> AsyncIterator[Watch]:
    async with Watch(place.state_dir(WATCHER) / "sock").opened() as opened_now:
        yield opened_now


@pytest_asyncio.fixture(loop_scope="module")
async def line(place: Town) -> AsyncIterator[Line]:
    async with Line(place.url).opened() as laid:
        yield laid


# --- asleep ----------------------------------------------------------------------------------------------


@pytest.mark.req("P1", "P3", "P4", "P10", "P12")
async def test_a_daemon_that_sleeps_for_less_than_its_lease_is_never_missed_and_resumes(
    place: Town, times: Times, watch: Watch, line: Line
) -> None:
    sleeper = await place.daemon("sleeper", line.url)
    session = await place.register("sleeper")
    await watch.until(lambda: watch.of("sleeper") == watch.of_key(session) == ["peer_joined"])
    await place.show_life("sleeper")
    sleeper.stop()
    waking_up = asyncio.create_task(asyncio.sleep(times.nap_s))
    assert "sleeper" in [peer["name"] for peer in (await place.run(WATCHER, "peer", "list"))["peers"]]
    await waking_up
    sleeper.go_on()
    await place.until_transport(WATCHER, "sleeper", "online")
    await place.until_connected("sleeper")
    if times.nap_s > times.stale_s:  # its socket was given up meanwhile
        await until(lambda: len(line.acks()) >= 4)  # its own, and the session's
        assert all(hello["resumeToken"] for hello in line.hellos()[2:])
        assert [is_resumed(ack) for ack in line.acks()] == [False, False, True, True]
    await place.settled(watch)
    assert watch.of("sleeper") == watch.of_key(session) == ["peer_joined"]


@pytest.mark.req("P1", "P5", "P12")
async def test_a_daemon_that_is_away_for_longer_leaves_once_a_leases_time_later_and_comes_back_once(
    place: Town, times: Times, watch: Watch
) -> None:
    goner = await place.daemon("goner")
    session = await place.register("goner")
    await watch.until(lambda: watch.of("goner") == watch.of_key(session) == ["peer_joined"])
    await place.show_life("goner")
    goner.stop()
    stopped = time.monotonic()
    bound_s = times.lease_s + times.ping_s + LATE_S
    await watch.until(lambda: bool(watch.of("goner")[1:] and watch.of_key(session)[1:]), bound_s)
    assert watch.of("goner") == watch.of_key(session) == ["peer_joined", "peer_left"]
    left = next(
        one for one in watch.all if (one.what, one.name, one.session_pubkey) == ("peer_left", "goner", None)
    )
    assert times.lease_s - times.ping_s < left.at_s - stopped < bound_s
    assert "goner" not in [peer["name"] for peer in (await place.run(WATCHER, "peer", "list"))["peers"]]
    await asyncio.sleep(times.coma_s - (time.monotonic() - stopped))
    goner.go_on()
    await watch.until(lambda: bool(watch.of("goner")[2:] and watch.of_key(session)[2:]))
    await place.until_connected("goner")
    await place.settled(watch)
    assert watch.of("goner") == watch.of_key(session) == ["peer_joined", "peer_left", "peer_joined"]


# --- a network that loses everything ---------------------------------------------------------------------


@pytest.mark.req("P1", "P3", "P4", "P7", "P12")
async def test_a_network_that_loses_every_packet_for_a_while_is_noticed_by_both_sides_and_by_nobody_else(
    tmp_path: Path, times: Times
) -> None:
    if times is SHORT:  # a handshake that was begun in vain is tried again by TCP after 1, 3 and 7 s
        times = replace(SHORT, lease_s=15.0)
    async with network() as hosts, town_on(hosts, tmp_path, times, WATCHER, "roamer", "latecomer") as place:
        await place.daemon(WATCHER)
        watch = await place.watch(WATCHER)
        await place.daemon("roamer", within=hosts.far.within)
        await watch.until(lambda: watch.of("roamer") == ["peer_joined"])
        await place.show_life("roamer")
        hosts.lose_everything()
        if times.nap_s > times.stale_s:
            entry = await place.until_transport(WATCHER, "roamer", "offline")
            assert (entry["status"], entry["reach"]) == ("online", "on_return")
            await place.client("roamer").until(lambda health: not health["connected"])
        else:
            await asyncio.sleep(times.nap_s)
        assert (
            await place.client(WATCHER).send("roamer", "are you there?", client_message_id="asked")
        ).status == 202
        hosts.heal()
        await place.until_transport(WATCHER, "roamer", "online")
        await place.client("roamer").receives(1)
        await place.run("roamer", "send", WATCHER, "here I am", "--wait", "delivered")
        again = ("send", "roamer", "are you there?", "--id", "asked", "--wait", "delivered")
        assert (await place.run(WATCHER, *again))["state"] == "delivered"
        await place.daemon("latecomer")  # whoever is told of this was told of all before it
        await watch.until(lambda: bool(watch.of("latecomer")))
        assert watch.of("roamer") == ["peer_joined"]
        assert [message["body"] for message in await place.client("roamer").inbox()] == ["are you there?"]


# --- a message for somebody who is cut off --------------------------------------------------------------


@pytest.mark.req("P3", "P8", "P12")
async def test_messages_of_every_priority_wait_for_one_in_grace_and_arrive_once_in_order(
    place: Town, watch: Watch, line: Line
) -> None:
    target = await place.daemon("target", line.url)
    await watch.until(lambda: watch.of("target") == ["peer_joined"])
    target.stop()
    line.cut()
    entry = await place.until_transport(WATCHER, "target", "offline")
    assert (entry["status"], entry["reach"]) == ("online", "on_return")
    sent = [
        await place.run(WATCHER, "send", "target", f"a message for {priority}", "--priority", priority)
        for priority in ("now", "next")
    ]
    last = ("send", "target", "a message for low", "--priority", "low", "--wait")
    sent.append(await place.run(WATCHER, *last, "accepted"))
    assert [one["status"] for one in sent[:2]] == ["queued", "queued"]
    assert (await place.entry(WATCHER, "target"))["waiting"] == 3
    target.go_on()
    # The same id again: it is the one message, and it says how far that is.
    again = await place.run(WATCHER, *last, "delivered", "--id", sent[-1]["client_message_id"])
    assert again["state"] == "delivered"
    bodies = [message["body"] for message in (await place.run("target", "inbox"))["messages"]]
    assert bodies == ["a message for now", "a message for next", "a message for low"]
    for one in sent:
        assert (await place.run(WATCHER, "trace", one["client_message_id"]))["state"] == "delivered"
    await place.settled(watch)
    assert watch.of("target") == ["peer_joined"]


# --- a token in the wrong hands -------------------------------------------------------------------------


@pytest.mark.req("P6", "P12")
async def test_a_token_that_was_captured_opens_nothing_and_its_owner_stays_connected(
    place: Town, watch: Watch, line: Line
) -> None:
    await place.daemon("original", line.url)
    await place.until_connected("original")
    line.cut()
    await until(lambda: len(line.acks()) > 1)  # so that a hello that resumes is among what was captured
    captured = line.hellos()[-1]
    assert captured["resumeToken"]
    assert is_resumed(line.acks()[-1])
    await until(lambda: any(one["type"] == "lease_renewed" for one in line.told))
    live = line.newest_token()
    thief, original = place.peer(THIEF), place.peer("original")
    as_captured = msgspec.convert(captured, frames.Hello)
    for forge in (
        lambda _: as_captured,  # word for word
        lambda _: msgspec.structs.replace(as_captured, resume_token=live),
        lambda nonce: signed(thief.keys, original.hello(nonce, signature="", resume_token=live), nonce),
    ):
        async with opened(original.broker) as wire:
            await wire.say(forge(wire.nonce))
            assert (await wire.closed())[0] == frames.CLOSE_UNAUTHENTICATED
    async with thief.connected(resume_token=live) as wire:  # as itself it may come, and gets nothing by it
        assert not wire.ack.resumed
        assert wire.ack.presence_id != line.acks()[-1]["presenceId"]
        await wire.call("presence.end")
    assert line.connections == 2, "nobody was sent away"
    await place.run(WATCHER, "send", "original", "still there?", "--wait", "delivered")
    assert line.connections == 2
    await place.settled(watch)
    assert watch.of("original") == ["peer_joined"]


@pytest.mark.req("P4", "P6", "P12")
async def test_a_token_that_no_broker_signed_is_as_none(place: Town, watch: Watch) -> None:
    thief, keys = place.peer(THIEF), KeyPair.generate()
    async with attach(thief, keys) as wire:
        good: str = wire.ack.resume_token or ""
        presence_id = wire.ack.presence_id
    text = good.removeprefix(PREFIX).partition(".")[0]
    forged = PREFIX + text + "." + encode(bytes.fromhex(KeyPair.generate().sign(signing.resume_bytes(text))))
    async with opened(thief.broker) as wire:  # with nothing but the token to show for itself
        hello = thief.hello(wire.nonce, signature="", session_pubkey=keys.pubkey, presence_only=True)
        hello = msgspec.structs.replace(hello, resume_token=forged)
        await wire.say(signed(keys, hello, wire.nonce))
        assert await wire.closed() == (frames.CLOSE_UNAUTHENTICATED, "bad_attestation")
    async with attach(thief, keys, resume_token=forged) as wire:
        assert (wire.ack.resumed, wire.ack.presence_id) == (False, presence_id)
        await place.settled(watch)
        assert watch.of_key(keys.pubkey) == ["peer_joined"]
        await wire.call("presence.end")


def signed(keys: KeyPair, hello: frames.Hello, nonce: str) -> frames.Hello:
    return msgspec.structs.replace(hello, signature=keys.sign(signing.hello_bytes(nonce, hello)))


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
