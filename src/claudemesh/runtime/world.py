"""What a part of a process needs of the world, in one value, so that a test can hand it another world."""

from collections.abc import Callable
from dataclasses import dataclass, field

from claudemesh.kernel.clock import Clock
from claudemesh.runtime.clock import SystemClock, steady
from claudemesh.runtime.dice import roll
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.observe import Observer


@dataclass(frozen=True, slots=True)
class World:
    clock: Clock
    ids: UlidSource
    roll: Callable[[], float]  # a number in [0, 1)
    observer: Observer = field(default_factory=Observer)
    steady_ms: Callable[[], int] = field(init=False)  # wall time of the start, carried on: what ages are judged by

    def __post_init__(self) -> None:
        object.__setattr__(self, "steady_ms", steady(self.clock))

    def earliest_ms(self) -> int:
        """Return the earlier of the two times: what is to be deleted has to be old by both of them."""
        return min(self.steady_ms(), self.clock.wall_ms())


def real_world() -> World:
    clock = SystemClock()
    return World(clock, UlidSource(clock), roll)
