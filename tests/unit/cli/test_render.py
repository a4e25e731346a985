"""What others wrote can only be read: it moves no cursor, hides nothing, and looks like nothing else."""

import io
import json
import sys

import pytest

from claudemesh.cli.render import Output, age, escape, render_json, when


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ümläut 漢字 🙂", "plain ümläut 漢字 🙂"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\x9bb", "a\\x9bb"),
        ("a\u202eb\u2066c\u200fd", "a\\u202eb\\u2066c\\u200fd"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("line\nfeed\rback\ttab\0", "line\\nfeed\\rback\\ttab\\x00"),
        ("\u2028\u2029\x85", "\\u2028\\u2029\\x85"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("half\udcff", "half\\udcff"),
        ("wide\u3000space\u00a0", "wide\u3000space\u00a0"),
        ("del\x7f", "del\\x7f"),
    ],
)
def test_what_could_do_more_than_be_read_is_shown_by_its_number(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_lines_may_stay_but_nothing_else() -> None:
    assert escape("a\nb\r\x1bc", lines=True) == "a\nb\\r\\x1bc"


def test_json_is_ascii_and_says_the_same() -> None:
    document = {"text": "\u202e\x1b\x9b\x7f漢🙂"}
    rendered = render_json(document)
    assert rendered.isascii()
    assert rendered.isprintable()
    assert json.loads(rendered) == document


def test_instants_are_shown_in_utc_and_texts_as_they_are() -> None:
    assert when(0) == "1970-01-01 00:00:00Z"
    assert when("2026-01-31T12:00:00.000Z") == "2026-01-31T12:00:00.000Z"
    assert when(None) == "-"
    assert when(10**18) == str(10**18)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_line_up_also_for_wide_letters_and_cells_are_escaped() -> None:
    lines = Output(as_json=False, no_color=True).table(("name", "status"), [("漢字", "online"), ("b\n", None)])
    assert lines == ["NAME  STATUS", "漢字  online", "b\\n   -"]


def test_colour_is_for_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Output(as_json=False, no_color=False)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert plain.state("dead") == "dead"
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert plain.state("dead") == "\x1b[31mdead\x1b[0m"
    assert plain.state("something else") == "something else"
    assert Output(as_json=False, no_color=True).state("dead") == "dead"
    assert Output(as_json=True, no_color=False).state("dead") == "dead"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m 0s"), (3_599, "59m 59s"), (3_600, "1h 0m"), (90_000, "1d 1h")],
)
def test_an_age_is_told_in_its_two_largest_units(seconds: int, told: str) -> None:
    assert age(seconds) == told
