"""RFC 8785 by example: the number rules of ECMAScript, the order of names, the spelling of escapes."""

import struct
from enum import StrEnum

import pytest

from claudemesh.kernel.canonical import INTEGER_MAX, NESTING_MAX, canonicalize
from claudemesh.kernel.errors import InvalidRequest

# The bits of a double and its one form.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
    "3ff0000000000000": "1",
    "4059000000000000": "100",
    "3fb999999999999a": "0.1",
    "4415af1d78b58c40": "100000000000000000000",
}


@pytest.mark.req("F2")
@pytest.mark.parametrize(("bits", "expected"), NUMBERS.items())
def test_a_double_is_written_as_ecmascript_writes_it(bits: str, expected: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonicalize(number).decode() == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        ([], "[]"),
        ({}, "{}"),
        ("", '""'),
        ([None, True, 1, "a", [], {}], '[null,true,1,"a",[],{}]'),
        ([None, True, False, 0.5], "[null,true,false,0.5]"),
        ([1.5, [2.5, {"b": 0.5, "a": -0.0}]], '[1.5,[2.5,{"a":0,"b":0.5}]]'),
        (INTEGER_MAX, "9007199254740991"),
        (-INTEGER_MAX, "-9007199254740991"),
    ],
)
def test_every_kind_of_value_has_its_form(value: object, expected: str) -> None:
    assert canonicalize(value).decode() == expected


@pytest.mark.req("F2")
def test_names_sort_by_utf16_units_and_not_by_code_points() -> None:
    # U+1F600 begins with the unit D83D, which comes before FB01, though the code point comes after it.
    assert canonicalize({"\ufb01": 1, "\U0001f600": 2}).decode() == '{"\U0001f600":2,"\ufb01":1}'


def test_names_that_look_like_integers_sort_as_texts() -> None:
    assert canonicalize({"2": 1, "10": 2, "1": 3, "": 4}) == b'{"":4,"1":3,"10":2,"2":1}'


@pytest.mark.parametrize("fraction", [0, 0.5], ids=["fast road", "full road"])
def test_escapes_are_the_short_ones_and_lower_case_hex(fraction: float) -> None:
    text = '\b\t\n\f\r"\\/\x00\x1f\x7f\u20ac\u2028'
    expected = '"\\b\\t\\n\\f\\r\\"\\\\/\\u0000\\u001f\x7f\u20ac\u2028"'
    assert canonicalize([text, fraction]).decode() == f"[{expected},{fraction}]"


@pytest.mark.req("F2a")
@pytest.mark.parametrize(
    "value",
    [
        INTEGER_MAX + 1,
        -INTEGER_MAX - 1,
        float("nan"),
        float("inf"),
        float("-inf"),
        "\ud800",
        {"\udfff": 1},
        {1: "a name that is no text"},
        {"a": {None: 1}},
        b"bytes",
        {"a": {1, 2}},
        (1, 2),
    ],
    ids=repr,
)
def test_what_has_no_form_is_refused(value: object) -> None:
    for shape in (value, [value], {"a": value}, {"a": 0.5, "b": [value]}):
        with pytest.raises(InvalidRequest):
            canonicalize(shape)


@pytest.mark.parametrize("leaf", [1, 0.5], ids=["fast road", "full road"])
def test_nesting_is_bounded_on_both_roads(leaf: float) -> None:
    def nest(levels: int) -> object:
        value: object = leaf
        for level in range(levels):
            value = [value] if level % 2 else {"a": value}
        return value

    assert canonicalize(nest(NESTING_MAX))
    with pytest.raises(InvalidRequest):
        canonicalize(nest(NESTING_MAX + 1))
    with pytest.raises(InvalidRequest):
        canonicalize(nest(100_000))


def test_a_text_that_is_an_enum_is_written_as_the_text() -> None:
    class Colour(StrEnum):
        RED = "red"

    assert canonicalize(Colour.RED) == b'"red"'
    assert canonicalize({"c": Colour.RED, Colour.RED: 1}) == b'{"c":"red","red":1}'
