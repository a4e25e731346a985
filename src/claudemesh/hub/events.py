"""What happens at the hub, for logs and metrics. No event holds what was written."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import msgspec

from claudemesh.hub.model import Kind
from claudemesh.runtime.observe import Level

What = Literal["created", "changed", "unchanged", "deleted", "conflict", "missing"]


class RowAsked(msgspec.Struct, frozen=True):
    """A write was decided, and committed if it was not refused.

    A struct, since one is made with every write.
    """

    name: ClassVar[str] = "hub.row_asked"
    level: ClassVar[Level] = "debug"
    kind: Kind
    what: What


@dataclass(frozen=True, slots=True)
class HubStarted:
    """The hub listens."""

    name: ClassVar[str] = "hub.started"
    url: str
    version: str
    store: str


@dataclass(frozen=True, slots=True)
class HubStopped:
    """The hub has stopped."""

    name: ClassVar[str] = "hub.stopped"


@dataclass(frozen=True, slots=True)
class SweepFailed:
    """It is tried again at its next turn."""

    name: ClassVar[str] = "hub.sweep_failed"
    level: ClassVar[Level] = "error"
    error: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        return cls(getattr(error, "code", type(error).__name__))
