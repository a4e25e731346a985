"""The broker, from here: whether it is reached, is the one that was joined, and goes by about the same time."""

from collections.abc import Iterator
from typing import Final

from claudemesh.cli.daemon import SUPERVISED
from claudemesh.cli.doctor.model import Finding, absent, declare, fail, ok, unknown, warn
from claudemesh.cli.doctor.probe import Step
from claudemesh.cli.doctor.scene import Scene
from claudemesh.daemon.identity import Joined
from claudemesh.wire.frames import CLOCK_SKEW_MAX_MS

REACH_S: Final = 15.0
SKEW_WARN_MS: Final = 10_000
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")

_NONE: Final = "no mesh is joined"
_FIXES: Final[dict[Step, str]] = {
    "address": "join again with a code that names the broker: `claudemesh mesh join CODE --name PEER`",
    "name": "look it up: `getent hosts {host}`; check the network, or the name in membership.json",
    "port": "{start}; or see whether a firewall is between",
    "certificate": "look at it: `openssl s_client -connect {host}`; renew it there, or trust its root here",
    "answer": "see what listens there: `curl {url}/v1/health`",
}


def _joined(scene: Scene) -> Iterator[tuple[str, Joined]]:
    return ((slug, joined) for slug in scene.meshes if (joined := scene.joined(slug)) is not None)


def start_of(scene: Scene, broker_url: str) -> str:
    """Say how this broker is started where it was: that of `up` with it, and each at the port that was joined."""
    if not is_here(broker_url):
        return "start it there: `claudemesh broker serve`"
    of_up = scene.joined(SUPERVISED)
    # Also for other meshes that were made at the broker of `up`: two brokers cannot have one port.
    words = "up" if of_up is not None and of_up.broker_url == broker_url else "broker serve"
    return f"start it: `claudemesh {words} --listen {_host(broker_url)}`"


def is_here(broker_url: str) -> bool:
    return _host(broker_url).rpartition(":")[0] in LOOPBACK


def _host(broker_url: str) -> str:
    return broker_url.partition("://")[2].partition("/")[0]


@declare(
    "broker",
    "reachable",
    "The broker's name resolves, its port answers, its certificate is trusted, and it answers as a broker.",
    "The detail names the step that failed: the name (DNS), the port, the certificate or the answer. While "
    "it is away sends are "
    "kept, and go out when it is back.",
    REACH_S,
)
def reachable(scene: Scene) -> Iterator[Finding]:
    count = 0
    for slug, joined in _joined(scene):
        count += 1
        found = scene.broker(joined.broker_url)
        if found.step != "reached":
            start = start_of(scene, joined.broker_url)
            fix = _FIXES[found.step].format(host=_host(joined.broker_url), url=joined.broker_url, start=start)
            yield fail(f"{joined.broker_url}: at its {found.step}: {found.detail}", fix, slug)
        else:
            version = (found.health or {}).get("broker_version")
            yield ok(f"{joined.broker_url} {found.detail}, version {version}", slug)
    if not count:
        yield absent(_NONE)


@declare(
    "broker",
    "same-broker",
    "The broker that answers has the key that this machine joined with.",
    "Another broker, or one whose store was made anew, is not the one you joined: ask for a new invite.",
)
def same_broker(scene: Scene) -> Iterator[Finding]:
    count = 0
    for slug, joined in _joined(scene):
        health = scene.broker(joined.broker_url).health
        if health is None:
            continue
        count += 1
        if health["broker_key"] == joined.broker_key:
            yield ok("it has the key that was joined", slug)
        else:
            fix = "ask for a new invite, `claudemesh mesh leave`, and `claudemesh mesh join CODE --name PEER`"
            yield fail("another broker answers there: its key is not the one that was joined", fix, slug)
    if not count:
        yield absent("no broker was reached")


@declare(
    "broker",
    "clock",
    "The clocks of this machine and of the broker differ by less than a minute; beyond that no hello is accepted.",
    "Set the clock that is wrong: `timedatectl set-ntp true`.",
)
def clock(scene: Scene) -> Iterator[Finding]:
    count = 0
    for slug, joined in _joined(scene):
        found = scene.broker(joined.broker_url)
        if found.step != "reached":
            continue
        count += 1
        if found.skew_ms is None:
            yield unknown("the broker does not tell its time", "upgrade the broker", slug)
            continue
        ahead = "ahead of" if found.skew_ms < 0 else "behind"
        said = f"this clock is {abs(found.skew_ms) / 1000:.1f} s {ahead} the broker's"
        fix = "set the clock that is wrong: `timedatectl set-ntp true`; `date -u` on both shows which"
        if abs(found.skew_ms) > CLOCK_SKEW_MAX_MS:
            yield fail(f"{said}: it refuses this member", fix, slug)
        elif abs(found.skew_ms) > SKEW_WARN_MS + found.took_ms:
            yield warn(said, fix, slug)
        else:
            yield ok(said, slug)
    if not count:
        yield absent("no broker was reached")


CHECKS: Final = (reachable, same_broker, clock)
