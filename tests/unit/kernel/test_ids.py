"""Which id a send goes by, and how a fresh one is made."""

import pytest

from claudemesh.kernel.errors import InvalidClientMessageId, InvalidRequest
from claudemesh.kernel.ids import derive_client_message_id, next_ulid, parse_client_message_id, render_ulid


def mint() -> str:
    return "minted"


@pytest.mark.req("F1")
@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [("h", None, "h"), (None, "b", "b"), ("same", "same", "same"), (None, None, "minted")],
)
def test_the_header_wins_then_the_body_then_a_minted_id(
    header: str | None, body: str | None, expected: str
) -> None:
    assert derive_client_message_id(header, body, mint) == expected


@pytest.mark.req("F1")
@pytest.mark.parametrize(("header", "body"), [("a", "b"), ("a", ""), ("", "a")])
def test_a_header_and_a_body_that_differ_are_refused(header: str, body: str) -> None:
    with pytest.raises(InvalidRequest):
        derive_client_message_id(header, body, mint)


@pytest.mark.req("F1")
def test_an_empty_id_is_refused_and_not_taken_for_a_missing_one() -> None:
    with pytest.raises(InvalidClientMessageId):
        derive_client_message_id("", None, mint)
    with pytest.raises(InvalidClientMessageId):
        derive_client_message_id(None, "", mint)


@pytest.mark.req("F1")
@pytest.mark.parametrize("text", ["a", "!", "~", "a" * 128, "build-42", '"quoted"', "01ARZ3NDEKTSV4RRFFQ69G5FAV"])
def test_visible_ascii_up_to_128_characters_is_an_id(text: str) -> None:
    assert parse_client_message_id(text) == text


@pytest.mark.req("F1")
@pytest.mark.parametrize(
    "text", ["", "a" * 129, "a b", " a", "a\n", "a\0", "\x7f", "é", "\uff11", "\ud800"], ids=ascii
)
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(InvalidClientMessageId) as refused:
        parse_client_message_id(text)
    assert refused.value.code == "invalid_client_message_id"


def test_a_ulid_spells_its_number_in_crockford_base_32() -> None:
    assert render_ulid(0) == "0" * 26
    assert render_ulid(0x000102030405060708090A0B0C0D0E0F) == "00041061050R3GG28A1C60T3GF"
    assert render_ulid(2**128 - 1) == "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
    assert render_ulid(next_ulid(0, 1469918176385, 0)) == "01ARYZ6S410000000000000000"


@pytest.mark.req("F4")
def test_ids_grow_within_a_millisecond_and_when_the_clock_steps_back() -> None:
    last, given = 0, []
    for wall_ms, entropy in [
        (1000, 2**80 - 1),
        (1000, 0),
        (1000, 2**80 - 1),
        (400, 7),
        (0, 0),
        (1001, 0),
        (1002, 5),
    ]:
        last = next_ulid(last, wall_ms, entropy)
        given.append(render_ulid(last))
    assert given == sorted(set(given))


def test_neighbours_in_one_millisecond_are_not_one_apart() -> None:
    first = next_ulid(0, 1000, 1)
    assert next_ulid(first, 1000, 0xFFFF) - first == 0x10000


def test_the_end_of_the_space_is_an_error_and_not_a_restart() -> None:
    with pytest.raises(OverflowError):
        next_ulid(2**128 - 1, 0, 0)
