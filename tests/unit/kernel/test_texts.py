"""Texts of others, made harmless."""

import pytest

from claudemesh.kernel.texts import confine, escape


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä 漢 \u00a0", "plain ä 漢 \u00a0"),
        ("\x1b[2J\x7f", "\\x1b[2J\\x7f"),
        ("\u202e\u200b\ud800", "\\u202e\\u200b\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("a\n\t\r", "a\\n\\t\\r"),
        ("a\ufe01\U000e0157", "a\\ufe01\\U000e0157"),
        ("\u3164\u180b\u034f", "\\u3164\\u180b\\u034f"),
    ],
)
def test_what_could_move_hide_or_reorder_is_shown_by_its_number(text: str, shown: str) -> None:
    assert escape(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u26a0\ufe0f ok", "\u26a0\ufe0f ok"),
        ("1\ufe0f\u20e3", "1\ufe0f\u20e3"),
        ("\u26a0\ufe0f\ufe0f", "\u26a0\ufe0f\\ufe0f"),
        ("\ufe0f \ufe0f", "\\ufe0f \\ufe0f"),
        ("\u26a0\ufe0e", "\u26a0\\ufe0e"),
    ],
)
def test_a_sign_may_ask_for_its_emoji_once_and_nothing_hides_behind_that(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_lines_stay_where_they_are_asked_for() -> None:
    assert escape("a\nb\x07", lines=True) == "a\nb\\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('say "hi"', 'say \\"hi\\"'),
        ("</tag>", "\\u003c/tag\\u003e"),
        ("\\u003c", "\\\\u003c"),
        ("a\nb\x1b", "a\\nb\\x1b"),
        ("a\U000e0157", "a\\U000e0157"),
    ],
)
def test_what_is_confined_ends_neither_its_quotes_nor_its_tag(text: str, shown: str) -> None:
    assert confine(text, 100) == shown


@pytest.mark.parametrize(("chars_max", "shown"), [(2, "ab"), (1, "a…"), (0, "…")])
def test_a_long_text_is_confined_to_its_beginning(chars_max: int, shown: str) -> None:
    assert confine("ab", chars_max) == shown


def test_an_escape_is_never_cut_in_two() -> None:
    assert confine("a<", 6) == "a…"
    assert confine("a<", 7) == "a\\u003c"
