"""What becomes of messages: the connection and its terms, and rows that nobody sends any more."""

from collections.abc import Iterator
from typing import Any, Final

from claudemesh.cli.doctor.model import Finding, absent, declare, fail, ok, unknown, warn
from claudemesh.cli.doctor.scene import Scene
from claudemesh.cli.render import age
from claudemesh.daemon.settings import Config
from claudemesh.daemon.stores.sqlite.looks import Unsettled, count_unsettled, read_terms
from claudemesh.kernel.clock import HOUR_MS
from claudemesh.kernel.errors import MeshError
from claudemesh.storage.sqlite.inspect import Look

WAITED_MS: Final = 900_000  # a row that waits longer is worth a look


# --- the connection ------------------------------------------------------------------------------------


@declare(
    "delivery",
    "negotiation",
    "Daemon and broker agree on what they can do, and the connection between them stands.",
    "The detail is the last reason that the connection ended with. Degraded means that it takes a person: "
    "another daemon took over "
    "(stop one of the two), this member was revoked, or the broker lacks a feature (upgrade it).",
)
def negotiation(scene: Scene) -> Iterator[Finding]:
    count = 0
    for slug in scene.meshes:
        health = scene.health(slug)
        if health is not None:
            count += 1
            yield _judge_link(scene, slug, health)
    if not count:
        yield absent("no daemon answers")


def _judge_link(scene: Scene, slug: str, health: dict[str, Any]) -> Finding:
    link = str(health.get("link"))
    log = f"`claudemesh daemon logs --mesh {slug}`"
    if health.get("degraded"):
        return fail(
            f"degraded: {link}", f"see why in {log}, mend it, then `claudemesh daemon restart --mesh {slug}`", slug
        )
    if not health.get("connected"):
        return fail(f"not connected: {link}", f"it tries again by itself; {log} says how each try ended", slug)
    try:
        with scene.client(slug) as client:
            agreed = client.version().get("broker_features_negotiated", [])
    except MeshError as error:
        return unknown(f"it does not tell what was agreed: {error.code}", f"look at {log}", slug)
    return ok(f"connected to {health.get('broker_version')}, agreed: {', '.join(agreed)}", slug)


# --- rows ----------------------------------------------------------------------------------------------


@declare(
    "delivery",
    "outbox",
    "No send is dead, none is older than may be sent, and none waits for long.",
    "`claudemesh daemon outbox list --failed` shows what is dead; `requeue` sends it anew, `drop` gives it up.",
)
def outbox(scene: Scene) -> Iterator[Finding]:
    count = 0
    for slug in scene.meshes:
        path = scene.home.mesh_dir(slug) / "outbox.db"
        if not path.exists():
            continue
        count += 1
        try:
            with scene.looking(path) as connection:
                found = _count(scene, slug, connection)
        except MeshError as error:
            yield unknown(f"cannot be counted: {error.detail}", "the check of its integrity says more", slug)
        else:
            yield _judge_unsettled(slug, found)
    if not count:
        yield absent("there is no outbox yet")


def _count(scene: Scene, slug: str, connection: Look) -> Unsettled:
    limits = (scene.settings("daemon", slug) or Config()).outbox
    max_age_ms = read_terms(connection).max_age(limits).hours * HOUR_MS
    return count_unsettled(connection, scene.clock.wall_ms(), max_age_ms)


def _judge_unsettled(slug: str, found: Unsettled) -> Finding:
    listed = f"`claudemesh daemon outbox list --failed --mesh {slug}`"
    oldest = age(found.oldest_ms // 1000)
    if found.dead:
        fix = f"see why with {listed}; then `claudemesh daemon outbox requeue --id ROW`, or `drop --id ROW`"
        return fail(f"{found.dead} dead, {found.open} waiting", fix, slug)
    if found.overdue:
        fix = f"they are given up once the broker is reached: start the daemon, and see {listed}"
        return fail(f"{found.overdue} are older than may be sent (the oldest waits for {oldest})", fix, slug)
    if found.oldest_ms > WAITED_MS:
        fix = f"see what holds them up: `claudemesh daemon outbox list --mesh {slug}`"
        return warn(f"{found.open} wait, the oldest for {oldest}", fix, slug)
    return ok(f"{found.open} waiting, none dead", slug)


CHECKS: Final = (negotiation, outbox)
