"""What is printed of daemons, their outboxes, brokers, and both together."""

from typing import Any

import msgspec

from claudemesh.broker.model import Violation
from claudemesh.cli.documents.printed import Printed, lines, one
from claudemesh.daemon.http.manage import Reloaded
from claudemesh.daemon.http.outbox import Inspected, OutboxPage, Pruned
from claudemesh.daemon.http.status import Health
from claudemesh.daemon.operate import Decision

LogLine = dict[str, Any]  # as it was logged; `text` of a line that is no JSON

# --- the daemon ----------------------------------------------------------------------------------------


class DaemonStatus(Health, frozen=True, kw_only=True):
    """The daemon's own health, and where it is."""

    running: bool
    pid: int | None
    socket: str


class Listening(msgspec.Struct, frozen=True):
    mesh: str
    pid: int
    socket: str


class Stopped(msgspec.Struct, frozen=True):
    """`stopped` is false, and `pid` null, if none ran."""

    mesh: str
    stopped: bool
    pid: int | None


class Log(msgspec.Struct, frozen=True):
    lines: list[LogLine]


class TokenRotated(msgspec.Struct, frozen=True):
    """The token itself is in the file, for its owner's eyes only."""

    mesh: str
    file: str


class HostAccepted(msgspec.Struct, frozen=True):
    mesh: str
    fingerprint: str
    made_of: list[str]


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What follows `damaged` only if it was."""

    damaged: bool
    saved: int | msgspec.UnsetType = msgspec.UNSET
    missing: int | msgspec.UnsetType = msgspec.UNSET
    kept_at: str | msgspec.UnsetType = msgspec.UNSET


class OutboxRecovered(Recovered, frozen=True, kw_only=True):
    mesh: str


class Reminted(msgspec.Struct, frozen=True):
    mesh: str
    name: str
    member_id: str
    kept_at: str


# --- the broker ----------------------------------------------------------------------------------------


class Serving(msgspec.Struct, frozen=True):
    """Printed when it listens; it goes on serving."""

    url: str


class Checked(msgspec.Struct, frozen=True):
    violations: int
    items: list[Violation]


class Swept(msgspec.Struct, frozen=True):
    """How many of each are gone."""

    messages: int
    dead_letters: int
    ids: int


class SweptByPlan(msgspec.Struct, frozen=True):
    """What became of the messages that a plan names; each is counted once."""

    planned: int
    deleted: int
    refused: int
    gone: int
    buried: int


class Restored(msgspec.Struct, frozen=True):
    epoch: int


class ResumeKeyRotated(msgspec.Struct, frozen=True):
    """How many keys are good now."""

    keys: int


class Up(msgspec.Struct, frozen=True):
    """Printed when both answer; it goes on watching over them. `dashboard` is null where the daemon has no port."""

    mesh: str
    broker_url: str
    socket: str
    dashboard: str | None


PRINTED: dict[str, Printed] = {
    "claudemesh up": one(Up),
    "claudemesh daemon up": one(DaemonStatus),
    "claudemesh daemon up --foreground": one(Listening),
    "claudemesh daemon restart": one(DaemonStatus),
    "claudemesh daemon status": one(DaemonStatus),
    "claudemesh daemon down": one(Stopped),
    "claudemesh daemon reload": one(Reloaded),
    "claudemesh daemon logs": one(Log),
    "claudemesh daemon logs --follow": lines(LogLine),
    "claudemesh daemon rotate-token": one(TokenRotated),
    "claudemesh daemon accept-host": one(HostAccepted),
    "claudemesh daemon recover": one(OutboxRecovered),
    "claudemesh daemon remint": one(Reminted),
    "claudemesh daemon outbox list": one(OutboxPage),
    "claudemesh daemon outbox inspect": one(Inspected),
    "claudemesh daemon outbox requeue": one(Decision),
    "claudemesh daemon outbox drop": one(Decision),
    "claudemesh daemon outbox prune": one(Pruned),
    "claudemesh broker serve": one(Serving),
    "claudemesh broker check": one(Checked, exits={1: "there are violations"}),
    "claudemesh broker sweep": one(Swept),
    "claudemesh broker sweep --plan": one(SweptByPlan),
    "claudemesh broker restored": one(Restored),
    "claudemesh broker rotate-resume-key": one(ResumeKeyRotated),
}
