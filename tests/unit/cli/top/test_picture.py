"""Rates, ages and words follow from looks alone."""

import pytest

from claudemesh.cli.top.picture import (
    AWAY_S_MAX,
    History,
    age_s,
    derive_pause_s,
    derive_state,
    keep,
    read_counters,
    sparkline,
    to_document,
)
from tests.unit.cli.top.looks import HEALTH, away, look


@pytest.mark.req("C5")
def test_a_rate_is_what_was_counted_over_the_time_between_the_looks() -> None:
    history = History()
    for at_ms, sent, received in ((1_000, 10, 0), (2_000, 30, 1), (5_000, 30, 4)):
        history.note(look(at_ms, sent=sent, received=received))
    assert history.sent().mean == 5.0
    assert history.sent().each == [20.0, 0.0]
    assert history.received().each == [1.0, 1.0]
    assert history.window_s() == 4.0


@pytest.mark.req("C5")
def test_after_one_look_no_rate_is_known() -> None:
    history = History()
    history.note(look(1_000, sent=10))
    assert history.sent().mean is None
    assert to_document(look(), history)["rates"] == {"sent_per_s": None, "received_per_s": None, "window_s": 0.0}


@pytest.mark.req("C5")
def test_a_daemon_that_was_started_anew_is_not_counted_backwards() -> None:
    history = History()
    for at_ms, sent in ((1_000, 100), (2_000, 200), (3_000, 5), (4_000, 7)):
        history.note(look(at_ms, sent=sent))
    assert history.sent().each == [2.0]


def test_only_the_window_counts() -> None:
    history = History(window=2)
    for at_ms in range(0, 5_000, 1_000):
        history.note(look(at_ms, sent=at_ms))
    assert len(history.sent().each) == 2


def test_looks_without_an_answer_and_out_of_order_are_left_out() -> None:
    history = History()
    history.note(look(2_000, sent=1))
    history.note(away(3_000))
    history.note(look(2_000, sent=2))
    assert history.sent().mean is None


def test_counters_are_read_from_the_metrics_of_a_daemon() -> None:
    text = (
        '# HELP cm_daemon_send_total Rows.\ncm_daemon_send_total{event="failed"} 3.0\n'
        'cm_daemon_send_total{event="accepted"} 41.0\ncm_daemon_recv_total 7.0\ncm_daemon_reconnects_total 2.0\n'
        'cm_daemon_disk_pct{store="outbox"} 12.5\ncm_daemon_new_total{x="y"} NaN\nnonsense\n'
    )
    found = read_counters(text)
    assert (found.sent, found.received, found.reconnects, dict(found.disk_pct)) == (
        41.0,
        7.0,
        2.0,
        {"outbox": 12.5},
    )


@pytest.mark.parametrize(
    ("health", "state"),
    [
        (None, "away"),
        (HEALTH, "connected"),
        (HEALTH | {"degraded": True}, "degraded"),
        (HEALTH | {"connected": False, "link": "catching up"}, "catching up"),
        (HEALTH | {"connected": False, "link": "connecting"}, "connecting"),
        (HEALTH | {"connected": False, "link": "[Errno 111] Connection refused"}, "not connected"),
    ],
)
def test_how_the_daemon_is_is_one_of_six_words(health: dict[str, object] | None, state: str) -> None:
    assert derive_state(look(health=health)) == state


@pytest.mark.req("C5")
def test_while_the_daemon_is_away_what_was_last_known_of_it_stays_and_the_rest_is_new() -> None:
    last, now = look(1_000), away(9_000)
    shown = keep(last, now)
    assert (shown.health, shown.at_ms, shown.errors) == (HEALTH, 1_000, now.errors)
    assert keep(None, now) is now
    assert keep(last, (new := look(10_000))) is new


def test_the_pause_grows_while_nobody_answers_and_has_an_end() -> None:
    assert [derive_pause_s(2.0, failures) for failures in (0, 1, 2, 3, 99)] == [
        2.0,
        4.0,
        8.0,
        AWAY_S_MAX,
        AWAY_S_MAX,
    ]
    assert derive_pause_s(60.0, 5) == 60.0


@pytest.mark.parametrize(
    ("values", "drawn"), [((), ""), ((0.0, 0.0), "▁▁"), ((0.0, 1.0, 2.0), "▁▅█"), ((9.0, 1.0), "█▂")]
)
def test_a_sparkline_is_as_high_as_its_highest(values: tuple[float, ...], drawn: str) -> None:
    assert sparkline(values, 10) == drawn
    assert sparkline((*values, 5.0), 1) == "█"


@pytest.mark.parametrize(
    ("instant", "seconds"),
    [
        (1_700_000_000_000, 60),
        ("2023-11-14T22:13:20.000Z", 60),
        ("2023-11-14T22:13:20.000", None),
        ("soon", None),
        (None, None),
        (1_800_000_000_000, 0),
    ],
)
def test_an_age_is_told_of_what_says_when_it_was(instant: object, seconds: int | None) -> None:
    assert age_s(instant, 1_700_000_060_000) == seconds
