"""What is printed by the commands that look at all of it, and that declare it to others."""

from typing import Any, Literal

import msgspec

from claudemesh.cli.documents.printed import Printed, lines, one, silent
from claudemesh.daemon.http.control import ShownPeer, ShownQueue
from claudemesh.daemon.http.outbox import ShownRow
from claudemesh.daemon.http.status import Health

# --- doctor --------------------------------------------------------------------------------------------


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `subject` says which of several: a mesh, a file."""

    name: str
    family: str
    subject: str | None
    verdict: Literal["ok", "warn", "fail", "unknown", "not_applicable"]
    detail: str
    fix: str | None
    fixable: bool


class Repaired(msgspec.Struct, frozen=True):
    name: str
    done: str
    error: str | None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    checks: list[Checked]
    fixed: list[Repaired]
    bundle: str | None
    bundle_error: str | None


# --- top -----------------------------------------------------------------------------------------------


class OutboxFigures(msgspec.Struct, frozen=True, kw_only=True):
    pending: int
    inflight: int
    dead: int
    oldest_age_s: int
    oldest_dead_age_s: int | None


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    sent_per_s: float | None
    received_per_s: float | None
    window_s: float


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be asked is null, and `errors` says why; `at` is in milliseconds since 1970."""

    at: int
    state: Literal["away", "degraded", "connected", "connecting", "catching up", "not connected"]
    daemon: Health | None
    outbox: OutboxFigures | None
    unread: int | None
    rates: Rates
    peers: list[ShownPeer] | None
    dead: list[ShownRow] | None
    queues: list[ShownQueue] | None
    relay: dict[str, Any] | None
    ledger: dict[str, Any] | None
    errors: dict[str, str]


# --- the agent host ------------------------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True):
    part: Literal["skill", "agents", "hooks", "server"]
    action: Literal["create", "change", "remove", "keep"]
    path: str


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    part: Literal["skill", "agents", "hooks", "server"]
    scope: Literal["user", "project"]
    state: Literal["ok", "absent", "stale", "damaged"]
    path: str
    detail: str
    fix: str | None


class Uninstalled(msgspec.Struct, frozen=True, kw_only=True):
    """`folders` are those that were removed, since only ours was in them."""

    host: str
    scope: Literal["user", "project"]
    dry_run: bool
    changed: bool
    steps: list[Step]
    folders: list[str]


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is what was read back afterwards; after a dry run it is not there."""

    host: str
    scope: Literal["user", "project"]
    dry_run: bool
    changed: bool
    steps: list[Step]
    state: list[Declared] | msgspec.UnsetType = msgspec.UNSET


class Snippet(msgspec.Struct, frozen=True):
    where: str
    text: str


class Snippets(msgspec.Struct, frozen=True):
    """What to paste, with --print, or for a host whose files we do not change."""

    host: str
    snippets: list[Snippet]


# --- the dashboard -------------------------------------------------------------------------------------


class Link(msgspec.Struct, frozen=True):
    """The link opens the dashboard once."""

    mesh: str
    url: str
    expires_in_s: int


PRINTED: dict[str, Printed] = {
    "claudemesh doctor": one(Diagnosis, exits={1: "Something does not pass."}),
    "claudemesh top": lines(Look),
    "claudemesh top --once": one(Look, exits={3: "No daemon answers; the rest is shown."}),
    "claudemesh install": one(Installed, Snippets),
    "claudemesh uninstall": one(Uninstalled),
    "claudemesh hook": silent("the answer of a hook, as the host reads it"),
    "claudemesh dashboard": one(Link),
    "claudemesh mcp": silent("speaks MCP"),
}
