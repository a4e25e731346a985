"""Members of a mesh, made as the command line makes them; and waiting for what they sent to arrive."""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from benchmarks.processes import POLL_S
from claudemesh.cli import enrol
from claudemesh.daemon import identity
from claudemesh.daemon.client import Client, mint_id
from claudemesh.daemon.identity import Joined
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home
from claudemesh.runtime.keys import KeyPair

SLUG = "bench"
WITHIN_S = 60.0
HOUR_MS = 3_600_000


def enrol_members(folder: Path, broker_url: str, *names: str) -> list[Path]:
    """Make a mesh with these members, the first its owner, and return their state directories."""
    clock = SystemClock()
    homes = [Home(folder / "homes" / name) for name in names]
    owner = enrol.create(enrol.Enrolment(homes[0], names[0], clock), SLUG, broker_url)
    keys = identity.load_keys(homes[0].mesh_dir(SLUG))
    invite = enrol.make_invite(owner, keys, mint_id(), len(names), clock.wall_ms() + HOUR_MS)
    for home, name in zip(homes[1:], names[1:], strict=True):
        enrol.join(enrol.Enrolment(home, name, clock), invite)
    return [home.mesh_dir(SLUG) for home in homes]


def lonely_member(folder: Path) -> Path:
    """Make a member of a mesh whose broker is not there: port 9 is nobody's."""
    state_dir = folder / SLUG
    state_dir.mkdir(mode=0o700)
    joined = Joined(
        mesh_id="01" + "A" * 24,
        slug=SLUG,
        member_id="01" + "B" * 24,
        name="alice",
        role="owner",
        broker_key="0" * 64,
        broker_url="http://127.0.0.1:9",
    )
    identity.store(state_dir, KeyPair.generate(), joined)
    return state_dir


def pubkey_of(state_dir: Path) -> str:
    return identity.load_keys(state_dir).pubkey


def until_connected(state_dir: Path) -> None:
    with Client(state_dir / "sock") as client:
        _until(lambda: bool(client.health()["connected"]), f"{state_dir} is not connected")


def until_sent(state_dir: Path) -> None:
    """Wait until the broker has answered for everything in the outbox. What this asks costs more the more waits."""

    def is_empty() -> bool:
        health = client.health()
        return int(health["queue_depth"]) + int(health["inflight"]) == 0

    with Client(state_dir / "sock") as client:
        _until(is_empty, "the outbox is not sent")


def until_received(state_dir: Path, count: int) -> None:
    """Wait until an inbox holds so many messages."""
    with Client(state_dir / "sock") as client:
        _until(lambda: _count_inbox(client) >= count, "the messages have not arrived")


def _count_inbox(client: Client) -> int:
    return int(client.request("POST", "/v1/inbox/read", {"ids": []})[1]["unread"])


def until_depth(broker_url: str, depth: int) -> float:
    """Wait until so many deliveries wait for their recipient's ack; return when that was."""
    _until(lambda: depth_of(broker_url) == depth, "the broker does not have them, or not their acks")
    return time.monotonic()


def depth_of(broker_url: str) -> int:
    with urllib.request.urlopen(f"{broker_url}/v1/health", timeout=WITHIN_S) as answer:  # noqa: S310  our own
        return int(json.load(answer)["delivery_depth"])


def _until(is_so: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < until_s, what
        time.sleep(POLL_S)
