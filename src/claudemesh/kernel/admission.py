"""IDEA 1. A key and a fingerprint are presented; what stands under that key decides, by looking up a table.

A store answers one question, atomically: is the key free, or what stands there? It never decides. `judge` looks
(state, same fingerprint or not) up in the table of whoever asks, and the answer is one of four:

    Fresh      nothing stands: you are first, go on and write
    Busy       the same request stands and is still under way; `word` says how far it is
    Replay     the same request stands and is settled: answer as it was answered
    Conflict   the id is taken; `word` says by what and in which state

The tables are constants beside the states they speak of (`outbox.ADMISSION` is the daemon's). Building one checks
that it is total, so that a state somebody adds and forgets fails at import. What else stands in the row (the ids of
the first answer, the reason of a death) the caller takes from the row itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Generic, TypeVar

from claudemesh.kernel.fingerprint import Fingerprint

State = TypeVar("State", bound=StrEnum)
State_co = TypeVar("State_co", bound=StrEnum, covariant=True)


class Match(Enum):
    SAME = "same"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Standing(Generic[State_co]):
    """What a store found under a key."""

    state: State_co
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class Fresh:
    pass


@dataclass(frozen=True, slots=True)
class Busy:
    word: str


@dataclass(frozen=True, slots=True)
class Replay:
    word: str


@dataclass(frozen=True, slots=True)
class Conflict:
    word: str


Verdict = Fresh | Busy | Replay | Conflict

FRESH = Fresh()


class AdmissionTable(Generic[State]):
    """(state, match) -> verdict, for every state and both matches."""

    def __init__(self, states: type[State], rows: Mapping[tuple[State, Match], Busy | Replay | Conflict]) -> None:
        missing = [f"{state}/{match.value}" for state in states for match in Match if (state, match) not in rows]
        if missing:
            raise ValueError(f"the admission table of {states.__name__} has no row for {', '.join(missing)}")
        self.rows = dict(rows)

    def judge(self, standing: Standing[State] | None, presented: Fingerprint) -> Verdict:
        if standing is None:
            return FRESH
        match = Match.SAME if standing.fingerprint == presented else Match.OTHER
        return self.rows[standing.state, match]
