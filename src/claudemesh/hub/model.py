"""What the hub keeps, what may be asked of it, and what can come of that. Values only."""

from enum import Enum, StrEnum, auto
from typing import Final, TypeAlias

import msgspec

from claudemesh.kernel.errors import MeshError


class Kind(StrEnum):
    PROGRESS = "progress"
    MESSAGES = "messages"
    TOKEN_EVENTS = "token_events"  # noqa: S105  a number of them
    DECISIONS = "decisions"
    TASKS = "tasks"
    WORKPLANS = "workplans"


WITH_STATUS: Final = frozenset({Kind.DECISIONS, Kind.TASKS, Kind.WORKPLANS})

Key: TypeAlias = tuple[Kind, str]  # a row's kind and id
FieldValue: TypeAlias = str | int | None


class Row(msgspec.Struct, frozen=True):
    """A row as it stands. `fields` is a JSON object, as it is stored and sent; it has at least one member."""

    kind: Kind
    id: str
    seq: int  # its place among the rows of its kind; 0 until it is written
    revision: int
    created_at: int
    updated_at: int
    fields: str


# --- what is asked ---------------------------------------------------------------------------------


class Expectation(msgspec.Struct, frozen=True):
    """What the caller takes the row to be; None is no opinion."""

    revisions: tuple[int, ...] | None = None  # those that If-Match names; none of ours is ()
    updated_at: int | None = None
    status: str | None = None


NO_OPINION: Final = Expectation()


class Create(msgspec.Struct, frozen=True):
    fields: str


class Update(msgspec.Struct, frozen=True):
    values: dict[str, FieldValue]


class SetOnce(msgspec.Struct, frozen=True):
    """Set a field that nobody has set yet; if somebody has, there is nothing to do."""

    name: str
    value: str


class Delete(msgspec.Struct, frozen=True):
    pass


Change: TypeAlias = Create | Update | SetOnce | Delete


class Asked(msgspec.Struct, frozen=True):
    kind: Kind
    id: str
    change: Change
    expected: Expectation = NO_OPINION


class Origin(msgspec.Struct, frozen=True):
    """Where a write came from, for the journal."""

    method: str
    path: str
    key: str | None = None
    source_host: str | None = None
    source_agent: str | None = None


class Shape(Enum):
    """What the answer to a write looks like."""

    ONE = auto()
    LIST = auto()


class Write(msgspec.Struct, frozen=True):
    """All that one request asks for: it is decided and committed as one."""

    asks: tuple[Asked, ...]
    origin: Origin
    now_ms: int
    shape: Shape = Shape.ONE


# --- what comes of it ------------------------------------------------------------------------------


class Changed(msgspec.Struct, frozen=True):
    before: Row | None  # None: it was created
    after: Row
    is_deleted: bool = False


class Unchanged(msgspec.Struct, frozen=True):
    row: Row


class Refused(msgspec.Struct, frozen=True):
    error: MeshError
    current: Row | None = None


Outcome: TypeAlias = Changed | Unchanged | Refused


class Entry(msgspec.Struct, frozen=True):
    """One line of the journal. `base_revision` is 0 where the row was created."""

    seq: int
    at: int
    kind: Kind
    entity_id: str
    base_revision: int
    revision: int
    method: str
    path: str
    idempotency_key: str | None
    source_host: str | None
    source_agent: str | None
    expectation: str | None  # JSON
    fields: str  # after the write; of a row that was deleted, its last
    deleted: bool


class Page(msgspec.Struct, frozen=True):
    rows: list[Row]
    next_seq: int | None  # after which the next page begins; None on the last one


class Tally(msgspec.Struct, frozen=True):
    kind: Kind
    status: str  # empty for a kind that has none
    rows: int


class Newest(msgspec.Struct, frozen=True):
    """One of the last writes."""

    seq: int
    kind: Kind
    id: str
    revision: int
    at: int
    deleted: bool


class Summary(msgspec.Struct, frozen=True):
    tallies: list[Tally]
    newest: list[Newest]
