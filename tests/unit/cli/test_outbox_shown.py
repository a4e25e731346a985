"""How envelopes are shown, and what their figures mean for an outage."""

from typing import Any

import click
import pytest

from claudemesh.cli.render import Output
from claudemesh.cli.statehub import showing
from claudemesh.cli.statehub.outbox import login_name, parse_by, read_lines
from claudemesh.kernel.errors import InvalidRequest
from tests.unit.edge.well import WELL

pytestmark = pytest.mark.req("R9")

NOW = 1_800_000_000_000
OUT = Output(as_json=False, no_color=True)

STATUS: dict[str, Any] = {"running": True, "outbox": "there", **WELL}

SEEN: dict[str, Any] = {
    "seq": 1,
    "id": "01J",
    "idempotency_key": "k",
    "state": "queued",
    "route_class": "replace",
    "request": "PATCH /tasks/1",
    "entity": "tasks/1",
    "attempts": 2,
    "created_at": NOW - 61_000,
    "updated_at": NOW,
    "next_attempt_at": NOW,
    "acked_at": None,
    "last_error": "503",
    "superseded_by": None,
    "cancelled_by": None,
    "source": {"agent": "codex"},
    "expectation": {},
    "answer_status": None,
}


@pytest.mark.parametrize(
    ("changed", "nothing_waits", "outage_over", "why"),
    [
        ({}, True, True, []),
        ({"running": False, "upstream_reachable": None, "upstream_state": "unknown"}, True, True, []),
        (
            {"pending": 1, "oldest_pending_age_s": 61},
            False,
            False,
            ["1 write is not sent yet, the oldest for 1m 1s"],
        ),
        ({"conflicts": 2}, False, False, ["2 writes are in conflict"]),
        ({"dead": 1}, False, False, ["1 write is dead"]),
        ({"upstream_reachable": False, "upstream_state": "offline"}, True, False, ["the hub cannot be reached"]),
        ({"upstream_state": "refused"}, True, False, ["the hub refuses the relay's credential"]),
        ({"outbox_usable": False}, False, False, ["the outbox is damaged, and nobody knows"]),
    ],
)
def test_an_outage_is_over_when_nothing_is_unsent_and_the_hub_is_there(
    changed: dict[str, Any], why: list[str], *, nothing_waits: bool, outage_over: bool
) -> None:
    judged = showing.judge({**STATUS, **changed})
    assert (judged["nothing_waits"], judged["outage_over"]) == (nothing_waits, outage_over)
    assert len(judged["why"]) == len(why)
    assert all(told.startswith(begin) for told, begin in zip(judged["why"], why, strict=True))
    last = showing.status_lines(OUT, judged)[-1]
    assert ("can be declared over" in last, "cannot be declared over" in last) == (outage_over, not outage_over)


def test_a_list_tells_ages_states_and_what_happened() -> None:
    items = [
        SEEN,
        {**SEEN, "state": "acked", "answer_status": 201},
        {**SEEN, "state": "cancelled", "cancelled_by": "coalesced", "superseded_by": "01K"},
        {**SEEN, "state": "cancelled", "cancelled_by": "ada"},
        {**SEEN, "state": "queued", "last_error": None, "request": "POST /x\x1b[2J"},
    ]
    heads, *rows, more = showing.page_lines(OUT, {"items": items, "next_cursor": 9}, NOW)
    assert heads.split("  ")[0] == "ID"
    told = ["503", "answered 201", "replaced by 01K", "cancelled by ada", "-"]
    assert [row.endswith(text) for row, text in zip(rows, told, strict=True)] == [True] * 5
    assert all(" 1m 1s " in row for row in rows)
    assert "\\x1b[2J" in rows[-1]
    assert more == "more: --after 9"
    assert showing.page_lines(OUT, {"items": [], "next_cursor": None}, NOW) == ["no envelopes"]


def test_of_a_conflict_both_values_stand_side_by_side() -> None:
    mine = {"status": "done", "expected_updated_at": "t1", "expected_status": "todo"}
    theirs = {"id": "1", "status": "blocked", "updated_at": "t2", "title": "x" * 99, "revision": 7}
    rows = [line.split() for line in showing.values_lines(OUT, mine, theirs)]
    assert rows[:4] == [
        ["FIELD", "MINE", "THEIRS"],
        ["status", "done", "blocked"],
        ["updated_at", "(expected)", "t1", "t2"],
        ["status", "(expected)", "todo", "blocked"],
    ]
    assert ["revision", "7"] in rows
    matched = [line.split() for line in showing.values_lines(OUT, {"status": "done"}, theirs, '"6"')]
    assert matched[2] == ["revision", "(expected)", '"6"', "7"]
    assert ["title", "x" * 59 + "…"] in rows


def test_without_another_value_only_ours_is_shown() -> None:
    assert showing.values_lines(OUT, None, None) == ["its body is no longer kept"]
    assert showing.values_lines(OUT, {"a": {"b": 1}}, None)[1].split(maxsplit=1) == ["a", '{"b": 1}']
    assert showing.values_lines(OUT, [1], None)[1].split() == ["body", "[1]"]


def test_an_envelope_is_shown_with_all_that_happened_to_it() -> None:
    events = [
        {"at": NOW, "was": None, "became": "queued", "error": None, "by": None, "superseded_by": None},
        {"at": NOW, "was": "queued", "became": "cancelled", "error": None, "by": "ada", "superseded_by": None},
    ]
    shown = {**SEEN, "mine": {"status": "done"}, "theirs": None, "answer": None, "happened": events}
    text = "\n".join(showing.envelope_lines(OUT, shown, NOW))
    assert "2027-01-15 08:00:00Z  -       queued     -" in text
    assert "queued  cancelled  ada" in text
    assert "from             agent codex" in text
    assert "1m 1s ago" in text


def test_who_decides_has_a_name() -> None:
    assert parse_by("Ada L.") == "Ada L."
    for wrong in ("", " ", "a\nb", "x" * 129, "coalesced"):
        with pytest.raises(click.BadParameter):
            parse_by(wrong)

    def nobody(_: int) -> None:
        raise KeyError

    assert login_name(nobody).startswith("uid ")
    assert login_name()


def test_lines_of_an_import_are_counted_with_the_empty_ones() -> None:
    assert read_lines(b'\n{"a":1}\r\n\n{"b":2}') == [b'{"a":1}\r', b'{"b":2}']
    with pytest.raises(InvalidRequest, match="line 3 is not JSON, and nothing was imported"):
        read_lines(b'{"a":1}\n\nx\n')
