"""What a check is, and what it finds.

A check looks at one thing and yields what it found: one finding, or one for each mesh or file it looked at. What it
is for and how it is mended in general is part of its declaration, from which the page on diagnosis is made.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from claudemesh.cli.doctor.scene import Scene

WITHIN_S: Final = 10.0  # the longest that most checks may take

Family: TypeAlias = Literal[
    "program", "home", "settings", "stores", "identity", "processes", "broker", "delivery", "relay", "agent host"
]


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"  # works, and will not for long, or not as well as it should
    FAIL = "fail"
    UNKNOWN = "unknown"  # could not be found out
    NOT_APPLICABLE = "not_applicable"  # there is no such thing here


PASSING: Final = frozenset({Verdict.OK, Verdict.NOT_APPLICABLE})


@dataclass(frozen=True, slots=True)
class Repair:
    """Something that can be mended without asking anybody, since nothing can be lost by it."""

    says: str  # what it does, once it is done
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    detail: str
    fix: str = ""  # a sentence, with the exact command
    subject: str = ""  # which of several: a mesh, a file
    repairs: tuple[Repair, ...] = ()


Looking: TypeAlias = Callable[["Scene"], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    family: Family
    looks_at: str  # what it says, in a sentence
    remedy: str  # how it is mended in general
    look: Looking
    within_s: float = WITHIN_S


@dataclass(frozen=True, slots=True)
class Result:
    """A finding with the check that made it."""

    check: Check
    finding: Finding

    @property
    def passes(self) -> bool:
        return self.finding.verdict in PASSING

    @property
    def title(self) -> str:
        return f"{self.check.name} ({self.finding.subject})" if self.finding.subject else self.check.name

    def document(self) -> dict[str, Any]:
        return {
            "name": self.check.name,
            "family": self.check.family,
            "subject": self.finding.subject or None,
            "verdict": self.finding.verdict.value,
            "detail": self.finding.detail,
            "fix": self.finding.fix or None,
            "fixable": bool(self.finding.repairs),
        }


@dataclass(frozen=True, slots=True)
class Fixed:
    """A repair that was tried."""

    title: str
    says: str
    error: str | None = None

    def document(self) -> dict[str, Any]:
        return {"name": self.title, "done": self.says, "error": self.error}


@dataclass(frozen=True, slots=True)
class Report:
    results: list[Result]
    fixed: list[Fixed] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(result.passes for result in self.results) and not any(one.error for one in self.fixed)

    def document(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "checks": [result.document() for result in self.results],
            "fixed": [one.document() for one in self.fixed],
        }


def declare(
    family: Family, name: str, looks_at: str, remedy: str, within_s: float = WITHIN_S
) -> Callable[[Looking], Check]:
    """Make a check of a function."""
    return lambda look: Check(name, family, looks_at, remedy, look, within_s)


def ok(detail: str, subject: str = "") -> Finding:
    return Finding(Verdict.OK, detail, subject=subject)


def absent(detail: str, subject: str = "") -> Finding:
    return Finding(Verdict.NOT_APPLICABLE, detail, subject=subject)


def warn(detail: str, fix: str, subject: str = "", repairs: Iterable[Repair] = ()) -> Finding:
    return Finding(Verdict.WARN, detail, fix, subject, tuple(repairs))


def fail(detail: str, fix: str, subject: str = "", repairs: Iterable[Repair] = ()) -> Finding:
    return Finding(Verdict.FAIL, detail, fix, subject, tuple(repairs))


def unknown(detail: str, fix: str, subject: str = "") -> Finding:
    return Finding(Verdict.UNKNOWN, detail, fix, subject)
