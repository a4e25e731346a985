"""Canonical JSON against two oracles: the `rfc8785` package, and the checker that is published with the vectors."""

import json
import math
import random
import struct
from collections.abc import Callable

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from claudemesh.kernel.canonical import INTEGER_MAX, canonicalize
from docs.vectors import check

# Names and texts where the orders by UTF-16 unit and by code point part, where escapes live, and the plain ones.
TRICKY = (
    "\x00",
    "\x1f",
    "\x7f",
    '"',
    "\\",
    "/",
    "\u2028",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "a",
    "9",
)
TEXTS = (
    st.text()
    | st.text(st.sampled_from("abz019-_"), max_size=6)
    | st.lists(st.sampled_from(TRICKY), max_size=4).map("".join)
)
NUMBERS = (
    st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-400, 400).map(lambda exponent: float(f"1e{max(-320, min(300, exponent))}"))
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.req("F2")
@settings(max_examples=1_000, deadline=None, database=None)
@given(VALUES)
def test_the_form_is_the_one_of_the_oracles(value: object) -> None:
    assert canonicalize(value) == rfc8785.dumps(value) == check.canonicalize(value)


@pytest.mark.req("F2")
def test_twenty_thousand_random_values_have_the_form_of_the_oracles() -> None:
    """Draw them by dice of our own: for each, hypothesis takes far longer than all three forms do."""
    dice = random.Random(random.getrandbits(64))  # noqa: S311  other values every time, the same with randomly's seed
    for _ in range(20_000):
        value = draw(dice, depth=3)
        assert canonicalize(value) == rfc8785.dumps(value) == check.canonicalize(value)


def draw(dice: random.Random, depth: int) -> object:
    kinds: list[Callable[[], object]] = [
        lambda: dice.choice((None, True, False)),
        lambda: dice.randint(-INTEGER_MAX, INTEGER_MAX) >> dice.randrange(54),
        lambda: dice.uniform(-1, 1) * float(f"1e{dice.randint(-320, 300)}"),
        lambda: draw_text(dice),
        lambda: [draw(dice, depth - 1) for _ in range(dice.randrange(5))],
        lambda: {draw_text(dice): draw(dice, depth - 1) for _ in range(dice.randrange(6))},
    ]
    return dice.choice(kinds if depth else kinds[:4])()


def draw_text(dice: random.Random) -> str:
    return "".join(
        dice.choice((dice.choice(TRICKY), chr(dice.randrange(0xD800)))) for _ in range(dice.randrange(7))
    )


@pytest.mark.req("F2")
def test_a_hundred_thousand_random_doubles_are_written_as_the_oracle_does() -> None:
    dice = random.Random(8785)  # noqa: S311  a fixed seed: the same doubles every time
    for _ in range(100_000):
        (number,) = struct.unpack(">d", dice.randbytes(8))
        if math.isfinite(number):
            form = canonicalize(number)
            assert form == rfc8785.dumps(number)
            assert float(form) == number


@settings(max_examples=2_000, deadline=None, database=None)
@given(VALUES)
def test_the_form_reads_back_as_the_value_and_is_its_own_form(value: object) -> None:
    form = canonicalize(value)
    back = json.loads(form, parse_int=float)  # a large double is written without a fraction
    assert back == value
    assert canonicalize(back) == form


@settings(max_examples=1_000, deadline=None, database=None)
@given(st.dictionaries(TEXTS, SCALARS, min_size=2), st.randoms(use_true_random=False))
def test_the_order_of_insertion_does_not_count(members: dict[str, object], dice: random.Random) -> None:
    names = list(members)
    dice.shuffle(names)
    assert canonicalize({name: members[name] for name in names}) == canonicalize(members)
