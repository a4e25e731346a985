"""What brokers write to each other: merged, cut into pieces that fit, and never more than a bounded heap."""

import pytest

from claudemesh.broker.model import Announced, Dismissed, Expelled, Hinted, Rewound, Woken
from claudemesh.broker.stores.postgres.notices import WAITING_MAX, Gathered, Hello, Missed, Notice, parse, render


def gathered(*notices: Notice) -> Gathered:
    heap = Gathered()
    for notice in notices:
        heap.add(notice)
    return heap


def heard(payloads: list[str]) -> list[Notice]:
    notifications = [parse(payload) for payload in payloads]
    assert all(one is not None and one.broker == "7" for one in notifications)
    return [notice for one in notifications if one is not None for notice in one.notices]


def test_hints_are_merged_and_everything_else_is_told_each() -> None:
    heap = gathered(Woken([1, 2]), Expelled(5), Woken([2, 3]), Hinted(9, ["a"]), Hinted(9, ["b", "a"]), Expelled(5))
    assert heap
    expelled, again, hinted, woken = heap.take()
    assert (expelled, again, hinted) == (Expelled(5), Expelled(5), Hinted(9, ["a", "b"]))
    assert isinstance(woken, Woken)
    assert sorted(woken.members) == [1, 2, 3]
    assert not heap
    assert heap.take() == []


def test_what_is_written_is_read_again_whatever_it_is() -> None:
    notices = [Hello(), Missed(), Rewound([1]), Hinted(1, ['"é\n']), Announced(3, "joined", {"name": "Zoë \u2028"})]
    assert heard(render("7", notices)) == notices
    assert render("7", []) == []


@pytest.mark.parametrize("count", [1, 700, 5000])
def test_a_notification_never_is_longer_than_the_server_takes_and_none_is_lost(count: int) -> None:
    members = [10**15 + number for number in range(count)]
    ids = [f"{number:0128}" for number in range(count)]
    payloads = render("7", [Woken(members), Dismissed(members), Hinted(1, ids), Expelled(5)])
    assert all(len(payload.encode()) <= 7_900 for payload in payloads)
    found = heard(payloads)
    assert [id_ for one in found if isinstance(one, Woken) for id_ in one.members] == members
    assert [id_ for one in found if isinstance(one, Hinted) for id_ in one.client_message_ids] == ids
    assert [token for one in found if isinstance(one, Dismissed) for token in one.tokens] == members
    assert found[-1] == Expelled(5)
    assert len(payloads) <= 1 + count * 170 // 3_900, "few are half empty"


def test_what_does_not_fit_at_all_is_missed() -> None:
    assert heard(render("7", [Announced(1, "long", {"name": "x" * 8_000}), Expelled(5)])) == [Missed(), Expelled(5)]


def test_a_heap_that_grows_too_high_says_only_that_something_was_missed() -> None:
    heap = gathered(*(Expelled(number) for number in range(WAITING_MAX + 1)), Expelled(7))
    assert heap.take() == [Missed(), Expelled(7)]
    assert gathered(Woken([*range(WAITING_MAX + 1)])).take() == [Missed()]


@pytest.mark.parametrize("wrong", ["", "null", "{}", '{"broker":"7"}', '{"broker":"7","notices":[{"type":"?"}]}'])
def test_what_is_no_notification_is_none(wrong: str) -> None:
    assert parse(wrong) is None
