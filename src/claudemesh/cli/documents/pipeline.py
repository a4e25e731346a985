"""What is printed of the lake and of what was found in it."""

from typing import Any

import msgspec

from claudemesh.cli.documents.printed import Printed, one

Json = dict[str, Any]


class CopiedStore(msgspec.Struct, frozen=True):
    """`rows` are those in the lake by table, `lag` what was still open in the store, in seconds."""

    kind: str
    store: str
    bodies: bool
    rows: dict[str, int]
    lag: dict[str, float]


class Ingested(msgspec.Struct, frozen=True):
    """The newest cut; `is_new` is false if nothing was."""

    cut: int
    at_ms: int
    is_new: bool
    sources: dict[str, CopiedStore]


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one job found. `violations` counts `mismatches` too: totals that are not the store's own."""

    job: str
    cut: int
    violations: int
    items: list[Json]
    mismatches: list[str]
    sources: dict[str, Json]


class Orphan(msgspec.Struct, frozen=True):
    """One id whose rows do not agree, and which of them are missing."""

    client_message_id: str | None
    sender: str | None
    missing: list[str]


class OrphansResult(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    cut: int
    violations: int
    items: list[Orphan]
    mismatches: list[str]
    sources: dict[str, Json]


class AllJobs(msgspec.Struct, frozen=True):
    """`left_out` says of each job that was not run why."""

    cut: int
    violations: int
    jobs: list[JobResult]
    left_out: dict[str, str]


class Breach(msgspec.Struct, frozen=True):
    """A promise that was not kept; beside its name stands the evidence."""

    invariant: str


class HistoryChecked(msgspec.Struct, frozen=True):
    """`checked` is how much was looked at."""

    cut: int
    violations: int
    checked: dict[str, int]
    items: list[Breach]


class Verdict(msgspec.Struct, frozen=True):
    name: str
    about: str
    violations: int
    items: list[Json]


class Figures(msgspec.Struct, frozen=True):
    """One store; what follows depends on its kind."""

    name: str
    kind: str
    store: str
    lag: dict[str, float]
    totals: dict[str, Json]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`html` and `out` are the files that were written."""

    cut: int
    at: str
    since: str | None
    ok: bool
    verdicts: list[Verdict]
    sources: list[Figures]
    html: str
    out: str


_FOUND = {1: "there are violations"}

PRINTED: dict[str, Printed] = {
    "claudemesh pipeline ingest": one(Ingested),
    "claudemesh pipeline run": one(AllJobs, JobResult, exits=_FOUND),
    "claudemesh pipeline run orphans": one(OrphansResult, exits=_FOUND),
    "claudemesh pipeline check": one(HistoryChecked, exits=_FOUND),
    "claudemesh pipeline report": one(Report, exits=_FOUND),
}
