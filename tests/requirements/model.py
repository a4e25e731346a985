"""A row of the tables of requirements, and of those of planted faults."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["proven", "planned", "later"]


@dataclass(frozen=True)
class Fault:
    """A bug that somebody could plausibly write, and the test that must notice it."""

    what: str  # one sentence on the bug
    file: str  # under src/claudemesh
    old: str  # occurs exactly once in the file
    new: str
    test: str  # pytest node id, path::function, without parameters


@dataclass(frozen=True)
class Requirement:
    id: str
    sentence: str
    source: str  # the section of the contract
    state: State
    faults: tuple[Fault, ...] = ()
