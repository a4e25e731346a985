"""What a request's headers and body say, and what is refused before a store is asked."""

import json

import pytest

from claudemesh.hub.asking import DEPTH_MAX, parse_if_match, refuse_unstorable
from claudemesh.hub.rendering import parse_cursor, render_cursor
from claudemesh.kernel.errors import InvalidRequest, MeshError
from claudemesh.kernel.write_errors import BadHeader, TooDeep, Unstorable

pytestmark = pytest.mark.req("R2")


@pytest.mark.parametrize(
    ("header", "revisions"),
    [
        (None, None),
        ("*", None),
        (" * ", None),
        ('"3"', (3,)),
        ('"3", "4","5"', (3, 4, 5)),
        ('W/"3"', ()),
        ('W/"3", "4"', (4,)),
        ('"three"', ()),
        ('"03"', ()),
        ('"0"', ()),
        ('""', ()),
        ('"9999999999999999999999"', ()),
    ],
)
def test_if_match_names_revisions(header: str | None, revisions: tuple[int, ...] | None) -> None:
    assert parse_if_match(header) == revisions


@pytest.mark.parametrize(
    "header", ["", "3", '"3', '3"', '"3" "4"', '"3",', ',"3"', "'3'", '*, "3"', 'w/"3"', '"a b"']
)
def test_what_is_no_list_of_tags_is_refused(header: str) -> None:
    with pytest.raises(BadHeader):
        parse_if_match(header)


@pytest.mark.parametrize("seq", [0, 1, 41, 2**53])
def test_a_cursor_leads_back_to_where_it_was_given(seq: int) -> None:
    assert parse_cursor(render_cursor(seq)) == seq


@pytest.mark.parametrize(
    "text", ["", "x", "é", "Mjox", "MTo", "MTotMQ", "MToxLjU", "MTo5OTk5OTk5OTk5OTk5OTk5OTk5OTk", "a" * 9]
)
def test_a_cursor_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_cursor(text)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":"x"}',
        rb'{"a":"\\u0000"}',
        rb'{"a":"u0000"}',
        rb'{"a":"\u00001"}'.replace(b"00001", b"00011"),
        nested(DEPTH_MAX),
        json.dumps([{}] * 1000).encode(),
    ],
)
def test_what_can_be_kept_is_taken(raw: bytes) -> None:
    refuse_unstorable(raw)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (rb'{"a":"\u0000"}', Unstorable),
        (rb'{"a":"x\\\u0000"}', Unstorable),
        (rb'{"\u0000":1}', Unstorable),
        (nested(DEPTH_MAX + 1), TooDeep),
        (b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1), TooDeep),
    ],
)
def test_what_not_every_store_or_reader_can_keep_is_refused(raw: bytes, error: type[MeshError]) -> None:
    with pytest.raises(error):
        refuse_unstorable(raw)
