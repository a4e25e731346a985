"""Who this machine is in each mesh: its keys, its membership, and the host that both were made on."""

from collections.abc import Iterator
from typing import Final

from claudemesh.cli.doctor.model import Finding, absent, declare, fail, ok, warn
from claudemesh.cli.doctor.scene import Scene
from claudemesh.daemon import identity
from claudemesh.daemon.settings import Config
from claudemesh.kernel.errors import ConfigError

_NONE: Final = "no mesh is joined"
_REJOIN: Final = (
    "`claudemesh doctor --fix` if others can read it; if it is damaged, put back a copy, or join again: "
    "`claudemesh mesh join CODE --name PEER`"
)


@declare(
    "identity",
    "keys",
    "The member's key pair can be read, is private, and its halves belong together.",
    "Put back a copy of `keypair.json`, or join again with a new invite; `chmod 600` if others could read it.",
)
def keys(scene: Scene) -> Iterator[Finding]:
    for slug in scene.meshes:
        try:
            pair = identity.load_keys(scene.home.mesh_dir(slug))
        except ConfigError as error:
            yield fail(error.detail, _REJOIN, slug)
            continue
        health = scene.health(slug)
        if health is not None and health.get("member_pubkey") != pair.pubkey:
            fix = f"restart it: `claudemesh daemon restart --mesh {slug}`"
            yield warn("the daemon that runs goes by another key than the file holds", fix, slug)
        else:
            yield ok("readable, and its halves belong together", slug)
    if not scene.meshes:
        yield absent(_NONE)


@declare(
    "identity",
    "membership",
    "What the broker said of us can be read, and is of this mesh.",
    "Put back a copy of `membership.json`, or join again with a new invite.",
)
def membership(scene: Scene) -> Iterator[Finding]:
    for slug in scene.meshes:
        try:
            joined = identity.load_membership(scene.home.mesh_dir(slug))
        except ConfigError as error:
            yield fail(error.detail, _REJOIN, slug)
        else:
            yield ok(f"{joined.role} {joined.name}, broker {joined.broker_url}", slug)
    if not scene.meshes:
        yield absent(_NONE)


@declare(
    "identity",
    "host",
    "The state directory is on the host that it was made on, and is not a copy that speaks with another's key.",
    "It moved here, and nothing runs there any more: `claudemesh daemon accept-host`. It is a copy: "
    "`claudemesh daemon remint`.",
)
def host(scene: Scene) -> Iterator[Finding]:
    here = identity.read_host()
    for slug in scene.meshes:
        try:
            verdict = identity.compare_host(scene.home.mesh_dir(slug), here)
        except ConfigError as error:
            yield fail(error.detail, f"`claudemesh daemon accept-host --mesh {slug}` writes it anew", slug)
            continue
        policy = (scene.settings("daemon", slug) or Config()).clone.policy
        if verdict == "differs" and policy != "allow":
            accept = f"moved here: `claudemesh daemon accept-host --mesh {slug}`"
            fix = f"{accept}; a copy: `claudemesh daemon remint --mesh {slug}`"
            said = "it was made on another host"
            yield (
                fail(f"{said}: the daemon refuses to start", fix, slug)
                if policy == "refuse"
                else warn(said, fix, slug)
            )
        elif verdict == "unknown":
            yield absent("this host has nothing to be told by, as most containers", slug)
        else:
            words = {"same": "the host it was made on", "unrecorded": "recorded at the next start"}
            yield ok(words.get(verdict, "another host, which [clone] policy allows"), slug)
    if not scene.meshes:
        yield absent(_NONE)


CHECKS: Final = (keys, membership, host)
