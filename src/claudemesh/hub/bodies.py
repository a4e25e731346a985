"""What may be sent to the hub, and what it answers. A field that is not listed here is refused.

What is sent is checked by these types. The answers are written by `rendering`; their types are for the document,
and a test asks whether it is true.
"""

from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from claudemesh.hub.model import Kind

COUNT_MAX: Final = 2**53 - 1
BULK_MAX: Final = 500
LIST_MAX: Final = 200

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Title = Annotated[str, Meta(min_length=1, max_length=1_000)]
Status = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Instant = Annotated[str, Meta(description="As a row shows it: 2026-01-31T12:00:00.000Z.")]


class New(Struct, frozen=True, forbid_unknown_fields=True):
    """What a row is made of. `beside` is what it also has from the start, as JSON."""

    beside: ClassVar[str] = ""


class NewProgress(New, frozen=True):
    agent: Name
    summary: Text
    details: Any = None


class NewMessage(New, frozen=True):
    beside: ClassVar[str] = ',"read_at":null'
    to: Name
    from_: Name = msgspec.field(name="from")
    body: str


class NewTokenEvent(New, frozen=True):
    agent: Name
    input_tokens: Count
    output_tokens: Count


class NewDecision(New, frozen=True):
    beside: ClassVar[str] = ',"status":"open","resolution":null'
    title: Title
    rationale: str | None = None


class NewTask(New, frozen=True):
    title: Title
    status: Status = "todo"


class NewWorkplan(New, frozen=True):
    title: Title
    status: Status = "active"


NEW: Final[dict[Kind, type[New]]] = {
    Kind.PROGRESS: NewProgress,
    Kind.MESSAGES: NewMessage,
    Kind.TOKEN_EVENTS: NewTokenEvent,
    Kind.DECISIONS: NewDecision,
    Kind.TASKS: NewTask,
    Kind.WORKPLANS: NewWorkplan,
}


# --- changes ---------------------------------------------------------------------------------------


class Expecting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the caller takes the row to be: if it is not, nothing changes and the answer is 409."""

    expected_updated_at: Instant | None = None
    expected_status: Status | None = None


class ChangeTitled(Expecting, frozen=True):
    """Of a task or a workplan; what is left out stays."""

    status: Status | UnsetType = UNSET
    title: Title | UnsetType = UNSET


class ChangeDecision(Expecting, frozen=True):
    title: Title | UnsetType = UNSET
    rationale: str | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET


class Resolve(Expecting, frozen=True):
    resolution: Text


class StatusOfTask(Expecting, frozen=True):
    id: Name
    status: Status


class BulkStatusSync(Struct, frozen=True, forbid_unknown_fields=True):
    tasks: Annotated[list[StatusOfTask], Meta(max_length=BULK_MAX)]


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, description=f"At most {LIST_MAX} are given, whatever is asked for.")] = 50
    cursor: Annotated[str, Meta(description="next_cursor of the page before.")] | None = None


# --- answers ---------------------------------------------------------------------------------------


class Stood(Struct, kw_only=True):
    """What every row has."""

    id: str
    revision: int
    created_at: str
    updated_at: str


class Previous(Struct):
    """What the row was before this write."""

    revision: int
    updated_at: str
    status: str | None


class Progress(Stood, kw_only=True):
    agent: str
    summary: str
    details: Any


class Message(Stood, kw_only=True):
    to: str
    from_: str = msgspec.field(name="from")
    body: str
    read_at: str | None


class TokenEvent(Stood, kw_only=True):
    agent: str
    input_tokens: int
    output_tokens: int


class Decision(Stood, kw_only=True):
    title: str
    rationale: str | None
    status: str
    resolution: str | None


class Task(Stood, kw_only=True):
    title: str
    status: str


class Workplan(Stood, kw_only=True):
    title: str
    status: str


class MessageRead(Message, kw_only=True):
    previous: Previous


class DecisionChanged(Decision, kw_only=True):
    previous: Previous


class TaskChanged(Task, kw_only=True):
    previous: Previous


class WorkplanChanged(Workplan, kw_only=True):
    previous: Previous


ROW: Final[dict[Kind, type[Stood]]] = {
    Kind.PROGRESS: Progress,
    Kind.MESSAGES: Message,
    Kind.TOKEN_EVENTS: TokenEvent,
    Kind.DECISIONS: Decision,
    Kind.TASKS: Task,
    Kind.WORKPLANS: Workplan,
}


class BulkItem(Struct, kw_only=True):
    id: str
    http_status: int
    task: TaskChanged | UnsetType = UNSET
    problem: dict[str, Any] | UnsetType = UNSET


class BulkAnswer(Struct):
    items: list[BulkItem]


class KindSummary(Struct):
    count: int
    by_status: dict[str, int]


class NewestWrite(Struct):
    kind: str
    id: str
    revision: int
    updated_at: str
    deleted: bool


class StateSummary(Struct):
    kinds: dict[str, KindSummary]
    newest: list[NewestWrite]
    writes: int
    generated_at: str


class Health(Struct, kw_only=True):
    status: str
    version: str
    store: str
    writes: int
    uptime_s: int


def list_of(row: type[Stood]) -> type[Struct]:
    """Return the type of a page of such rows."""
    return msgspec.defstruct(f"{row.__name__}Page", [("items", list[row]), ("next_cursor", str | None)])  # type: ignore[valid-type]
