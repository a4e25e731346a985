"""How texts of others are shown, and what an agent's answer looks like."""

import pytest

from claudemesh.kernel.errors import InvalidRequest
from claudemesh.mcp.parts import derive_id, show, show_meta


@pytest.mark.req("C3")
def test_a_body_can_do_nothing_but_be_read() -> None:
    shown = show("a\x1b[31m\u202e\x00\nb", 0, 100)
    assert shown.text == "a\\x1b[31m\\u202e\\x00\nb"
    assert (shown.is_truncated, shown.following) == (False, None)
    assert show_meta({"n\u200b": ["\x07", 1, None]}) == {"n\\u200b": ["\\x07", 1, None]}


@pytest.mark.req("C3")
def test_a_long_body_is_cut_where_it_says_and_read_on_piece_by_piece() -> None:
    text = "".join(str(number % 10) for number in range(1000))
    pieces, start = [], 0
    while True:
        shown = show(text, start, 300)
        pieces.append(shown.text.partition("… [truncated: ")[0])
        if shown.following is None:
            break
        assert shown.text.endswith(f"… [truncated: characters {start} to {start + 300} of 1000]")
        start = shown.following
    assert "".join(pieces) == text
    assert len(pieces) == 4


def test_beyond_the_end_there_is_nothing_to_show() -> None:
    assert show("", 0, 10).text == ""
    with pytest.raises(InvalidRequest):
        show("abc", 3, 10)


def test_the_mark_that_a_call_leaves_is_of_its_tool_and_key() -> None:
    assert derive_id("claim", "m", "k") == derive_id("claim", "m", "k")
    others = (("claim", "m", "l"), ("requeue", "m", "k"), ("claim", "n", "k"), ("claim", "", "k"))
    assert len({derive_id(*one) for one in (("claim", "m", "k"), *others)}) == 5
