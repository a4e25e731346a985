"""What has to change at the hub so that it says what the workplan files say. Pure: files and rows in, actions out.

A row is found by the hub id that the file names, else by its exact title, else by the own id of the workplan or
task at the beginning of its title. If several rows could be it, that is said, and none is changed. Rows that no
file speaks of stay as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal

from claudemesh.cli.statehub.workplans import TITLE_CHARS_MAX, Task, Workplan

Kind = Literal["workplans", "tasks"]
Row = Mapping[str, Any]
Rows = Mapping[Kind, Sequence[Row]]

BETWEEN: Final = " - "


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a file says of one workplan or task. The first of the titles is given to a new row."""

    kind: Kind
    id: str
    titles: tuple[str, ...]
    status: str
    hub_id: str | None
    where: str
    key: str  # under which it is created: the same every time, so that it is created once


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    wanted: Wanted
    note: str | None = None

    @property
    def body(self) -> dict[str, str]:
        return {"title": self.wanted.titles[0], "status": self.wanted.status}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    wanted: Wanted
    row: Row
    body: dict[str, str]
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """It is so already."""

    wanted: Wanted
    row: Row
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cannot:
    wanted: Wanted
    reason: str


Action = Create | Change | Right | Cannot


def wanted_of(workplans: Iterable[Workplan], folder: str) -> list[Wanted]:
    """Return what the files want; `folder` names the repository where a file does not."""
    found: list[Wanted] = []
    for workplan in workplans:
        repo = workplan.repo or folder
        found.append(
            Wanted(
                kind="workplans",
                id=workplan.id,
                titles=_titles(f"{workplan.id}{BETWEEN}{workplan.title}", workplan.title),
                status=workplan.status,
                hub_id=workplan.hub_id,
                where=workplan.where,
                key=derive_key(repo, "workplans", workplan.id),
            )
        )
        found += [_wanted_task(task, repo) for task in workplan.tasks]
    return found


def _wanted_task(task: Task, repo: str) -> Wanted:
    return Wanted(
        kind="tasks",
        id=task.id,
        titles=task_titles(task),
        status=task.status,
        hub_id=task.hub_id,
        where=task.where,
        key=derive_key(repo, "tasks", task.id),
    )


def task_titles(task: Task) -> tuple[str, ...]:
    """Return what a task may be called: its id and its heading, which often begins with the end of the id."""
    if not task.heading:
        return (task.id,)
    name, between, rest = task.heading.partition(BETWEEN)
    is_short = bool(between and rest.strip()) and (task.id == name or task.id.endswith(f"-{name}"))
    spoken = rest.strip() if is_short else task.heading
    return _titles(f"{task.id}{BETWEEN}{spoken}", f"{task.id}{BETWEEN}{task.heading}", f"{task.id} {task.heading}")


def _titles(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text[:TITLE_CHARS_MAX] for text in texts))


def derive_key(repo: str, kind: Kind, own_id: str, *more: str) -> str:
    """Return the key of a creation: of what it is for, and of nothing that changes from run to run."""
    told = "\0".join((repo, kind, own_id, *more))
    return f"fix-consistency-{sha256(told.encode()).hexdigest()[:32]}"


def plan(wanted: Sequence[Wanted], rows: Rows) -> list[Action]:
    """Return one action for each that is wanted, in their order."""
    claimed: dict[tuple[Kind, str], str] = {}
    actions: list[Action] = []
    for one in wanted:
        action = _plan_one(one, rows[one.kind])
        if isinstance(action, Change | Right):
            at = (one.kind, str(action.row["id"]))
            if at in claimed:
                action = Cannot(wanted=one, reason=f"the hub's row {at[1]} is that of {claimed[at]} already")
            claimed.setdefault(at, one.id)
        actions.append(action)
    return actions


def _plan_one(wanted: Wanted, rows: Sequence[Row]) -> Action:
    note = None
    if wanted.hub_id is not None:
        named = [row for row in rows if row["id"] == wanted.hub_id]
        if named:
            return _compare(wanted, named[0], None)
        note = f"the hub has no row {wanted.hub_id}, which the file names"
    found = [row for row in rows if row["title"] in wanted.titles]
    found = found or [row for row in rows if str(row["title"]).startswith(f"{wanted.id} ")]
    if not found:
        return Create(wanted=wanted, note=note)
    if len(found) > 1:
        ids = ", ".join(str(row["id"]) for row in found)
        return Cannot(
            wanted=wanted, reason=f"{len(found)} rows of the hub could be it ({ids}): name one in the file"
        )
    return _compare(wanted, found[0], note)


def _compare(wanted: Wanted, row: Row, note: str | None) -> Action:
    body: dict[str, str] = {}
    if row["status"] != wanted.status:
        body["status"] = wanted.status
    if row["title"] not in wanted.titles:
        body["title"] = wanted.titles[0]
    return (
        Change(wanted=wanted, row=row, body=body, note=note) if body else Right(wanted=wanted, row=row, note=note)
    )
