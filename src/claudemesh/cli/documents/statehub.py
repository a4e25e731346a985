"""What is printed of the hub, of a relay's outbox, and of rehearsals and repairs."""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from claudemesh.cli.documents.daemon import Recovered, Serving
from claudemesh.cli.documents.printed import Printed, one
from claudemesh.edge.model import EnvelopeSeen

Json = dict[str, Any]

# --- the hub -------------------------------------------------------------------------------------------


class UsedKey(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    caller: str
    key: str
    method: str
    path: str
    state: str
    status: int | None
    request_hash: str
    source_host: str | None
    source_agent: str | None
    first_seen: str
    last_seen: str
    expires_at: str


class UsedKeys(msgspec.Struct, frozen=True):
    keys: list[UsedKey]
    next_after: int | None


# --- a relay's outbox ----------------------------------------------------------------------------------


class OutboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether anything of this host is unsent. What only a relay knows is null if none runs."""

    running: bool
    outbox: Literal["there", "none"]
    upstream: str | None
    listen: str | None
    upstream_reachable: bool | None
    upstream_state: str
    pending: int
    blocked: int
    oldest_pending_age_s: int
    conflicts: int
    dead: int
    outbox_usable: bool
    nothing_waits: bool
    outage_over: bool
    why: list[str]


class Envelopes(msgspec.Struct, frozen=True):
    items: list[EnvelopeSeen]
    next_cursor: int | None


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    at: int
    was: str | None
    became: str
    error: str | None
    by: str | None
    superseded_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopePrinted(EnvelopeSeen):
    """One envelope: of a conflict both values, the hub's answer, and what happened to it."""

    mine: Any
    theirs: Any
    answer: Any
    happened: list[Happened]


class Replayed(msgspec.Struct, frozen=True):
    pending: int
    conflicts: int
    dead: int
    upstream_reachable: bool


class ExportedEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope as it would be sent, and how far it had come; `import` takes it, one on a line."""

    form: int
    id: str
    idempotency_key: str
    fingerprint: str
    destination: str
    created_at: int
    attempts: int
    state: str
    last_error: str | None
    is_status_write: bool
    envelope: Json


class ExportedAll(msgspec.Struct, frozen=True):
    items: list[ExportedEnvelope]


class ExportedTo(msgspec.Struct, frozen=True):
    exported: int
    file: str


class Imported(msgspec.Struct, frozen=True):
    imported: int
    known: int


# --- rehearsals and repairs ----------------------------------------------------------------------------


class DrillStep(msgspec.Struct, frozen=True):
    name: str
    ok: bool
    detail: str


class Drilled(msgspec.Struct, frozen=True):
    """`home` is the folder of the rehearsal if it was kept."""

    ok: bool
    verdict: Literal["passed", "failed"]
    seconds: float
    home: str | None
    steps: list[DrillStep]


class Mended(msgspec.Struct, frozen=True, kw_only=True):
    """One workplan or task; `hub_id` is null if the hub had no row of it."""

    kind: Literal["workplans", "tasks"]
    id: str
    hub_id: str | None
    what: str
    where: str


class Consistency(msgspec.Struct, frozen=True, kw_only=True):
    repo: str
    hub: str
    dry_run: bool
    matches: bool
    changed: list[Mended]
    right: list[Mended]
    queued: list[Mended]
    failed: list[Mended]


class RelayServing(msgspec.Struct, frozen=True):
    """Printed when it listens; it goes on serving."""

    url: str
    upstream: str


PRINTED: dict[str, Printed] = {
    "statehub serve": one(Serving),
    "statehub idempotency list": one(UsedKeys),
    "statehub outbox status": one(OutboxStatus, exits={1: "something waits"}),
    "statehub outbox list": one(Envelopes),
    "statehub outbox show": one(EnvelopePrinted),
    "statehub outbox replay": one(
        Replayed, exits={1: "something still waits", 3: "something waits, and the hub cannot be reached"}
    ),
    "statehub outbox retry": one(EnvelopePrinted),
    "statehub outbox cancel": one(EnvelopePrinted),
    "statehub outbox mark-dead": one(EnvelopePrinted),
    "statehub outbox resolve": one(EnvelopePrinted),
    "statehub outbox export": one(ExportedAll),
    "statehub outbox export --file": one(ExportedTo),
    "statehub outbox import": one(Imported),
    "statehub outbox recover": one(Recovered),
    "statehub drill": one(Drilled, exits={1: "a step failed"}),
    "statehub fix-consistency": one(Consistency, exits={1: "the hub does not match the files"}),
    "statehub-edge": one(RelayServing),
}
