"""A state machine as a table: (state, event) -> state. A pair that is not in the table cannot happen.

Building a machine checks it, so that a mistake in a table fails at import and not at three in the morning: every
state can be reached, every state that is not final has a way out, no final state has one, and every event is used.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from claudemesh.kernel.errors import TransitionRefused

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


@dataclass(frozen=True)
class Machine(Generic[State, Event]):
    name: str
    states: type[State]
    events: type[Event]
    initial: State
    final: frozenset[State]
    table: Mapping[tuple[State, Event], State]

    def __post_init__(self) -> None:
        wrong = list(self._find_faults())
        if wrong:
            raise ValueError(f"the {self.name} machine is not sound: {'; '.join(wrong)}")

    def step(self, state: State, event: Event) -> State:
        """Return the state that follows, or raise TransitionRefused."""
        following = self.table.get((state, event))
        if following is None:
            raise TransitionRefused(f"{self.name}: {event} cannot happen while {state}", state=state, event=event)
        return following

    def sources(self, event: Event) -> list[State]:
        """Return the states in which `event` can happen: the guard that a store puts into its WHERE clause."""
        return [state for state in self.states if (state, event) in self.table]

    def reachable(self) -> frozenset[State]:
        seen = {self.initial}
        while found := {to for (state, _), to in self.table.items() if state in seen} - seen:
            seen |= found
        return frozenset(seen)

    def to_mermaid(self) -> str:
        """Draw the table; the docs hold the drawing and a check compares the two."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {state} --> {to}: {event}" for (state, event), to in self.table.items()]
        lines += [f"    {state} --> [*]" for state in self.states if state in self.final]
        return "\n".join(lines)

    def _find_faults(self) -> Iterable[str]:
        exits = {state for state, _ in self.table}
        used = {event for _, event in self.table}
        reachable = self.reachable()
        for state in self.states:
            if state not in reachable:
                yield f"{state} is never reached"
            if state in self.final and state in exits:
                yield f"{state} is final but has a way out"
            if state not in self.final and state not in exits:
                yield f"{state} has no way out"
        for event in self.events:
            if event not in used:
                yield f"{event} changes nothing"
