"""Hints about sends that are not finished: each told once, whoever brings it."""

import pytest

from claudemesh.daemon.events import ReceiptMoved
from claudemesh.daemon.unfinished import Unfinished
from claudemesh.runtime.observe import Observer


@pytest.mark.req("Q6")
def test_a_hint_that_is_no_news_is_not_told_again() -> None:
    observer, told = Observer(), list[str]()
    observer.subscribe(ReceiptMoved, lambda moved: told.append(moved.state))
    unfinished = Unfinished(observer)
    unfinished.hold(["m1"])
    for state in ("accepted", "delivered", "delivered", "read"):
        unfinished.move("m1", state)
    assert told == ["delivered", "read"]
