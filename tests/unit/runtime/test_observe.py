"""Telling what happened never hurts the one who tells."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from claudemesh.runtime.observe import Level, Observer, SubscriberFailed, level_of


@dataclass(frozen=True, slots=True)
class Settled:
    name: ClassVar[str] = "outbox.row_settled"
    id: str


@dataclass(frozen=True, slots=True)
class SettledLate(Settled):
    name: ClassVar[str] = "outbox.row_settled_late"
    level: ClassVar[Level] = "warning"


def test_an_event_reaches_those_who_asked_for_its_class_or_one_above_in_the_order_they_asked() -> None:
    observer = Observer()
    heard: list[tuple[str, object]] = []
    observer.subscribe(object, lambda event: heard.append(("all", event)))
    observer.subscribe(Settled, lambda event: heard.append(("settled", event)))
    observer.subscribe(SettledLate, lambda event: heard.append(("late", event)))
    first, second = Settled("1"), SettledLate("2")
    observer.publish(first)
    observer.publish(second)
    assert heard == [("all", first), ("settled", first), ("all", second), ("settled", second), ("late", second)]


def test_one_who_asks_later_hears_what_comes_later() -> None:
    observer = Observer()
    heard: list[object] = []
    observer.publish(Settled("1"))
    assert not observer.hears(Settled)
    observer.subscribe(Settled, heard.append)
    assert observer.hears(Settled)
    assert observer.hears(SettledLate)
    assert not observer.hears(SubscriberFailed)
    observer.publish(Settled("2"))
    assert heard == [Settled("2")]


def test_a_subscriber_chooses_classes_once_for_all_their_events() -> None:
    observer = Observer()
    asked: list[type[object]] = []
    heard: list[object] = []

    def wanted(event_class: type[object]) -> bool:
        asked.append(event_class)
        return level_of(event_class) == "warning"

    observer.subscribe(object, heard.append, wanted)
    for _ in range(3):
        observer.publish(Settled("1"))
        observer.publish(SettledLate("2"))
    assert asked == [Settled, SettledLate]
    assert heard == [SettledLate("2")] * 3
    assert not observer.hears(Settled)


def test_a_subscriber_that_fails_is_reported_and_stops_nobody() -> None:
    observer = Observer()
    heard: list[object] = []

    def broken(_: object) -> None:
        raise ValueError("the secret")

    observer.subscribe(Settled, broken)
    observer.subscribe(object, heard.append)
    observer.publish(Settled("1"))
    failed, settled = heard
    assert settled == Settled("1")
    assert isinstance(failed, SubscriberFailed)
    assert (failed.event, failed.error) == ("outbox.row_settled", "ValueError")
    assert "broken" in failed.subscriber
    assert "secret" not in repr(failed)


def test_one_that_fails_at_everything_is_not_told_for_ever() -> None:
    observer = Observer()
    calls: list[object] = []

    def broken(event: object) -> None:
        calls.append(event)
        raise ValueError

    observer.subscribe(object, broken)
    observer.publish(Settled("1"))
    assert [type(event) for event in calls] == [Settled, SubscriberFailed]


def test_what_ends_a_process_is_not_held_up() -> None:
    observer = Observer()

    def ending(_: object) -> None:
        raise KeyboardInterrupt

    observer.subscribe(Settled, ending)
    with pytest.raises(KeyboardInterrupt):
        observer.publish(Settled("1"))


def test_an_event_is_of_level_info_unless_it_says_otherwise() -> None:
    assert level_of(Settled) == "info"
    assert level_of(SettledLate) == "warning"
