"""The databases: sound, of a version that this program knows, and with room left of what is reserved."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from claudemesh.broker.stores.sqlite import SCHEMA as BROKER
from claudemesh.cli.doctor.model import Finding, absent, declare, fail, ok, unknown, warn
from claudemesh.cli.doctor.scene import Scene
from claudemesh.daemon.pressure import HIGH_PCT, REFUSE_PCT
from claudemesh.daemon.settings import Config
from claudemesh.daemon.stores.sqlite.inbox import SCHEMA as INBOX
from claudemesh.daemon.stores.sqlite.outbox import SCHEMA as OUTBOX
from claudemesh.edge.stores.sqlite.outbox import SCHEMA as EDGE
from claudemesh.hub.stores.sqlite import SCHEMA as HUB
from claudemesh.idempotency.stores.sqlite import SCHEMA as KEYS
from claudemesh.kernel.errors import ConfigError, MeshError, SchemaTooNew, StoreCorrupt
from claudemesh.ledger.api import find_place
from claudemesh.ledger.stores.sqlite import audit, law
from claudemesh.storage.sqlite.inspect import find_damage
from claudemesh.storage.sqlite.room import used_bytes
from claudemesh.storage.sqlite.schema import Schema, check_owner

SQLITE: Final = "sqlite:///"
INTEGRITY_S: Final = 60.0  # of all stores together; each has LOOK_S of the scene
ISSUES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Store:
    title: str
    path: Path
    schema: Schema | None  # None: a ledger, which has laws of its own
    mend: str  # what to do about a damaged one


def stores(scene: Scene) -> list[Store]:
    """Return the stores that this home would use, whether they are there or not."""
    home = scene.home
    found = []
    for slug in scene.meshes:
        outbox = f"`claudemesh daemon recover --mesh {slug}` saves what can be read"
        inbox = f"`claudemesh daemon restart --mesh {slug}` sets it aside and builds it anew from the broker"
        found.append(Store(f"outbox of {slug}", home.mesh_dir(slug) / "outbox.db", OUTBOX, outbox))
        found.append(Store(f"inbox of {slug}", home.mesh_dir(slug) / "inbox.db", INBOX, inbox))
    backup = "stop what uses it, and put a backup in its place; keep the damaged file"
    restored = f"{backup}; then `claudemesh broker restored`"
    found.append(Store("broker", _served(scene, "broker", home.broker_db), BROKER, restored))
    found.append(Store("hub", _served(scene, "hub", home.hub_db), HUB, backup))
    relay = "stop the relay; `statehub outbox recover` saves what can be read"
    found.append(Store("relay", home.edge_dir / "outbox.db", EDGE, relay))
    forget = "stop the agents' servers, and move it away: keys that were used are then not known any more"
    found.append(Store("keys of agents", home.root / "mcp" / "keys.db", KEYS, forget))
    found.append(Store("ledger", home.ledger_db, None, "`claudemesh ledger verify` says all of it"))
    with suppress(OSError):  # whoever works in a folder that was removed has no repository
        found.append(
            Store("ledger of this repository", find_place(), None, "`cortex cassette verify` says all of it")
        )
    return found


def _served(scene: Scene, part: Literal["broker", "hub"], otherwise: Path) -> Path:
    """Return a server's file: the one its settings name, or the home's own."""
    settings = scene.settings(part)
    is_elsewhere = settings is not None and settings.store.startswith(SQLITE)
    return Path(settings.store.removeprefix(SQLITE)) if is_elsewhere else otherwise


# --- integrity -----------------------------------------------------------------------------------------


@declare(
    "stores",
    "integrity",
    "Every database can be read through, and its pages, indexes and laws are as they should be.",
    "The outbox: `claudemesh daemon recover`. The inbox is rebuilt at the next start. The relay: `statehub "
    "outbox recover`. "
    "Broker and hub: put a backup in place. A ledger: `claudemesh ledger verify` says what was changed.",
    INTEGRITY_S,
)
def integrity(scene: Scene) -> Iterator[Finding]:
    there = [store for store in stores(scene) if store.path.exists() or store.path.is_symlink()]
    for store in there:
        yield _judge(scene, store)
    if not there:
        yield absent("there is no database yet")


def _judge(scene: Scene, store: Store) -> Finding:
    try:
        with scene.looking(store.path) as connection:
            if store.schema is None:
                issues = audit.audit(connection, None, None)
                version = f"version {law.read_version(connection)}"
            else:
                issues = find_damage(connection)
                version = _version(check_owner(connection, store.schema), store.schema)
    except MeshError as error:
        return _judge_refusal(store, error)
    if issues:
        more = f", and {len(issues) - ISSUES_MAX} more" if len(issues) > ISSUES_MAX else ""
        return fail(
            "; ".join(" ".join(issue.split()) for issue in issues[:ISSUES_MAX]) + more, store.mend, store.title
        )
    return ok(f"sound, {version}, {store.path.stat().st_size >> 10} KiB", store.title)


def _judge_refusal(store: Store, error: MeshError) -> Finding:
    match error:
        case SchemaTooNew():
            return fail(error.detail, "use the newer program, or a backup made before it ran", store.title)
        case StoreCorrupt():
            return fail(f"damaged: {error.detail}", store.mend, store.title)
        case ConfigError():
            return fail(
                error.detail, f"put the file itself there; see what it is: `ls -l {store.path}`", store.title
            )
        case _:  # out of time, locked, or not to be opened
            return unknown(error.detail, "try again when less is going on: `claudemesh doctor`", store.title)


def _version(found: int, schema: Schema) -> str:
    known = len(schema.migrations)
    return f"schema {found}" + ("" if found == known else f", and {known} after the next start")


# --- room ----------------------------------------------------------------------------------------------


@declare(
    "stores",
    "pressure",
    "Outbox and inbox have room left of what `[disk] reserved_bytes` grants each: from 80 % on it warns, at "
    "95 % new "
    "sends are refused.",
    "Empty old rows with `claudemesh daemon outbox prune --confirm`, shorten `[inbox] keep_days`, or raise "
    "`[disk] reserved_bytes` and `claudemesh daemon reload`.",
)
def pressure(scene: Scene) -> Iterator[Finding]:
    count = 0
    for slug in scene.meshes:
        settings = scene.settings("daemon", slug)
        reserved = (settings or Config()).disk.reserved_bytes
        for name in ("outbox", "inbox"):
            path = scene.home.mesh_dir(slug) / f"{name}.db"
            if path.exists():
                count += 1
                yield _judge_room(scene, slug, name, path, reserved)
    if not count:
        yield absent("there is no outbox and no inbox yet")


def _judge_room(scene: Scene, slug: str, name: str, path: Path, reserved: int) -> Finding:
    title = f"{name} of {slug}"
    try:
        with scene.looking(path) as connection:
            pct = 100 * used_bytes(connection) / reserved
    except MeshError as error:
        return unknown(f"cannot be measured: {error.detail}", "the check of its integrity says more", title)
    said = f"{pct:.0f} % of {reserved} bytes are in use"
    prune = (
        f"`claudemesh daemon outbox prune --confirm --mesh {slug}`" if name == "outbox" else "`[inbox] keep_days`"
    )
    fix = f"make room with {prune}, or raise `[disk] reserved_bytes`: `claudemesh daemon reload --mesh {slug}`"
    if pct >= REFUSE_PCT:
        return fail(said, fix, title)
    return warn(said, fix, title) if pct >= HIGH_PCT else ok(said, title)


CHECKS: Final = (integrity, pressure)
