"""What happened, told to whoever wants to know. Logs and metrics subscribe; the code that publishes knows neither.

An event is a frozen dataclass (or struct) with a class attribute `name`, `subsystem.noun_verbed`, and if it is not
of level "info" a class attribute `level`. It carries ids, codes, counts and fingerprint prefixes; bodies, keys and
tokens stay out, since whatever is in an event may end up in a log.

This file decides who is called. It promises the publisher that telling costs next to nothing and never fails: a
subscriber that raises is itself reported, once, and the others are still called.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar

# "debug" is for what happens with every request: counted, and not logged unless it is asked for.
Level = Literal["debug", "info", "warning", "error"]

# A clock for measuring only: finer than milliseconds, and nothing may be decided by it.
stopwatch_s: Final = time.perf_counter


class Event(Protocol):
    name: ClassVar[str]


def level_of(event_class: type[object]) -> Level:
    level: Level = getattr(event_class, "level", "info")
    return level


@dataclass(frozen=True, slots=True)
class SubscriberFailed:
    """A subscriber raised. Only the class of its error is kept: its text may quote what the event was about."""

    name: ClassVar[str] = "runtime.subscriber_failed"
    level: ClassVar[Level] = "error"
    event: str
    subscriber: str
    error: str


E = TypeVar("E")
Subscriber = Callable[[Any], None]
Wanted = Callable[[type[object]], bool]


class Observer:
    """Safe to use from any thread: what a publisher looks at is replaced, never changed."""

    def __init__(self) -> None:
        self._subscribers: tuple[tuple[type[object], Subscriber, Wanted | None], ...] = ()
        self._by_class: dict[type[object], tuple[Subscriber, ...]] = {}

    def subscribe(
        self, event_class: type[E], subscriber: Callable[[E], None], wanted: Wanted | None = None
    ) -> None:
        """Call it with every event of this class or below, `object` being all; `wanted` is asked once a class."""
        self._subscribers = (*self._subscribers, (event_class, subscriber, wanted))
        self._by_class = {}

    def hears(self, event_class: type[object]) -> bool:
        """Say whether anybody would be told, for a publisher to whom making the event is the cost."""
        subscribers = self._by_class.get(event_class)
        return bool(self._resolve(event_class) if subscribers is None else subscribers)

    def publish(self, event: Event) -> None:
        event_class = type(event)
        subscribers = self._by_class.get(event_class)
        if subscribers is None:
            subscribers = self._resolve(event_class)
        for subscriber in subscribers:
            try:
                subscriber(event)
            except Exception as error:  # noqa: BLE001 - whatever it is, the publisher's work goes on
                self._report(event, subscriber, error)

    def _resolve(self, event_class: type[object]) -> tuple[Subscriber, ...]:
        by_class = self._by_class  # before the subscribers: one that comes in between replaces it, and ours is lost
        found = tuple(
            subscriber
            for wanted_class, subscriber, wanted in self._subscribers
            if issubclass(event_class, wanted_class) and (wanted is None or wanted(event_class))
        )
        by_class[event_class] = found
        return found

    def _report(self, event: Event, subscriber: Subscriber, error: Exception) -> None:
        if not isinstance(event, SubscriberFailed):  # else the one that fails at everything would be told for ever
            who = getattr(subscriber, "__qualname__", type(subscriber).__qualname__)
            self.publish(SubscriberFailed(event.name, who, type(error).__name__))
